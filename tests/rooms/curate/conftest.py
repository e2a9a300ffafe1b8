from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.claude_memory import POSTGRES_SCHEMA, Row, fill_database, make_sqlite
from tests.support.postgres import Cluster

MakeSqlite = Callable[..., Path]
MakePostgres = Callable[..., str]


@pytest.fixture
def source(tmp_path: Path) -> MakeSqlite:
    """Make a claude-memory cache from rows."""

    def make(*rows: Row, name: str = "memory.db", extra_columns: tuple[str, ...] = ()) -> Path:
        return make_sqlite(tmp_path / name, rows, extra_columns=extra_columns)

    return make


@pytest.fixture
def database(server: Cluster) -> MakePostgres:
    """Make a claude-memory database from rows; return its address."""

    def make(*rows: Row) -> str:
        return fill_database(server.dsn("postgres"), rows, schema=POSTGRES_SCHEMA)

    return make
