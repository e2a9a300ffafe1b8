"""Who installs the wheel can run a night and recall, without a checkout; the read side says what is
missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from tests.e2e.driver import DONE, NIGHT_TIMEOUT_S, ROOT, Ran
from tests.support.imports import TOP_LEVEL

pytestmark = pytest.mark.slow

NOT_INSTALLED = 2


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    _check([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of somebody who has no checkout."""
    return tmp_path_factory.mktemp("user")


def install(wheel: Path, libraries: Path, into: Path) -> Path:
    """Install the wheel into an environment of its own that sees a folder of libraries."""
    _check([sys.executable, "-m", "venv", "--without-pip", str(into)])
    python = into / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    _check([*pip, "--no-deps", "--no-index", str(wheel)])
    (site,) = into.glob("lib/python*/site-packages")
    # Only the folder: its own .pth files, the one of this checkout among them, are not followed.
    (site / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    return into / "bin" / "noctuary"


def run(program: Path, *words: str, user: Path, **told: str) -> Ran:
    """Run a program as this user, from their home directory and with nothing set."""
    home = {"HOME": str(user), "PATH": os.defpath, "OMP_NUM_THREADS": "1", **told}
    done = subprocess.run(
        [program, *words], cwd=user, env=home, capture_output=True, encoding="utf-8",
        timeout=NIGHT_TIMEOUT_S, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def _check(words: Sequence[str], cwd: Path | None = None) -> None:
    done = subprocess.run(words, cwd=cwd, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _needed(name: str = "noctuary") -> Iterator[str]:
    """Yield the distributions that one needs without an extra, and what those need."""
    for line in metadata.requires(name) or ():
        if "extra ==" not in line:
            found = re.match(r"[\w.-]+", line)
            assert found is not None
            yield found.group()
            yield from _needed(found.group())


def _plain_libraries(directory: Path) -> Path:
    """Make a folder that holds what `pip install noctuary` brings and nothing else."""
    directory.mkdir()
    for name in set(_needed()):
        files = metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files if file.parts[0] != ".."}:
            (directory / top).symlink_to(Path(sysconfig.get_path("purelib"), top))
    return directory


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    packed = {n for n in zipfile.ZipFile(wheel).namelist() if n.split("/")[0] in TOP_LEVEL}
    shipped = _tracked("data", "workspace.yaml")
    assert "data/sample/texts/garden.jsonl" in shipped
    assert packed == {
        *(name.partition("/")[2] for name in _tracked(*map(str, TOP_LEVEL.values()))),
        *(f"noctuary_pipelines/{name}" for name in shipped),
    }
    assert {"noctuary/py.typed", "noctuary/evaluate/style.css"} <= packed


def test_a_source_distribution_and_the_files_of_the_image_make_the_same_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    packed = zipfile.ZipFile(wheel).namelist()
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    _check([*hatchling, "-t", "sdist"], cwd=ROOT)
    (source,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(source, tmp_path, filter="data")
    image = tmp_path / "image"
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        for name in _tracked(line[1:]) if line.startswith("!") else ():
            (image / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, image / name)
    for root in (source.with_name(source.name.removesuffix(".tar.gz")), image):
        out = root.with_name(f"{root.name}-wheel")
        _check([*hatchling[:-1], str(out), "-t", "wheel"], cwd=root)
        (built,) = out.glob("*.whl")
        assert sorted(zipfile.ZipFile(built).namelist()) == sorted(packed), root.name


def _tracked(*paths: str) -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", *paths], cwd=ROOT, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    return listing.stdout.splitlines()


def test_a_night_runs_without_a_checkout_and_the_read_side_alone_recalls(
    wheel: Path, user: Path, tmp_path: Path
) -> None:
    noctuary = install(wheel, Path(sysconfig.get_path("purelib")), tmp_path / "whole")
    where = "import noctuary_pipelines as p, noctuary as n; print(n.__file__, p.TOP)"
    found = run(noctuary.with_name("python"), "-c", where, user=user)
    assert all(path.startswith(str(tmp_path)) for path in found.out.split()), found.says
    night = run(noctuary, "nightly", "--json", user=user)
    assert night.code == DONE, night.says
    home = user / ".local" / "share" / "noctuary"
    assert (night.report["status"], night.report["source"]) == (
        "published", str(home / "sample" / "memory.db"),
    )  # fmt: skip
    assert night.report["store"].startswith(f"{home}/sample-memory-")
    assert {p.name for p in user.iterdir()} <= {".local", ".cache", ".config"}

    plain = install(wheel, _plain_libraries(tmp_path / "libraries"), tmp_path / "plain")
    answers = [
        run(program, "recall", "who is my manager", "-k", "2", "--json", "--dry-run", user=user)
        for program in (noctuary, plain)
    ]
    ids = [[m["id"] for m in json.loads(ran.out)["memories"]] for ran in answers]
    assert ids[0] == ids[1] == [86, 4], [ran.says for ran in answers]
    (listed,) = json.loads(run(plain, "stores", "--json", user=user).out)["stores"]
    assert (listed["path"], listed["fault"]) == (night.report["store"], None)


@pytest.mark.parametrize("command", ["nightly", "ui"])
def test_without_the_extra_one_sentence_names_it(wheel: Path, tmp_path: Path, command: str) -> None:
    plain = install(wheel, _plain_libraries(tmp_path / "libraries"), tmp_path / "plain")
    user = tmp_path / "user"
    user.mkdir()
    ran = run(plain, command, user=user)
    assert (ran.code, ran.out) == (NOT_INSTALLED, "")
    assert ran.err.endswith("is not installed: pip install 'noctuary[pipelines]'\n")
    assert ran.err.count("\n") == 1
    assert list(user.iterdir()) == []
    helped = run(plain, command, "--help", user=user)
    assert helped.code == DONE


def test_two_lines_are_enough_where_nothing_is_installed(wheel: Path, tmp_path: Path) -> None:
    """The README's first block: an empty environment, the package index, no torch."""
    _check([sys.executable, "-m", "venv", str(tmp_path / "own")])
    python = tmp_path / "own" / "bin" / "python"
    _check([str(python), "-m", "pip", "install", "--quiet", f"{wheel}[pipelines]"])
    noctuary, user = python.with_name("noctuary"), tmp_path / "user"
    notes = user / "notes" / "house.md"
    notes.parent.mkdir(parents=True)
    notes.write_text("# House\n\n## Key\n\nThe spare key lies under the blue pot.\n")
    for name in ("torch", "transformers", "sentence_transformers", "tokenizers"):
        found = run(python, "-c", f"import {name}", user=user)
        assert f"No module named '{name}'" in found.err
    begun = run(noctuary, "init", "--yes", "--markdown", str(notes.parent), user=user)
    assert begun.code == DONE, begun.says
    assert begun.says.count("fetching the model") == 1
    again = run(noctuary, "nightly", "--json", user=user)
    assert again.code == DONE, again.says
    assert "fetching the model" not in again.says
    answer = run(noctuary, "recall", "where is the second key", "--json", user=user)
    assert "blue pot" in answer.out, answer.says
