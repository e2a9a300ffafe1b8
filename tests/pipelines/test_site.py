"""Which source and store a night means, and when it refuses to guess."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from noctuary import remember
from noctuary.core.errors import ConfigError, StoreError
from noctuary.core.store import StorePaths
from noctuary.work.lock import hold_lock
from noctuary_pipelines import nightly
from noctuary_pipelines.site import export_environment, prepare_instance, resolve_site
from tests.support.store import Store


@pytest.fixture
def environ(home: Path) -> dict[str, str]:
    return {"NOCTUARY_HOME": str(home)}


def test_an_argument_wins_over_the_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    first, second = (resolve_site(str(tmp_path / n / "memory.db"), environ=environ) for n in "ab")
    assert first.paths.root.parent == first.home
    assert first.paths.root.name.startswith("a-memory-")
    assert first.paths.root != second.paths.root
    environ["NOCTUARY_SOURCE_PATH"] = str(tmp_path / "configured.db")
    environ["NOCTUARY_STORE"] = str(tmp_path / "store")
    assert resolve_site(environ=environ).source == tmp_path / "configured.db"
    named = resolve_site(str(tmp_path / "named.db"), str(tmp_path / "other"), environ)
    assert (named.source, named.paths.root) == (tmp_path / "named.db", tmp_path / "other")
    mine = resolve_site(store="mine", environ=environ).paths.root
    assert mine == Path(environ["NOCTUARY_HOME"], "mine")
    again = resolve_site(environ=export_environment(named))
    assert (again.source, again.paths, again.home) == (named.source, named.paths, named.home)


def test_without_an_argument_the_listed_stores_come_before_the_own_one_and_the_sample_last(
    home: Path, environ: dict[str, str]
) -> None:
    def source() -> object:
        return resolve_site(environ=environ).source

    assert str(source()).startswith(str(home / "sample"))
    remember("The spare key hangs behind the blue door.")
    assert source() == home / "memories.sqlite"
    config = home / "noctuary.toml"
    config.write_text("[snapshot]\nkeep = 3\n", encoding="utf-8")
    assert source() == home / "memories.sqlite"
    config.write_text('[sources]\nnotes = "notes.jsonl"\n', encoding="utf-8")
    assert source() == config
    site = resolve_site(environ=environ)
    again = resolve_site(environ=export_environment(site))
    assert (again.source, again.paths) == (site.source, site.paths)
    config.write_text('source.path = "a.db"\n[sources]\nnotes = "n.jsonl"\n', encoding="utf-8")
    assert source() == Path.cwd() / "a.db", "one store was named"


def test_a_store_of_the_environment_is_not_overwritten_from_another_source(
    plain_store: Store, tmp_path: Path, environ: dict[str, str]
) -> None:
    root = plain_store.paths.root
    environ["NOCTUARY_STORE"] = str(root)
    other = str(tmp_path / "other" / "memory.db")
    with pytest.raises(ConfigError, match="was built from"):
        resolve_site(other, environ=environ)
    assert resolve_site(other, str(root), environ).paths.root == root


def test_the_dagster_home_keeps_its_edits(tmp_path: Path, environ: dict[str, str]) -> None:
    paths = resolve_site(store=str(tmp_path / "store"), environ=environ).paths
    home = prepare_instance(paths)
    assert home == tmp_path / "store" / "dagster"
    config = home / "dagster.yaml"
    config.write_text(config.read_text("utf-8") + "# mine\n", encoding="utf-8")
    prepare_instance(paths)
    assert config.read_text("utf-8").endswith("# mine\n")


def test_dagsters_files_are_healed_between_nights(tmp_path: Path, environ: dict[str, str]) -> None:
    paths = resolve_site(store=str(tmp_path / "store"), environ=environ).paths
    torn = prepare_instance(paths) / "history" / "runs.db"
    torn.parent.mkdir()
    torn.write_text("half a page")
    said: list[str] = []
    with hold_lock(paths.lock):
        prepare_instance(paths, say=said.append)
    assert torn.exists()
    prepare_instance(paths, say=said.append)
    assert not torn.exists()
    assert len(said) == 1
    assert "dagster/history/runs.db (file is not a database)" in said[0]


def test_a_disk_that_is_full_at_the_very_end_fails_no_night(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = resolve_site(store=str(tmp_path / "store"), environ=environ)

    def full(_: StorePaths) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(nightly, "record_dagster", full)
    nightly._record_instance(site)  # pyright: ignore[reportPrivateUsage]


def test_the_line_that_says_how_to_ask_works_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "en v" / "bin" / "noctuary"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setattr(nightly.sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    usual = resolve_site(str(tmp_path / "memory.db"), environ={"XDG_DATA_HOME": f"{tmp_path}/data"})
    assert nightly.how_to_ask(usual) == (f"'{program}'", usual.paths.root.name)
    monkeypatch.setenv("PATH", str(program.parent))
    assert nightly.how_to_ask(usual)[0] == "noctuary"
    moved = resolve_site(environ={"NOCTUARY_HOME": str(tmp_path / "my home")})
    assert nightly.how_to_ask(moved)[1] == f"'{moved.paths.root}'"
    other = tmp_path / "bin" / "noctuary"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o700)
    monkeypatch.setenv("PATH", str(other.parent))
    assert nightly.how_to_ask(usual)[0] == f"'{program}'", "another installation is first"


def test_a_home_that_leads_nowhere_is_said_so() -> None:
    with pytest.raises(StoreError, match="home directory"):
        resolve_site(environ={"NOCTUARY_HOME": "~nobody-of-this-name/x"})
