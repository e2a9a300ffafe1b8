from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.sources.echo import RETENTION_DAYS, KnownInjections, prune_injections, read_injections
from tests.support.injections import (
    DAY_US,
    INJECTED_US,
    guard_of,
    memory,
    put_in_prompt,
    row,
)

KEY = "The spare key hangs in the pantry, left of the door."
TRAM = "Line 4 leaves Harbour Square every 12 minutes until midnight."
EXPIRES_US = INJECTED_US + RETENTION_DAYS * DAY_US


@pytest.fixture
def path(tmp_path: Path) -> Path:
    put_in_prompt(tmp_path, memory(17, KEY))
    put_in_prompt(tmp_path, memory(18, TRAM))
    return tmp_path / "injected.sqlite"


def test_what_is_old_and_unused_is_forgotten(path: Path) -> None:
    guard = guard_of(path.parent)
    assert guard.judge(row(KEY)).text is None
    assert prune_injections(path, used=guard.used, now_us=EXPIRES_US) == (0, None)
    assert prune_injections(path, used=guard.used, now_us=EXPIRES_US + 1) == (1, None)
    later = guard_of(path.parent)
    assert later.judge(row(KEY)).text is None
    assert later.judge(row(TRAM)).text == TRAM


def test_no_record_is_an_empty_one(tmp_path: Path) -> None:
    gone = tmp_path / "injected.sqlite"
    assert read_injections(gone) == KnownInjections()
    assert prune_injections(gone, used=(), now_us=EXPIRES_US) == (0, None)
    assert not gone.exists()


def test_a_damaged_record_is_an_empty_one_with_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "injected.sqlite"
    path.write_bytes(b"x" * 5000)
    known = read_injections(path)
    assert not known.occurrences
    assert known.fault is not None
    assert "injected.sqlite cannot be read" in known.fault
    deleted, fault = prune_injections(path, used=(), now_us=EXPIRES_US)
    assert deleted == 0
    assert fault is not None


def test_a_record_of_a_newer_version_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as record:
        record.execute("PRAGMA user_version=9")
    fault = read_injections(path).fault
    assert fault is not None
    assert "format 9, expected 1" in fault
    deleted, fault = prune_injections(path, used=(), now_us=EXPIRES_US * 2)
    assert deleted == 0
    assert fault is not None
    assert "format 9, expected 1" in fault


def test_a_locked_record_is_pruned_another_night(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.core.sqlite.WAIT_S", 0.01)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        deleted, fault = prune_injections(path, used=(), now_us=EXPIRES_US * 2)
        assert deleted == 0
        assert fault is not None
        assert "locked" in fault
    assert prune_injections(path, used=(), now_us=EXPIRES_US * 2) == (2, None)
