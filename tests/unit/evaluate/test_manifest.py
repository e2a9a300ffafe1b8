from __future__ import annotations

import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from noctuary.evaluate import run as manifest
from noctuary.evaluate.run import describe_code, describe_run, library_versions


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    settings = (*identity, "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(directory), *settings, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A tracked file in a repository of its own."""
    path = tmp_path / "module.py"
    path.write_text("x = 1\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "module.py")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return path


def test_the_commit_is_that_of_the_checkout_and_a_change_makes_it_dirty(module: Path) -> None:
    commit = git(module.parent, "rev-parse", "HEAD")
    assert describe_code(module) == {"commit": commit, "dirty": False}
    module.write_text("x = 2\n", encoding="utf-8")
    assert describe_code(module) == {"commit": commit, "dirty": True}


def test_an_untracked_neighbour_is_not_dirt(module: Path) -> None:
    (module.parent / "notes.txt").write_text("", encoding="utf-8")
    assert describe_code(module)["dirty"] is False


def test_a_copy_installed_inside_a_foreign_repository_has_no_commit(module: Path) -> None:
    installed = module.parent / "venv" / "module.py"
    installed.parent.mkdir()
    installed.write_text("", encoding="utf-8")
    assert describe_code(installed) == {"commit": None, "dirty": None}


def test_without_git_there_is_no_commit(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert describe_code(module) == {"commit": None, "dirty": None}


def test_versions_are_those_installed_and_absent_libraries_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest, "_LIBRARIES", ("numpy", "no-such-library"))
    found = library_versions()
    assert found["numpy"] == np.__version__
    assert found["python"] == platform.python_version()
    assert "no-such-library" not in found


def test_a_manifest_holds_seed_digests_moment_and_further_facts_as_plain_json() -> None:
    found = describe_run(7, "c0", None, queries_digest="d1")
    assert json.loads(json.dumps(found)) == found
    assert (found["seed"], found["corpus_digest"], found["encoder_digest"]) == (7, "c0", None)
    assert found["queries_digest"] == "d1"
    # Every key is listed: none of them holds a path, a host or a user.
    assert set(found) == {
        *("commit", "dirty", "seed", "corpus_digest", "encoder_digest", "measured_at"),
        *("machine", "libraries", "queries_digest"),
    }


def test_the_moment_is_now() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    measured = datetime.fromisoformat(str(describe_run(1, None, None)["measured_at"]))
    assert before <= measured <= datetime.now(UTC)
