"""What a recall does when its log cannot be written. Real locks, limits and permissions."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.sqlite import WAIT_AT_MOST_S
from noctuary.recall.api import recall
from noctuary.recall.result import RecallResult
from tests.support.store import Store, household, new_store

NOBODY = 65534


def fault(result: RecallResult) -> str:
    assert result.memories[0].id == 101
    (warning,) = (w for w in result.warnings if w.code == "access_log")
    return warning.message


def test_a_locked_log_is_a_warning_and_does_not_stall(plain_store: Store) -> None:
    recall("spare key")
    with closing(sqlite3.connect(plain_store.paths.access_log)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.perf_counter()
        assert "locked" in fault(recall("spare key"))
        assert time.perf_counter() - started < WAIT_AT_MOST_S + 1.0
        other.rollback()
    result = recall("spare key")
    assert "access_log" not in [w.code for w in result.warnings]
    with closing(sqlite3.connect(plain_store.paths.access_log)) as log:
        ranks = [row[0] for row in log.execute("SELECT rank FROM retrievals ORDER BY position")]
    # What the lock kept out has landed with the next.
    assert ranks == [*range(1, len(result.memories) + 1)] * 3


def test_a_locked_new_log_is_a_warning(plain_store: Store) -> None:
    with closing(sqlite3.connect(plain_store.paths.access_log)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "locked" in fault(recall("spare key"))
        other.rollback()


def test_a_damaged_log_is_a_warning(plain_store: Store) -> None:
    plain_store.paths.access_log.write_bytes(b"this is no database, however long it is" * 100)
    assert "not a database" in fault(recall("spare key"))


def test_a_log_without_its_table_is_a_warning(plain_store: Store) -> None:
    recall("spare key")
    with closing(sqlite3.connect(plain_store.paths.access_log)) as other, other:
        other.execute("DROP TABLE retrievals")
    assert "no such table" in fault(recall("spare key"))


def test_a_directory_in_the_log_s_place_is_a_warning(plain_store: Store) -> None:
    plain_store.paths.access_log.mkdir()
    assert "unable to open" in fault(recall("spare key"))


@pytest.fixture
def shared_home() -> Iterator[Path]:
    """A home that another user may read: pytest's own directories are closed to others."""
    home = Path(tempfile.mkdtemp(prefix="noctuary-home-"))
    home.chmod(0o755)
    new_store(home / "house").publish(household())
    for path in home.rglob("*"):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    yield home
    shutil.rmtree(home)


def recall_elsewhere(home: Path, first: str) -> RecallResult | dict[str, object]:
    """Recall in a process of its own after running `first` there; the result as JSON values.

    The snapshot is opened before: another user may not be able to import anything.
    """
    code = f"""
import json, os, resource
from noctuary import recall
recall("spare key", dry_run=True)
{first}
result = recall("spare key")
print(json.dumps(result.to_json()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NOCTUARY_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    return json.loads(done.stdout)


def logged_fault(result: object) -> str:
    assert isinstance(result, dict)
    assert result["memories"][0]["id"] == 101
    (text,) = (w["message"] for w in result["warnings"] if w["code"] == "access_log")
    return text


def test_a_full_disk_is_a_warning(shared_home: Path) -> None:
    """No file of that process may grow beyond a kilobyte: less than SQLite's first page."""
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    assert "not logged" in logged_fault(recall_elsewhere(shared_home, limit))


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_store_is_a_warning(shared_home: Path, exists: bool) -> None:
    if exists:
        assert isinstance(recall_elsewhere(shared_home, ""), dict)
    for directory in (shared_home, shared_home / "house"):
        directory.chmod(0o555)
    log = shared_home / "house" / "access.sqlite"
    if exists:
        log.chmod(0o444)
    become = f"os.setuid({NOBODY}) if os.geteuid() == 0 else None"
    assert "not logged" in logged_fault(recall_elsewhere(shared_home, become))
