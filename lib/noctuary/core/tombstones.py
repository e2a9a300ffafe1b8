"""What must not come back: ids and digests of forgotten memories, never a text."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core import formats
from noctuary.core.errors import StoreError
from noctuary.core.files import hash_text, write_json
from noctuary.core.foreign_json import parse_json
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import ROWS_FILE
from noctuary.core.types import MemoryRecord

TOMBSTONES_FILE = "forgotten.json"  # below a store
_FORMAT = formats.TOMBSTONES.version
_DIGEST_CHARS = 32

FileStamp = tuple[int, int]
"""Time of change in nanoseconds and inode; zeros where there is no file."""


class Tombstones(NamedTuple):
    """The forgotten memories of one store."""

    # Digests that outlive the memories: no export takes such a row again.
    rows: frozenset[str] = frozenset()
    # Ids, as text, of those that a snapshot may still hold: no reader shows them.
    ids: frozenset[str] = frozenset()
    since: str = ""  # when the unfinished forgetting began, ISO 8601; "" where all is finished
    is_scanned: bool = False  # whether it only has to remove the snapshots that hold them
    stamp: FileStamp = (0, 0)  # of the file

    @property
    def is_pending(self) -> bool:
        """Say whether a forgetting has begun and is not finished."""
        return bool(self.since)

    def holds(self, record: MemoryRecord) -> bool:
        """Say whether a row is one of them: by id and date, or by date and text."""
        return bool(self.rows) and not self.rows.isdisjoint(row_digests(record))


NOTHING_FORGOTTEN = Tombstones()


def row_digests(record: MemoryRecord) -> tuple[str, str]:
    """Return what a row is known by again: under its id if edited, by its text under another id."""
    moment = str(record.created_at_us)
    known = hash_text("row", record.memory_id, moment), hash_text("text", moment, record.content)
    return known[0][:_DIGEST_CHARS], known[1][:_DIGEST_CHARS]


def stamp_of_tombstones(root: Path) -> FileStamp:
    """Return which file of tombstones a store has now; one look at the disk.

    StoreError where that cannot be told: a forgotten memory could show.
    """
    try:
        found = (root / TOMBSTONES_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    except OSError:
        raise _unreadable(root) from None
    return found.st_mtime_ns, found.st_ino


def read_tombstones(root: Path) -> Tombstones:
    """Return what a store has forgotten; StoreError for a damaged file, so that nothing shows."""
    # Before the file is read: if it is replaced in between, the next look reads it again.
    stamp, told = stamp_of_tombstones(root), None
    if stamp == (0, 0):
        return Tombstones()
    try:
        told = parse_json((root / TOMBSTONES_FILE).read_text(encoding="utf-8"))
        pending: Mapping[str, Any] = {_FORMAT: told["pending"] or {}}[told["format"]]
        ids = frozenset(map(str, pending.get("ids", ())))
        since, is_scanned = str(pending.get("since", "")), pending.get("is_scanned") is True
        return Tombstones(frozenset(map(str, told["rows"])), ids, since, is_scanned, stamp)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _unreadable(root, told) from None


def _unreadable(root: Path, told: Any = None) -> StoreError:
    found = told.get("format") if isinstance(told, dict) else None
    what, remedy = "cannot be read", "Restore it from a backup, or remove it and forget again"
    if isinstance(found, int) and found > _FORMAT:
        what, remedy = f"has format {found}, expected {_FORMAT}", formats.UPDATE.capitalize()
    return StoreError(
        f"{root / TOMBSTONES_FILE} {what}; it says what was forgotten, so nothing is shown without "
        f"it. {remedy}"
    )


def write_tombstones(root: Path, stones: Tombstones) -> None:
    """Replace the file; it is on disk when this returns."""
    pending = {"since": stones.since, "ids": sorted(stones.ids), "is_scanned": stones.is_scanned}
    told = {"format": _FORMAT, "rows": sorted(stones.rows)}
    write_json(root / TOMBSTONES_FILE, {**told, "pending": pending if stones.since else None})


def bury(stones: Tombstones, records: Iterable[MemoryRecord], since: str) -> Tombstones:
    """Return the tombstones with those of some memories, and an unfinished forgetting of them."""
    known = list(records)
    rows = {digest for record in known for digest in row_digests(record)}
    ids = stones.ids | {record.memory_id for record in known}
    return Tombstones(stones.rows | rows, frozenset(ids), stones.since or since)


# The rows of a snapshot as every view reads them: a forgotten memory is still in the file until the
# next night, and stands in no table of this connection.

_SHOWN = {
    "memories": "position NOT IN hidden",
    "summaries": "summary_id NOT IN (SELECT summary_id FROM main.summary_sources "
    "WHERE position IN hidden)",
    "summary_sources": "summary_id NOT IN (SELECT summary_id FROM main.summary_sources "
    "WHERE position IN hidden)",
    "supersessions": "older NOT IN hidden AND newer NOT IN hidden AND head NOT IN hidden AND "
    "evidence_position NOT IN hidden",
    # One that others state as well stays; who may see which statement is told by each view.
    "concept_edges": "evidence = '[]' OR EXISTS (SELECT 1 FROM json_each(evidence) j "
    "WHERE json_extract(j.value, '$[0]') NOT IN hidden)",
}


def open_rows(
    directory: Path, stones: Tombstones | None = None, *, check_same_thread: bool = True
) -> sqlite3.Connection:
    """Open the rows of a snapshot of a store, without what is being forgotten.

    Args:
        directory: The snapshot, two levels below its store.
        stones: What the store has forgotten; None reads it.
        check_same_thread: As `sqlite3.connect` has it.

    Raises:
        StoreError: The tombstones cannot be read.
    """
    gone = read_tombstones(directory.parents[1]) if stones is None else stones
    db = connect_immutable(directory / ROWS_FILE, check_same_thread=check_same_thread)
    db.execute("PRAGMA temp_store = MEMORY")  # a sort never spills to disk
    if not gone.ids:
        return db
    try:
        db.execute("CREATE TEMP TABLE hidden (position INTEGER PRIMARY KEY)")
        forgotten = "SELECT position FROM main.memories WHERE memory_id IN"
        ids = json.dumps(sorted(gone.ids))
        db.execute(f"INSERT INTO hidden {forgotten} (SELECT value FROM json_each(?))", (ids,))
        db.commit()
        for table, shown in _SHOWN.items():
            # A view of this name comes before the table, in every statement.
            db.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE {shown}")
    except BaseException:
        db.close()
        raise
    return db
