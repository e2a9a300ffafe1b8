"""Whole nights over a PostgreSQL database: as over the same rows in a file, and without a loss."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from tests.e2e.byte_scan import find_texts
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, FAILED, Ran, run_night
from tests.e2e.stores import Bench, fingerprint_tree, give_encoder
from tests.support.claude_memory import Row, insert_rows, migrations
from tests.support.cutting_proxy import cutting_proxy
from tests.support.databases import MakeDatabase, run_sql
from tests.support.postgres import PASSWORD, Cluster

QUERY = "duplicate captures of invoices"
VARIABLE = "HOUSE_MEMORIES"
SOURCE = cast("Path", f"env:{VARIABLE}")  # a night's command takes either

_TAKEN = ("id", "content", "category", "tags", "expanded_keywords", "importance", "created_at",
          "updated_at")  # fmt: skip


def rows_of_file(path: Path) -> list[Row]:
    """Return the rows of a claude-memory file as the server would hold them."""
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        found = [dict(row) for row in db.execute("SELECT * FROM memories ORDER BY id")]
    return [
        {**{name: row[name] for name in _TAKEN}, "is_sensitive": bool(row["is_sensitive"])}
        for row in found
    ]


def night(dsn: str, store: Path) -> Ran:
    return run_night(SOURCE, store, extra={VARIABLE: dsn})


@pytest.fixture
def house(
    server: Cluster, database: MakeDatabase, small_night: FirstNight, tmp_path: Path
) -> tuple[Path, str]:
    """A store with an encoder, and a database of the small sample's rows, asked for a password."""
    database(rows_of_file(small_night.bench.source), schema=migrations(vectors="stand-in"))
    store = tmp_path / "store"
    give_encoder(store, small_night.bench)
    return store, server.tcp_dsn("postgres")


def ask(store: Path) -> list[Any]:
    found = Bench(store, store).ask(QUERY)
    return [(memory.id, memory.content) for memory in found.memories]


def test_a_night_over_a_database_is_one_over_the_same_file(
    small_night: FirstNight, house: tuple[Path, str]
) -> None:
    store, dsn = house
    first = night(dsn, store)
    assert first.code == DONE, first.says
    table = Path("work", "corpus", "memories.parquet")
    assert (store / table).read_bytes() == (small_night.bench.store / table).read_bytes()
    assert ask(store) == ask(small_night.bench.store) != []
    source = Bench(store, store).manifest.source
    assert source["kind"] == "claude-memory-postgres"
    assert PASSWORD not in str(source)
    # Nowhere: tables, Dagster's event log, what the command said.
    assert find_texts(store, [PASSWORD], skip=[store / "encoders"]) == []
    assert PASSWORD not in first.says
    second = night(dsn, store)
    assert second.code == DONE
    assert second.report["status"] == "unchanged"


@pytest.mark.slow
def test_a_night_that_loses_the_connection_publishes_nothing_and_the_next_goes_on(
    server: Cluster, house: tuple[Path, str]
) -> None:
    store, dsn = house
    assert night(dsn, store).code == DONE
    serving, answers = Bench(store, store).serving, ask(store)
    snapshot = fingerprint_tree(store / "snapshots" / serving)
    added: list[Row] = [
        {"content": f"{QUERY}: case {i} {'of the accounts' * 60}"} for i in range(300)
    ]
    with psycopg.connect(dsn) as db:
        db.execute("SELECT setval('memories_id_seq', (SELECT max(id) FROM memories))")
    insert_rows(dsn, "memories", added)
    with cutting_proxy(server.port, after_bytes=120_000) as proxy:
        cut = night(server.tcp_dsn("postgres", port=proxy.port), store)
    assert cut.code == FAILED
    assert "was lost" in cut.report["message"]
    assert "Traceback" not in cut.says
    assert PASSWORD not in cut.says
    assert "of the accounts" not in cut.says
    assert Bench(store, store).serving == serving
    assert (fingerprint_tree(store / "snapshots" / serving), ask(store)) == (snapshot, answers)
    run_sql(dsn, "DELETE FROM memories WHERE content LIKE '%%case 7 %%'")
    healed = night(dsn, store)
    assert healed.code == DONE, healed.says
    contents = [content for _, content in ask(store)]
    assert any("of the accounts" in content for content in contents)


def test_a_database_that_is_not_there_is_one_sentence(tmp_path: Path, server: Cluster) -> None:
    ran = night(server.tcp_dsn("postgres", port=1), tmp_path / "store")
    assert ran.code == FAILED
    assert "cannot be reached" in ran.says
    assert PASSWORD not in ran.says
    assert "Traceback" not in ran.says
    unset = run_night(SOURCE, tmp_path / "store")
    assert unset.code == FAILED
    assert VARIABLE in unset.says
