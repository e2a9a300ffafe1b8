"""Claude-memory databases of a test's server: opening them as noctuary does, and changing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from noctuary.core.settings import SourceSettings
from noctuary.core.store import DatabaseName, name_source
from noctuary.sources.postgres import Limits, PostgresSource
from noctuary.sources.source import RawRow

MakeDatabase = Callable[..., str]


def name_database(dsn: str) -> DatabaseName:
    """Return an address, or `env:NAME`, as what a source is called."""
    named = name_source(dsn)
    assert isinstance(named, DatabaseName)
    return named


def open_database(dsn: str, user: str = "", limits: Limits | None = None) -> PostgresSource:
    """Open a database as a source."""
    return PostgresSource(name_database(dsn), SourceSettings(user=user), limits or Limits())


def rows_of(dsn: str, user: str = "") -> list[RawRow]:
    """Return every row that a source gives."""
    with open_database(dsn, user) as source:
        return list(source.rows())


def run_sql(dsn: str, statement: Any, *values: object) -> None:
    """Run a statement as the database's owner, at once."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(statement, values or None)
