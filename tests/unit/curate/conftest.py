from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.support.claude_memory import POSTGRES_SCHEMA, Row, make_sqlite
from tests.support.postgres import Cluster, cluster

MakeSqlite = Callable[..., Path]
MakePostgres = Callable[..., str]


@pytest.fixture
def source(tmp_path: Path) -> MakeSqlite:
    """Make a claude-memory cache from rows."""

    def make(*rows: Row, name: str = "memory.db", extra_columns: tuple[str, ...] = ()) -> Path:
        return make_sqlite(tmp_path / name, rows, extra_columns=extra_columns)

    return make


@pytest.fixture(scope="session")
def server() -> Iterator[Cluster]:
    """A real PostgreSQL server."""
    running = cluster()
    try:
        started = running.__enter__()
    except RuntimeError as error:
        pytest.skip(f"needs a PostgreSQL server: {error}")
    yield started
    running.__exit__(None, None, None)


@pytest.fixture
def database(server: Cluster) -> MakePostgres:
    """Make a claude-memory database from rows; return its address."""

    def make(*rows: Row) -> str:
        dsn = server.dsn("postgres")
        with psycopg.connect(dsn, autocommit=True) as db:
            # Quicker than a database of its own by a second.
            db.execute("DROP SCHEMA public CASCADE")
            db.execute("CREATE SCHEMA public")
            db.execute(POSTGRES_SCHEMA)
            for row in rows:
                columns = sql.SQL(", ").join(map(sql.Identifier, row))
                marks = sql.SQL(", ").join(sql.Placeholder() * len(row))
                statement = sql.SQL("INSERT INTO memories ({}) VALUES ({})").format(columns, marks)
                db.execute(statement, tuple(row.values()))
        return dsn

    return make
