"""Reading a database: one state in pages, and what happens when the connection does not last."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noctuary.core.errors import SourceError
from noctuary.sources import postgres as postgres_rows
from noctuary.sources.export import export_corpus
from noctuary.sources.postgres import Limits, Pinned
from tests.support.cutting_proxy import cutting_proxy
from tests.support.databases import (
    MakeDatabase,
    open_database,
    rows_of,
    run_sql,
)
from tests.support.postgres import Cluster

DATE = "2026-03-01 12:00:00+00"
CANARY = "the canary sings at seven"


def test_ids_below_zero_and_pages_of_one(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = database([{"id": i, "content": f"Row {i}."} for i in (-2, 0, 5, 7)])
    for size in (1, 3):
        monkeypatch.setattr(postgres_rows, "PAGE_ROWS", size)
        assert [row.key for row in rows_of(dsn)] == [-2, 0, 5, 7]


def test_pages_are_cut_by_bytes_and_a_huge_row_is_never_fetched(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "MAX_ROW_BYTES", 100)
    monkeypatch.setattr(postgres_rows, "PAGE_BYTES", 150)
    sizes = [60, 60, 60, 500, 90, 10]
    dsn = database([{"content": "x" * size, "category": None} for size in sizes])
    asked: list[int] = []
    read = Pinned.rows

    def count(pinned: Pinned, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
        found = read(pinned, sql, values)
        if "ANY(%(keys)s" in sql:
            # The first row of a page may always be there; the last one starts below the limit.
            asked.append(sum(len(str(row[1])) for row in found[:-1]))
        return found

    monkeypatch.setattr(Pinned, "rows", count)
    with open_database(dsn) as source:
        rows = list(source.rows())
    assert [row.key for row in rows] == [1, 2, 3, 4, 5, 6]
    assert asked == [120, 90], "two pages, each below the limit before its last row"
    (huge,) = [row for row in rows if row.problem is not None]
    assert huge.problem_detail == "row: 500 bytes of text, not fetched"


def test_one_state_is_read_whatever_is_written_meanwhile(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "PAGE_ROWS", 2)
    dsn = database([{"content": f"Row {i}."} for i in range(1, 5)])
    with open_database(dsn) as source:
        rows = source.rows()
        seen = [next(rows), next(rows)]
        run_sql(dsn, "DELETE FROM memories WHERE id = 3")
        run_sql(dsn, "UPDATE memories SET content = 'New.' WHERE id = 4")
        run_sql(dsn, "INSERT INTO memories (content) VALUES ('Five.')")
        seen += rows
        assert [row.fields["content"] for row in seen] == [f"Row {i}." for i in range(1, 5)]
        assert source.count() == 4
        with pytest.raises(SourceError, match="refused a statement"):
            source._pinned.rows("DELETE FROM memories RETURNING id")  # pyright: ignore[reportPrivateUsage]
    assert [row.key for row in rows_of(dsn)] == [1, 2, 4, 5]


def test_a_terminated_connection_is_a_sentence_without_rows(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "PAGE_ROWS", 2)
    dsn = database([{"content": CANARY} for _ in range(5)])
    with open_database(dsn) as source:
        rows = source.rows()
        next(rows)
        run_sql(
            dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'noctuary'",
        )
        with pytest.raises(SourceError, match=r"was lost .*Nothing was published") as lost:
            list(rows)
    assert CANARY not in str(lost.value)


def test_a_connection_that_is_cut_keeps_the_last_export(
    server: Cluster, database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "PAGE_ROWS", 20)
    dsn = database([{"content": f"Row {i}: {'x' * 900}"} for i in range(300)])
    with open_database(dsn) as source:
        export_corpus(source, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    run_sql(dsn, "UPDATE memories SET content = 'new ' || content")
    with (
        cutting_proxy(server.port, after_bytes=150_000) as proxy,
        open_database(server.tcp_dsn("postgres", port=proxy.port)) as source,
        pytest.raises(SourceError, match="was lost"),
    ):
        export_corpus(source, tmp_path)
    assert proxy.passed > 100_000
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with open_database(dsn) as source:
        assert export_corpus(source, tmp_path).exported == 300
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} != before


def test_a_server_that_falls_silent_is_given_up(server: Cluster, database: MakeDatabase) -> None:
    database([{"content": f"Row {i}: {'x' * 900}"} for i in range(300)])
    limits = Limits(statement_ms=200, grace_ms=100)
    with (
        cutting_proxy(server.port, after_bytes=200_000, freeze=True) as proxy,
        open_database(server.tcp_dsn("postgres", port=proxy.port), limits=limits) as source,
        pytest.raises(SourceError, match=r"took longer than 0\.2 s"),
    ):
        list(source.rows())
    assert proxy.passed > 100_000


def test_a_lock_is_waited_for_as_long_as_a_statement_may_take(database: MakeDatabase) -> None:
    dsn = database([{"content": "One."}])
    with psycopg.connect(dsn) as db:
        db.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceError, match=r"took longer than 0\.2 s .*57014"):
            open_database(dsn, limits=Limits(statement_ms=200))


def test_two_threads_may_read_two_sources(database: MakeDatabase) -> None:
    dsn = database([{"content": f"Row {i}."} for i in range(50)])
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(len(rows_of(dsn)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [50] * 4
