from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from noctuary.core.sqlite import WAIT_AT_MOST_S, close_logs, filling
from noctuary.usage.access_log import append_retrievals
from tests.support.usage_file import NOW_US, rows, write

# What a busy machine may add to a wait that is bounded.
SLACK_S = 2.0

OLD_LOG = """
CREATE TABLE retrievals (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id TEXT NOT NULL,
    rank INTEGER NOT NULL,
    snapshot_id TEXT NOT NULL,
    retrieved_at_us INTEGER NOT NULL
);
INSERT INTO retrievals VALUES (7, 'old', 1, 's0', 5);
PRAGMA user_version=1;
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
    assert append_retrievals(path, snapshot_id="s1", memory_ids=[]) is None
    assert rows_of(path) == []
    before = time.time_ns() // 1000
    assert append_retrievals(path, snapshot_id="s1", memory_ids=["7", "a", "7"]) is None
    after = time.time_ns() // 1000
    found = rows_of(path)
    assert [row[:3] for row in found] == [("7", 1, "s1"), ("a", 2, "s1"), ("7", 3, "s1")]
    assert all(before <= row[3] <= after for row in found)
    many = [str(n) for n in range(5_000)]  # more than may wait
    assert append_retrievals(path, snapshot_id="s2", memory_ids=many) is None
    assert [row[:3] for row in rows_of(path)[3:]] == [
        (memory_id, rank, "s2") for rank, memory_id in enumerate(many, start=1)
    ]


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


@contextmanager
def held(path: Path) -> Generator[None]:
    """Hold the write lock of a log for the block."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.rollback()


def names_of(path: Path) -> list[str]:
    return [row[0] for row in rows_of(path)]


def is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as log:
        return log.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def say(path: Path, *ids: str) -> str | None:
    return append_retrievals(path, snapshot_id="s1", memory_ids=ids)


def timed(path: Path, *ids: str) -> tuple[str, float]:
    started = time.perf_counter()
    fault = say(path, *ids)
    assert fault is not None
    return fault, time.perf_counter() - started


def test_a_locked_log_gives_up_at_the_bound_and_then_sooner(path: Path) -> None:
    say(path, "1")
    with held(path):
        fault, elapsed = timed(path, "2", "3")
        assert "database is locked (2 rows wait for the next)" in fault
        assert WAIT_AT_MOST_S <= elapsed < WAIT_AT_MOST_S + SLACK_S
        began = time.perf_counter()
        for _ in range(4):
            timed(path, "4")
        assert time.perf_counter() - began < 4 * WAIT_AT_MOST_S


def test_a_short_lock_is_waited_for(path: Path) -> None:
    say(path, "1")
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.03, other.rollback)
        release.start()
        assert say(path, "2") is None
        release.join()
    assert names_of(path) == ["1", "2"]


def test_rows_of_a_failed_append_land_with_the_next_in_order_with_their_own_time(
    path: Path,
) -> None:
    say(path, "1")
    with held(path):
        say(path, "2", "3")
        between = time.time_ns() // 1000
        say(path, "4")
    assert say(path, "5") is None
    found = rows_of(path)
    assert [row[:2] for row in found] == [("1", 1), ("2", 1), ("3", 2), ("4", 1), ("5", 1)]
    assert found[2][3] < between < found[3][3]


def test_what_waits_is_bounded_and_what_was_dropped_is_counted(path: Path) -> None:
    say(path, "first")
    batch = [str(n) for n in range(500)]
    with held(path):
        for _ in range(4):
            say(path, *batch)
        fault = say(path, *batch)
        assert fault is not None
        assert "(2000 rows wait for the next, 500 older dropped)" in fault
    assert say(path, "last") is None
    # The last one pushes out the oldest answer as a whole: half an answer would be a wrong one.
    assert names_of(path) == ["first", *batch * 3, "last"]


def test_an_id_that_no_file_can_hold_is_a_fault_of_its_own_only(path: Path) -> None:
    fault = say(path, "good", "bad \ud800")
    assert fault is not None
    assert fault.startswith("this retrieval was not logged: ")
    assert say(path, "next") is None
    assert names_of(path) == ["next"]


def test_a_log_of_the_version_before_is_gone_on_with(path: Path) -> None:
    with closing(sqlite3.connect(path)) as log:
        log.execute("PRAGMA journal_mode=WAL")
        log.executescript(OLD_LOG)
    assert say(path, "new") is None
    with closing(sqlite3.connect(path)) as log:
        found = log.execute("SELECT position, memory_id FROM retrievals").fetchall()
    assert found == [(7, "old"), (8, "new")]


def test_a_log_that_a_later_version_took_over_while_open_is_left_alone(path: Path) -> None:
    say(path, "1")
    with closing(sqlite3.connect(path)) as log:
        log.execute("PRAGMA user_version=2")
    fault = say(path, "2")
    assert fault is not None
    assert "has format 2, expected 1: update noctuary" in fault
    assert names_of(path) == ["1"]


@pytest.mark.parametrize("with_side_files", [True, False])
def test_a_log_deleted_while_open_starts_anew(path: Path, with_side_files: bool) -> None:
    say(path, "1")
    path.unlink()
    if with_side_files:
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink()
    assert say(path, "2") is None
    assert say(path, "3") is None
    assert names_of(path) == ["2", "3"]
    assert is_sound(path)


def test_a_log_replaced_while_open_is_the_one_that_is_written(path: Path) -> None:
    say(path, "1")
    backup = path.with_name("backup")
    with closing(sqlite3.connect(path)) as log, closing(sqlite3.connect(backup)) as copy:
        log.backup(copy)
    say(path, "lost with the replaced file")
    backup.replace(path)
    assert say(path, "2") is None
    assert names_of(path) == ["1", "2"]
    close_logs()
    assert names_of(path) == ["1", "2"]
    assert is_sound(path)


def test_a_log_damaged_while_open_is_a_fault_until_it_is_gone(path: Path) -> None:
    say(path, "1")
    close_logs()
    path.write_bytes(b"no database" * 1000)
    fault = say(path, "2")
    assert fault is not None
    assert "not a database" in fault
    path.unlink()
    assert say(path, "3") is None
    assert names_of(path) == ["2", "3"]


def test_a_fault_of_one_store_is_none_of_another(tmp_path: Path) -> None:
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    say(one, "1")
    with held(one):
        assert say(one, "2") is not None
        assert say(other, "3") is None
    assert say(one, "4") is None
    assert (names_of(one), names_of(other)) == (["1", "2", "4"], ["3"])


def test_closing_checkpoints_and_the_next_append_opens_again(path: Path) -> None:
    wal = path.with_name(path.name + "-wal")
    say(path, "1")
    assert wal.exists()
    close_logs()
    assert not wal.exists()
    say(path, "2")
    assert names_of(path) == ["1", "2"]


def test_processes_that_end_without_closing_it_leave_a_short_write_ahead_log(path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from noctuary.usage.access_log import append_retrievals
for number in range(60):
    append_retrievals(Path(sys.argv[1]), snapshot_id="s", memory_ids=[str(number)] * 9)
os._exit(0)
"""
    for _ in range(4):
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
        assert path.with_name(f"{path.name}-wal").stat().st_size < 300_000
    assert len(rows_of(path)) == 4 * 60 * 9


def test_naming_the_writer_loads_no_numpy_and_registers_nothing() -> None:
    code = """
import atexit, os, sys
before = atexit._ncallbacks()
import noctuary.usage.access_log
assert atexit._ncallbacks() == before
assert not {"numpy", "random", "multiprocessing", "concurrent"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


USE = {"1": (9, 3, 4, 50), "2": (5, 5, 2, 70)}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "usage.sqlite"


def score(log: Path, *memory_ids: str) -> None:
    with filling(log) as db:
        db.executemany("INSERT INTO ltp VALUES (?, 1.5, 0.5, 0.4, 7)", [(m,) for m in memory_ids])
        db.execute("INSERT INTO meta VALUES ('ltp_resume_at', 12)")


def test_a_memory_that_is_gone_leaves_every_table_and_every_byte(log: Path) -> None:
    secret = "turned-sensitive-77"
    write(log, {**USE, secret: (2, 2, 1, 5)}, [("1", secret, 3)])
    score(log, "1", secret)
    assert secret.encode() in log.read_bytes()
    write(log, {**USE, secret: (2, 2, 1, 5)}, [("1", secret, 3)], known=USE)
    assert secret.encode() not in log.read_bytes()
    assert rows(log, "SELECT memory_id FROM ltp") == [("1",)]


def test_scores_and_the_place_of_the_scan_are_carried_on(log: Path) -> None:
    write(log, USE)
    score(log, "1", "2")
    write(log, {"1": (10, 4, 5, 60)}, known=USE, as_of_us=NOW_US + 9)
    assert rows(log, "SELECT * FROM ltp") == [(m, 1.5, 0.5, 0.4, 7) for m in ("1", "2")]
    meta = dict(rows(log, "SELECT * FROM meta"))
    assert (meta["ltp_resume_at"], meta["as_of_us"]) == (12, NOW_US + 9)


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\x00" * 4080])
def test_a_damaged_file_is_replaced_and_equal_counts_give_equal_bytes(
    log: Path, content: bytes
) -> None:
    log.write_bytes(content)
    write(log, USE, [("1", "2", 3)])
    assert rows(log, "SELECT memory_id FROM access") == [("1",), ("2",)]
    assert rows(log, "SELECT * FROM ltp") == []
    before = log.read_bytes()
    write(log, USE, [("1", "2", 3)])
    assert log.read_bytes() == before
    assert [p.name for p in log.parent.iterdir()] == [log.name]
    write(log, USE, [("1", "2", 3)], known=["2"])
    assert rows(log, "SELECT * FROM access") == [("2", 5, 5, 2, 70)]
    assert rows(log, "SELECT * FROM co_retrieval") == []


def test_a_file_with_a_damaged_table_gives_what_can_be_read(log: Path) -> None:
    write(log, USE)
    score(log, "1", "2")
    [(page,)] = rows(log, "SELECT rootpage FROM sqlite_master WHERE name = 'ltp'")
    content = bytearray(log.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    log.write_bytes(content)
    write(log, USE)
    assert rows(log, "SELECT * FROM ltp") == []
    assert len(rows(log, "SELECT * FROM access")) == 2
