from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.usage.query_log import (
    KEPT_AT_MOST,
    PRUNED_EVERY,
    RETENTION_DAYS,
    TEXT_CHARS,
    LoggedQuery,
    append_query,
    similar_queries,
)

DAY_US = 86_400_000_000
NOW_US = 1_800_000_000_000_000
Vector = NDArray[np.float32]


def at(cosine: float) -> Vector:
    return np.array([cosine, np.sqrt(1 - cosine**2), 0.0], dtype=np.float32)


TODAY = at(1.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "queries.sqlite"


def append(log: Path, text: str, **fields: Any) -> str | None:
    values: dict[str, Any] = {"vector": at(0.9), "memory_ids": ("7",), "asked_us": NOW_US}
    fields = {**values, "encoder_digest": "e1", "user": None, **fields}
    return append_query(log, text=text, **fields)


def put(log: Path, text: str, cosine: float = 0.9, **fields: Any) -> None:
    assert append(log, text, **{"vector": at(cosine), **fields}) is None


def similar(log: Path, **asked: Any) -> tuple[list[LoggedQuery], str | None]:
    values: dict[str, Any] = {"encoder_digest": "e1", "since_us": 0, "limit": 100, "user": None}
    asked = {**values, "exclude_text": "", **asked}
    return similar_queries(log, TODAY, **asked)


def look(log: Path, **asked: Any) -> list[LoggedQuery]:
    found, fault = similar(log, **asked)
    assert fault is None
    return found


def texts(found: list[LoggedQuery]) -> list[str]:
    return [text for text, *_ in found]


def test_most_similar_first_with_what_they_found(log: Path) -> None:
    assert look(log) == []
    log.touch()
    assert look(log) == []
    put(log, "far", 0.2, memory_ids=("1",))
    put(log, "near", 0.95, memory_ids=("3", "ä"), asked_us=NOW_US - 5)
    put(log, "opposite", -1.0)
    assert texts(look(log)) == ["near", "far", "opposite"]
    put(log, "far too", 0.2, memory_ids=("1",))
    put(log, "broken", vector=np.full(3, np.nan, dtype=np.float32))
    found = look(log)
    assert texts(found) == ["near", "far too", "far", "broken", "opposite"]
    assert found[0][1:] == (NOW_US - 5, pytest.approx(0.95), ("3", "ä"))
    assert [cosine for _, _, cosine, _ in found[3:]] == [-1.0, pytest.approx(-1.0)]
    assert texts(look(log, limit=1)) == ["near"]
    assert look(log, limit=0) == []


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        ({}, ["old", "plain"]),
        ({"user": "ana"}, ["of ana"]),
        ({"user": "ben"}, []),
        ({"encoder_digest": "e2"}, ["other model"]),
        ({"since_us": NOW_US - 9}, ["plain"]),
        ({"since_us": NOW_US + 1}, []),
    ],
)
def test_only_what_the_asker_may_compare_is_compared(
    log: Path, asked: dict[str, Any], seen: list[str]
) -> None:
    put(log, "plain")
    put(log, "of ana", user="ana")
    put(log, "other model", encoder_digest="e2")
    put(log, "other dimension", vector=np.ones(5, dtype=np.float32))
    put(log, "old", asked_us=NOW_US - 10)
    assert texts(look(log, **asked)) == seen


def test_the_same_wording_is_left_out_and_the_newest_of_one_wording_counts(log: Path) -> None:
    put(log, "The  Trip", memory_ids=("1",))
    put(log, "papers", memory_ids=("2",))
    put(log, "Papers ", 0.8, memory_ids=("3",))
    found = look(log, exclude_text="the trip")
    assert [(text, ids) for text, _, _, ids in found] == [("Papers ", ("3",))]


def test_what_somebody_deletes_is_forgotten_by_the_same_process(log: Path) -> None:
    put(log, "secret plan")
    put(log, "harmless")
    assert len(look(log)) == 2
    with closing(sqlite3.connect(log)) as other:
        other.execute("DELETE FROM queries WHERE text = 'secret plan'")
        other.commit()
    assert texts(look(log)) == ["harmless"]
    for path in log.parent.iterdir():
        path.unlink()
    put(log, "after")
    assert texts(look(log)) == ["after"], "a log made anew at the same place is another log"


def test_old_queries_are_forgotten_now_and_then(log: Path) -> None:
    put(log, "ancient", asked_us=NOW_US - (RETENTION_DAYS + 1) * DAY_US)
    for number in range(PRUNED_EVERY - 2):
        put(log, f"query {number}")
    assert "ancient" in texts(look(log))
    put(log, "one more")
    left = texts(look(log))
    assert "ancient" not in left
    assert len(left) == PRUNED_EVERY - 1
    assert not any(b"ancient" in path.read_bytes() for path in log.parent.iterdir())


def fill(log: Path, count: int) -> None:
    put(log, "query 1")
    with closing(sqlite3.connect(log)) as raw:
        numbers = [(n, f"query {n}") for n in range(2, count + 1)]
        raw.executemany(
            "INSERT INTO queries SELECT ?, ?, vector, memory_ids, asked_us, encoder, user "
            "FROM queries WHERE number = 1",
            numbers,
        )
        raw.commit()


def test_only_the_newest_are_kept_and_compared(log: Path) -> None:
    count = KEPT_AT_MOST + PRUNED_EVERY - KEPT_AT_MOST % PRUNED_EVERY - 1
    fill(log, count)
    seen = texts(look(log, limit=count))
    assert len(seen) == KEPT_AT_MOST
    assert seen[0] == f"query {count}"
    put(log, "the last")
    with closing(sqlite3.connect(log)) as raw:
        assert raw.execute("SELECT count(*) FROM queries").fetchone()[0] == KEPT_AT_MOST
    assert texts(look(log, limit=1)) == ["the last"]


def test_long_and_broken_texts_are_kept_as_well_as_can_be(log: Path) -> None:
    put(log, "x" * (TEXT_CHARS + 1), user="\ud800")
    put(log, "half \ud83d a pair \0", memory_ids=("\udfff",), user="\ud800")
    found = look(log, user="\ud800")
    assert sorted(map(len, texts(found))) == [15, TEXT_CHARS]
    assert look(log, user="\ud800", exclude_text="x" * (TEXT_CHARS + 50)) == [
        f for f in found if not f[0].startswith("x")
    ]


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"\xff" * 4096, b"not a database"])
def test_a_damaged_file_is_a_fault_and_nothing_else(log: Path, content: bytes) -> None:
    log.write_bytes(content)
    found, fault = similar(log)
    assert found == []
    assert fault is not None
    assert fault.startswith("past queries cannot be read:")
    fault = append(log, "q")
    assert fault is not None
    assert fault.startswith("this query was not logged")
    assert log.read_bytes() == content


def test_damaged_rows_are_a_fault(log: Path) -> None:
    put(log, "q")
    with closing(sqlite3.connect(log)) as raw:
        raw.execute("UPDATE queries SET memory_ids = '[1'")
        raw.commit()
    assert similar(log)[1] is not None


def test_a_locked_log_loses_the_query_and_still_answers(log: Path) -> None:
    put(log, "q")
    with closing(sqlite3.connect(log, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        fault = append(log, "x")
        assert fault is not None
        assert "locked" in fault
        assert texts(look(log)) == ["q"]
        holder.execute("ROLLBACK")
    put(log, "y", 0.1)
    assert texts(look(log)) == ["q", "y"]


def test_threads_of_one_process_share_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noctuary.core.sqlite.WAIT_AT_MOST_S", 30.0)
    put(log, "start")
    gate = threading.Barrier(8)

    def work(number: int) -> int:
        gate.wait()
        for step in range(5):
            put(log, f"{number}/{step}")
            assert f"{number}/{step}" in texts(look(log))
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, range(8))) == list(range(8))
    assert len(look(log)) == 41
