from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.usage.access_log import append_retrievals
from noctuary.usage.statistics import Fold, Folded, fold_access_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.sqlite"


def write(path: Path, *rows: tuple[str, int]) -> None:
    """Append retrievals of single memories at given times."""
    for memory_id, moment_us in rows:
        assert append_retrievals(path, snapshot_id="s", memory_ids=[memory_id]) is None
        with closing(sqlite3.connect(path)) as log, log:
            log.execute(
                "UPDATE retrievals SET retrieved_at_us = ? "
                "WHERE position = (SELECT MAX(position) FROM retrievals)",
                [moment_us],
            )


def test_no_log_is_an_empty_one(path: Path) -> None:
    assert fold_access_log(Folded(), path, {"1"}) == Fold(Folded(), 0, {}, 0, None)
    assert not path.exists()


def test_retrievals_are_counted_with_the_latest_time(path: Path) -> None:
    write(path, ("1", 50), ("2", 60), ("1", 40), ("1", 45))
    statistics = fold_access_log(Folded(), path, ["1", "2", "3"])
    assert statistics.by_memory == {"1": (3, 50), "2": (1, 60)}
    assert (statistics.rows, statistics.orphaned, statistics.folded.mark.position) == (4, 0, 4)


def test_memories_that_are_gone_are_counted_apart(path: Path) -> None:
    write(path, ("1", 1), ("gone", 2), ("gone", 3))
    statistics = fold_access_log(Folded(), path, {"1"})
    assert (statistics.by_memory, statistics.orphaned) == ({"1": (1, 1)}, 2)


def test_folding_changes_nothing_and_gives_the_same_twice(path: Path) -> None:
    write(path, ("b", 1), ("a", 2))
    before = path.read_bytes()
    first = fold_access_log(Folded(), path, {"a", "b"})
    assert fold_access_log(Folded(), path, {"b", "a"}) == first
    assert list(first.by_memory) == ["a", "b"]
    assert path.read_bytes() == before


def test_the_log_may_be_written_meanwhile(path: Path) -> None:
    write(path, ("1", 1))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO retrievals (memory_id, rank, snapshot_id, retrieved_at_us) "
                      "VALUES ('1', 1, 's', 9)")  # fmt: skip
        assert fold_access_log(Folded(), path, {"1"}).by_memory == {"1": (1, 1)}
        other.commit()
        assert fold_access_log(Folded(), path, {"1"}).by_memory == {"1": (2, 9)}


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\x00" * 4080])
def test_a_damaged_log_counts_nothing_and_is_reported(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    statistics = fold_access_log(Folded(), path, {"1"})
    assert statistics[:4] == (Folded(), 0, {}, 0)
    assert statistics.fault is not None
    assert path.name in statistics.fault
    assert path.read_bytes() == content


def test_a_log_damaged_in_the_middle_is_reported(path: Path) -> None:
    assert (
        append_retrievals(path, snapshot_id="s", memory_ids=[str(n) for n in range(2000)]) is None
    )
    with closing(sqlite3.connect(path)) as log:
        log.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xa5" * 4096 * 3
    path.write_bytes(content)
    assert fold_access_log(Folded(), path, {"1"}).fault is not None
