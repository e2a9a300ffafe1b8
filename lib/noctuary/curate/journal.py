"""The journal of what was written to a source, kept in that source: a row per touched row.

What belongs here: its table and statements, the same for every kind of database. What does not:
what an image of a row is (`stores`), writing rows (`apply`, `undo`).

It lies in the source itself, so that no text leaves the source and one transaction covers both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

TABLE = "noctuary_curation_journal"

_CREATE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    journal_id INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    proposal_id TEXT NOT NULL,
    row_id BIGINT NOT NULL,
    change TEXT NOT NULL,
    before_image TEXT,
    after_hash TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    undone_at TEXT,
    PRIMARY KEY (journal_id, entry)
)
"""
_COLUMNS = (
    "journal_id, entry, proposal_id, row_id, change, before_image, after_hash, applied_at, "
    "undone_at"
)

Change = Literal["tombstone", "update", "add"]


class Execute(Protocol):
    """Whatever runs statements with `?` for values."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...


class Entry(NamedTuple):
    """One touched row.

    Attributes:
        journal_id: Of the whole application; what `--undo` takes.
        entry: Order within it, from 0.
        proposal_id: Why.
        row_id: Which row of the source.
        change: "tombstone", "update" or "add".
        before_image: Every column before, as JSON; None for an added row, after an undo, and where
            the row has been marked sensitive or deleted since.
        after_hash: Of the image after, so that a later change is seen.
        applied_at: ISO 8601, UTC.
        undone_at: Likewise, or None while it holds.
    """

    journal_id: int
    entry: int
    proposal_id: str
    row_id: int
    change: Change
    before_image: str | None
    after_hash: str
    applied_at: str
    undone_at: str | None


class Application(NamedTuple):
    """One journal_id at a glance.

    Attributes:
        journal_id: What `--undo` takes.
        applied_at: ISO 8601, UTC.
        undone_at: Likewise, or None.
        proposals: How many proposals it wrote.
        rows: How many rows it touched.
        undoable: False where images were forgotten, or it is undone already.
    """

    journal_id: int
    applied_at: str
    undone_at: str | None
    proposals: int
    rows: int
    undoable: bool


def ensure_journal(db: Execute) -> None:
    """Create the table if it is not there."""
    db.execute(_CREATE)


def next_id(db: Execute) -> int:
    """Return the id of the next application; the caller holds the write lock."""
    return int(db.execute(f"SELECT coalesce(max(journal_id), 0) + 1 FROM {TABLE}")[0][0])


def write_entry(db: Execute, entry: Entry) -> None:
    """Append an entry."""
    db.execute(f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", entry)


def entries_of(db: Execute, journal_id: int) -> list[Entry]:
    """Return the entries of an application in order; empty where there is no such one."""
    sql = f"SELECT {_COLUMNS} FROM {TABLE} WHERE journal_id = ? ORDER BY entry"
    return [Entry(*row) for row in db.execute(sql, (journal_id,))]


def applied_proposals(db: Execute) -> dict[str, int]:
    """Return journal ids by proposal id, of what holds."""
    rows = db.execute(
        f"SELECT proposal_id, max(journal_id) FROM {TABLE} WHERE undone_at IS NULL "
        "GROUP BY proposal_id"
    )
    return {str(proposal_id): int(journal_id) for proposal_id, journal_id in rows}


def mark_undone(db: Execute, journal_id: int, moment: str) -> None:
    """Note that an application was taken back; its images are of no more use and go."""
    db.execute(
        f"UPDATE {TABLE} SET undone_at = ?, before_image = NULL WHERE journal_id = ?",
        (moment, journal_id),
    )


def applications(db: Execute) -> list[Application]:
    """Return every application, oldest first."""
    rows = db.execute(
        "SELECT journal_id, min(applied_at), min(undone_at), count(DISTINCT proposal_id), count(*),"
        " min(CASE WHEN undone_at IS NULL AND (change = 'add' OR before_image IS NOT NULL) "
        f"THEN 1 ELSE 0 END) FROM {TABLE} GROUP BY journal_id ORDER BY journal_id"
    )
    return [
        Application(int(i), str(at), undone, int(proposals), int(count), bool(undoable))
        for i, at, undone, proposals, count, undoable in rows
    ]
