from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from mnemon.usage.access_log import append_retrievals
from mnemon.usage.statistics import fold_access_log

PROCESSES, APPENDS, IDS = 8, 100, 3

WRITER = f"""
import sys
from pathlib import Path
from mnemon.usage.access_log import append_retrievals
path, name = Path(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
lost = 0
for number in range({APPENDS}):
    ids = [f"{{name}}-{{number}}-{{i}}" for i in range({IDS})]
    fault = append_retrievals(path, snapshot_id=name, memory_ids=ids)
    if fault is not None:
        assert "not logged" in fault
        lost += 1
print(lost)
"""


def rows_of(path: Path) -> list[tuple[str, int, str, int]]:
    with closing(sqlite3.connect(path)) as log:
        return log.execute(
            "SELECT memory_id, rank, snapshot_id, retrieved_at_us FROM retrievals ORDER BY position"
        ).fetchall()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.sqlite"


def test_one_row_per_memory_with_its_rank_and_time(path: Path) -> None:
    before = time.time_ns() // 1000
    assert append_retrievals(path, snapshot_id="s1", memory_ids=["7", "a", "7"]) is None
    after = time.time_ns() // 1000
    found = rows_of(path)
    assert [row[:3] for row in found] == [("7", 1, "s1"), ("a", 2, "s1"), ("7", 3, "s1")]
    assert all(before <= row[3] <= after for row in found)


def test_later_retrievals_are_added(path: Path) -> None:
    for snapshot in ("s1", "s2"):
        assert append_retrievals(path, snapshot_id=snapshot, memory_ids=["1"]) is None
    assert [row[2] for row in rows_of(path)] == ["s1", "s2"]


def test_nothing_is_nothing(path: Path) -> None:
    assert append_retrievals(path, snapshot_id="s1", memory_ids=[]) is None
    assert rows_of(path) == []


def test_no_text_of_a_query_or_a_memory_has_a_place_in_it(path: Path) -> None:
    append_retrievals(path, snapshot_id="s1", memory_ids=["1"])
    with closing(sqlite3.connect(path)) as log:
        columns = [row[1] for row in log.execute("PRAGMA table_info(retrievals)")]
    assert columns == ["position", "memory_id", "rank", "snapshot_id", "retrieved_at_us"]


def test_a_fault_is_returned_and_never_raised(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"x" * 5000)
    for path in (tmp_path / "no" / "folder.sqlite", tmp_path, damaged, Path("/dev/full")):
        fault = append_retrievals(path, snapshot_id="s1", memory_ids=["1"])
        assert fault is not None
        assert fault.startswith("this retrieval was not logged: ")


def test_a_locked_log_gives_up_soon(path: Path) -> None:
    append_retrievals(path, snapshot_id="s1", memory_ids=["1"])
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.perf_counter()
        fault = append_retrievals(path, snapshot_id="s1", memory_ids=["2"])
        assert time.perf_counter() - started < 3.0
        assert fault is not None
        other.rollback()
    assert len(rows_of(path)) == 1


def test_eight_processes_lose_nothing_that_they_do_not_report(path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"w{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(PROCESSES)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    lost = [int(writer.communicate()[0]) for writer in writers]
    assert all(writer.returncode == 0 for writer in writers)
    found = rows_of(path)
    assert len(found) == (PROCESSES * APPENDS - sum(lost)) * IDS
    # Every append is whole and in order, whatever the others did meanwhile.
    by_append: dict[str, list[int]] = {}
    for memory_id, rank, _, _ in found:
        by_append.setdefault(memory_id.rpartition("-")[0], []).append(rank)
    assert all(ranks == [1, 2, 3] for ranks in by_append.values())
    statistics = fold_access_log(path, {row[0] for row in found})
    assert sum(count for count, _ in statistics.by_memory.values()) == len(found)
