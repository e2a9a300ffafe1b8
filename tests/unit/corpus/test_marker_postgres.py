"""The change marker of a real PostgreSQL database: every kind of change moves it, looking never."""

from __future__ import annotations

import time

import pytest

from noctuary.core.settings import Settings
from noctuary.sources.source import read_marker
from tests.support.databases import MakeDatabase, name_database, rows_of, run_sql

SHARE = (
    "INSERT INTO memory_shares (memory_id, owner_id, shared_with) SELECT id, 'a', 'b' FROM memories"
)

WAIT_S = 15.0
"""PostgreSQL tells its counters some time after a commit."""


def moved_from(dsn: str, before: str) -> bool:
    """Say whether the marker becomes another one within the time that counters take."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if read_marker(name_database(dsn), Settings()) != before:
            return True
        time.sleep(0.1)
    return False


def settled(dsn: str) -> str:
    """Return the marker once it stays the same."""
    last = ""
    while (found := read_marker(name_database(dsn), Settings())) != last:
        last = found
        time.sleep(0.3)
    return last


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO memories (content) VALUES ('the door')",
        "UPDATE memories SET content = 'the kee', updated_at = now() + interval '1 s'",
        "UPDATE memories SET deleted_at = now(), updated_at = now() + interval '1 s'",
        "DELETE FROM memories",
        SHARE,
    ],
)
def test_every_change_of_a_database_moves_it(database: MakeDatabase, change: str) -> None:
    dsn = database()
    run_sql(dsn, "INSERT INTO memories (content) VALUES ('the key')")
    before = settled(dsn)
    run_sql(dsn, change)
    assert moved_from(dsn, before)


def test_reading_a_database_does_not_move_it(database: MakeDatabase) -> None:
    dsn = database()
    run_sql(dsn, "INSERT INTO memories (content) VALUES ('the key')")
    before = settled(dsn)
    assert len(rows_of(dsn)) == 1
    time.sleep(0.5)
    assert read_marker(name_database(dsn), Settings()) == before
