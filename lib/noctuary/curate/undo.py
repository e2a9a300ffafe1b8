"""Taking an application back: every row as it was, or nothing.

What belongs here: the order of one transaction (compare, restore, check, note). An added row is
taken out of sight in the way in which its source removes rows: its words are all in the restored
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from noctuary.curate.journal import Entry, ensure_journal, entries_of, mark_undone
from noctuary.curate.stores.base import Transaction, WritableStore
from noctuary.errors import CurationRefusedError
from noctuary.hashing import hash_text

ROWS_SHOWN = 5
"""Rows named in a refusal; the number of all is given."""


class Undone(NamedTuple):
    """What was taken back.

    Attributes:
        journal_id: Which application.
        restored: Rows that are as they were.
        taken_back: Rows that had been added.
    """

    journal_id: int
    restored: tuple[int, ...]
    taken_back: tuple[int, ...]


def undo(store: WritableStore, journal_id: int, *, now: datetime | None = None) -> Undone:
    """Take one application back in one transaction.

    Args:
        store: The source.
        journal_id: As `Applied.journal_id`.
        now: Moment for the journal; None means now.

    Raises:
        CurationRefusedError: There is no such application, it is undone already, or one of its rows
            was changed, deleted or marked sensitive since; nothing is written.
        SourceError: The source is locked or cannot be written; nothing is.
    """
    moment = (now or datetime.now(UTC)).isoformat()
    with store.transaction() as source:
        ensure_journal(source)
        source.forget_lost_rows()
        entries = entries_of(source, journal_id)
        _check(source, journal_id, entries)
        for entry in reversed(entries):
            if entry.before_image is None:
                source.take_back(entry.row_id)
            else:
                source.restore(entry.row_id, entry.before_image)
        _check_restored(source, entries)
        mark_undone(source, journal_id, moment)
    return Undone(
        journal_id,
        tuple(entry.row_id for entry in entries if entry.change != "add"),
        tuple(entry.row_id for entry in entries if entry.change == "add"),
    )


def _check(source: Transaction, journal_id: int, entries: Sequence[Entry]) -> None:
    if not entries:
        raise CurationRefusedError(
            f"the journal holds no application {journal_id}: see `noctuary curate --journal`"
        )
    if entries[0].undone_at is not None:
        raise CurationRefusedError(f"{journal_id} was undone at {entries[0].undone_at} already")
    _refuse(
        [e.row_id for e in entries if e.change != "add" and e.before_image is None],
        "are sensitive or deleted by now, and what they said was forgotten",
    )
    _refuse(
        [e.row_id for e in entries if hash_text(source.image(e.row_id) or "") != e.after_hash],
        "were changed since (undo a later application first, if one touched them)",
    )


def _check_restored(source: Transaction, entries: Sequence[Entry]) -> None:
    """Roll back rather than leave a row that is not exactly what it was."""
    wrong = [
        e.row_id
        for e in entries
        if e.before_image is not None and source.image(e.row_id) != e.before_image
    ]
    _refuse(wrong, "did not come back as they were (does a trigger change them?)")


def _refuse(row_ids: Sequence[int], why: str) -> None:
    if row_ids:
        shown = ", ".join(map(str, row_ids[:ROWS_SHOWN]))
        more = len(row_ids) - ROWS_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        raise CurationRefusedError(f"rows {shown}{rest} {why}. Nothing was written.")
