"""A real PostgreSQL server: what the SQLite tests show, and what only a server has."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noctuary.core.errors import CurationRefusedError, SourceError, SourceFormatError
from noctuary.core.settings import CorpusSettings
from noctuary.curate.apply import Where, apply_proposals, undo
from noctuary.curate.proposals import Proposal
from noctuary.curate.stores import TABLE, PostgresStore, open_writable
from noctuary.sources.postgres import read_address
from noctuary.sources.sqlite import SqliteSource
from tests.rooms.curate.conftest import MakePostgres, MakeSqlite
from tests.support.claude_memory import proposals_for, records_of

TEXT = "The harbour master answers on channel 12."
PARTS = ("Tides (part 1 of 2): high at six.", "Tides (part 2 of 2): low at noon.")
ROWS = (
    {"content": TEXT, "tags": "radio", "importance": 0.7},
    {"content": TEXT, "tags": "harbour", "importance": 0.9},
    {"content": PARTS[0], "importance": 0.1},
    {"content": PARTS[1], "importance": 0.4},
)


def everything(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as db:
        return db.execute("SELECT * FROM memories ORDER BY id").fetchall()


def live(dsn: str) -> list[tuple[int, str, float]]:
    with psycopg.connect(dsn) as db:
        return db.execute(
            "SELECT id, content, importance FROM memories WHERE deleted_at IS NULL ORDER BY id"
        ).fetchall()


def run(dsn: str, statement: Any, *values: object) -> None:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute(statement, values)


@pytest.fixture
def local(source: MakeSqlite, tmp_path: Path) -> tuple[list[Proposal], Where]:
    """What a night on the local cache proposes; ids there are 1 to 4."""
    records = records_of(source(*ROWS), tmp_path / "corpus")
    where = Where(is_own=False, text_of={r.memory_id: r.content for r in records})
    return [p for p in proposals_for(records) if p.action != "NOOP"], where


def opened(dsn: str, timeout_ms: int = 2_000) -> PostgresStore:
    return PostgresStore(read_address(dsn), CorpusSettings(), busy_timeout_ms=timeout_ms)


def test_proposals_of_a_cache_are_written_to_the_server_by_content(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    """Ids 1 to 4 are other rows there."""
    others = [{"content": f"Something else {n}."} for n in range(4)]
    dsn = database(*others, *ROWS)
    before = everything(dsn)
    store = opened(dsn)
    applied = apply_proposals(store, *local)
    assert applied.tombstones == (5, 7, 8)
    assert applied.updated == (6,)
    found = live(dsn)
    assert [row for row in found if row[0] <= 4] == [
        (n + 1, f"Something else {n}.", 0.5) for n in range(4)
    ]
    assert [row[1] for row in found[4:]] == [
        f"[SUPERSEDED] {TEXT}",
        TEXT,
        f"[SUPERSEDED] {PARTS[0]}",
        f"[SUPERSEDED] {PARTS[1]}",
        "Tides: high at six.\nlow at noon.",
    ]
    assert [round(row[2], 6) for row in found[4:]] == [0.3, 0.9, 0.1, 0.3, 0.4]
    assert store.applications()[0]["undoable"]
    assert undo(store, 1).taken_back == applied.added
    # The added row is deleted the server's way, so that its clients learn of it; nothing else is.
    assert everything(dsn)[:-1] == before
    assert len(live(dsn)) == len(before)
    store.close()


def test_the_added_row_has_the_user_and_the_time_of_its_parts(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    moment = "2026-02-03 04:05:06.789012+00"
    dsn = database(*({**row, "user_id": "mia", "created_at": moment} for row in ROWS[2:]))
    (joined,) = [p for p in local[0] if p.action == "ADD"]
    store = opened(dsn)
    (added,) = apply_proposals(store, [joined], local[1]).added
    store.close()
    with psycopg.connect(dsn) as db:
        sql = "SELECT user_id, created_at = %s, search_vector @@ 'noon' FROM memories WHERE id = %s"
        assert db.execute(sql, (moment, added)).fetchone() == ("mia", True, True)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET content = 'Edited.' WHERE id = 1",
        "UPDATE memories SET is_sensitive = true WHERE id = 1",
        "UPDATE memories SET deleted_at = now() WHERE id = 1",
        "UPDATE memories SET vault_path = 'secret/x' WHERE id = 1",
        "UPDATE memories SET user_id = 'noor' WHERE id = 1",
        "DELETE FROM memories WHERE id = 1",
    ],
)
def test_a_row_that_is_not_what_it_was_refuses_everything(
    database: MakePostgres, local: tuple[list[Proposal], Where], change: str
) -> None:
    dsn = database(*ROWS)
    run(dsn, change)
    before = everything(dsn)
    store = opened(dsn)
    with pytest.raises(CurationRefusedError, match="Nothing was written"):
        apply_proposals(store, *local)
    assert not store.applications()
    store.close()
    assert everything(dsn) == before


def test_texts_of_two_users_are_never_matched_as_one_pair(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    duplicates = [p for p in local[0] if p.kind == "exact_duplicate"]
    dsn = database(
        {"content": "Shifts the ids."},
        {"content": TEXT, "user_id": "mia"},
        {"content": TEXT, "user_id": "noor"},
    )
    store = opened(dsn)
    with pytest.raises(CurationRefusedError, match="not all of one user"):
        apply_proposals(store, duplicates, local[1])
    store.close()


def test_the_servers_embedder_may_come_between_apply_and_undo(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    dsn = database(*({**row, "embedding": [1.0, 0.5]} for row in ROWS))
    before = everything(dsn)
    store = opened(dsn)
    (added,) = apply_proposals(store, *local).added
    with psycopg.connect(dsn) as db:
        found = db.execute("SELECT id, embedding FROM memories ORDER BY id").fetchall()
    assert found == [*((n, [1.0, 0.5]) for n in (1, 2, 3, 4)), (added, None)]
    run(dsn, "UPDATE memories SET embedding = ARRAY[0.25] WHERE id = %s", added)
    undo(store, 1)
    assert everything(dsn)[:-1] == before
    store.close()


def test_undo_refuses_a_row_that_changed_since_and_leaves_the_rest(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    dsn = database(*ROWS)
    store = opened(dsn)
    apply_proposals(store, *local)
    run(dsn, "UPDATE memories SET importance = 0.2 WHERE id = 1")
    before = everything(dsn)
    with pytest.raises(CurationRefusedError, match="rows 1 were changed since"):
        undo(store, 1)
    assert everything(dsn) == before
    store.close()


@pytest.mark.parametrize(
    "mark", ["is_sensitive = true", "vault_path = 'v/1'", r"encrypted_content = '\x01'"]
)
def test_what_a_row_said_is_forgotten_when_it_turns_sensitive(
    database: MakePostgres, local: tuple[list[Proposal], Where], mark: str
) -> None:
    dsn = database(*ROWS)
    store = opened(dsn)
    apply_proposals(store, *local)
    run(dsn, f"UPDATE memories SET {mark} WHERE id = 3")
    assert apply_proposals(store, *local).journal_id is None
    (kept,) = store.execute(f"SELECT before_image FROM {TABLE} WHERE row_id = 3")
    assert kept == (None,)
    (other,) = store.execute(f"SELECT before_image FROM {TABLE} WHERE row_id = 1")
    assert TEXT in other[0]
    store.close()


def test_a_writer_that_holds_a_row_is_waited_for_and_then_named(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    dsn = database(*ROWS)
    before = everything(dsn)
    store = opened(dsn, timeout_ms=100)
    with psycopg.connect(dsn) as other:
        other.execute("SELECT 1 FROM memories WHERE id = 4 FOR UPDATE")
        with pytest.raises(SourceError, match="stayed locked by another writer"):
            apply_proposals(store, *local)
    assert everything(dsn) == before
    assert apply_proposals(store, *local).journal_id == 1
    store.close()


def test_two_applications_at_once_write_once(
    database: MakePostgres, local: tuple[list[Proposal], Where]
) -> None:
    dsn = database(*ROWS)
    stores = [opened(dsn, timeout_ms=20_000) for _ in range(2)]
    found: list[int | None] = []

    def write(store: PostgresStore) -> None:
        found.append(apply_proposals(store, *local).journal_id)

    threads = [threading.Thread(target=write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=str) == [1, None]
    assert [row[1] for row in live(dsn)].count(f"[SUPERSEDED] {TEXT}") == 1
    for store in stores:
        store.close()


def test_a_database_of_something_else_is_refused(database: MakePostgres) -> None:
    dsn = database()
    run(dsn, "ALTER TABLE memories DROP COLUMN deleted_at")
    with pytest.raises(SourceFormatError, match="no column deleted_at"):
        opened(dsn)


def test_no_message_shows_the_password(database: MakePostgres) -> None:
    dsn = database().replace("tester@", "tester:swordfish@").replace("/postgres?", "/missing?")
    with pytest.raises(SourceError) as caught:
        open_writable(dsn, CorpusSettings())
    assert "swordfish" not in str(caught.value)
    assert "missing" in str(caught.value)
    assert caught.value.__cause__ is None
    assert "swordfish" not in repr(read_address(dsn))


def test_the_cache_is_left_alone_by_what_is_written_to_the_server(
    database: MakePostgres, local: tuple[list[Proposal], Where], tmp_path: Path
) -> None:
    with SqliteSource(tmp_path / "memory.db") as cache:
        marker = cache.identity().marker
    store = opened(database(*ROWS))
    apply_proposals(store, *local)
    store.close()
    with SqliteSource(tmp_path / "memory.db") as cache:
        assert cache.identity().marker == marker
