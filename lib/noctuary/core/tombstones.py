"""Tombstones: ids and digests of forgotten memories, never a text."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
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


# A row is recognised as forgotten by one of two rules.
#
# Rows that only noctuary writes (own store and kept turns) keep their place: they match by id and
# date, or by date and text (`row_digests`). Until format 1 this rule applied to all rows.
#
# In a foreign store, the text is matched and not its place (`Buried`): a section that was
# rewritten, or a new one under the same heading, is a new text. The forgotten text stays hidden
# there and under every other id. Numbered rows and turns are matched only with their own
# date, because texts such as "Yes." recur.

OURS = ("own:", "turn-", "-")  # prefixes of ids that only noctuary writes, among several sources
_HELD_IN_PLACE = 0.5  # least share of a forgotten text's pieces that an edit in its place still has
_HELD_ELSEWHERE = 0.8  # the same anywhere else: a heading may have changed
_LEAST_PIECE_BYTES = 16  # shorter ones are common, and can be guessed from their digest
_PIECE = r"\n+|(?<=[.!?…])\s+|(?<=[。！？])"
_EDGES = " \t.,:;!?…。！？#*>+-–—_`\"'"


class Buried(NamedTuple):
    """A forgotten text of a foreign store; digests alone."""

    place: str  # of its id
    moment: str  # of its date; "" for a section, which may be dated anew
    text: str  # of all of it, without case and layout
    pieces: frozenset[str] = frozenset()  # of its sentences and lines

    @staticmethod
    def of(record: MemoryRecord) -> "Buried":
        """Return the digests of a row."""
        user, folded = record.user or "", record.content.casefold()
        is_section = not (record.is_turn or record.memory_id.rpartition(":")[2].isdecimal())
        found = (" ".join(piece.split()).strip(_EDGES) for piece in re.split(_PIECE, folded))
        pieces = (p for p in found if len(p.encode("utf-8", "replace")) >= _LEAST_PIECE_BYTES)
        return Buried(
            _digest("place", record.memory_id),
            "" if is_section else _digest("moment", str(record.created_at_us)),
            _digest("plain", user, " ".join(folded.split())),
            frozenset(_digest("piece", user, piece) for piece in pieces),
        )

    def is_in(self, row: "Buried") -> bool:
        """Return whether a row is this text, or still contains it."""
        is_in_place = self.place == row.place
        if not is_in_place and self.moment != row.moment:
            return False
        least = _HELD_IN_PLACE if is_in_place else _HELD_ELSEWHERE
        held = len(self.pieces & row.pieces)
        return self.text == row.text or 0 < held >= least * len(self.pieces)


class Tombstones(NamedTuple):
    """The forgotten memories of one store."""

    # Digests that outlive the memories: no export takes such a row again.
    rows: frozenset[str] = frozenset()
    texts: frozenset[Buried] = frozenset()  # those of foreign stores
    # Ids, as text, of memories that a snapshot may still hold; readers hide them.
    ids: frozenset[str] = frozenset()
    since: str = ""  # when the unfinished forgetting began, ISO 8601; "" where all is finished
    is_scanned: bool = False  # whether it only has to remove the snapshots that hold them
    stamp: FileStamp = (0, 0)  # of the file

    @property
    def is_pending(self) -> bool:
        """Return whether a forgetting has begun and is not finished."""
        return bool(self.since)

    @property
    def digests(self) -> list[str]:
        """Return all digests that decide on a row, in one order."""
        return [*sorted(self.rows), *sorted(part for text in self.texts for part in text[:3])]

    def holds(self, record: MemoryRecord) -> bool:
        """Return whether a row was forgotten: by its text, or by its place if noctuary wrote it."""
        if self.rows and not self.rows.isdisjoint(row_digests(record)):
            return True
        if not self.texts or record.memory_id.startswith(OURS):
            return False
        row, known = Buried.of(record), _by_digest(self.texts)
        near = {text for digest in (row.text, *row.pieces) for text in known.get(digest, ())}
        return any(text.is_in(row) for text in near)


NOTHING_FORGOTTEN = Tombstones()


def row_digests(record: MemoryRecord) -> tuple[str, str]:
    """Return the two digests of a row of noctuary's own: of id and date, of date and text."""
    moment = str(record.created_at_us)
    return _digest("row", record.memory_id, moment), _digest("text", moment, record.content)


def _digest(*parts: str) -> str:
    return hash_text(*parts)[:_DIGEST_CHARS]


@lru_cache(maxsize=4)  # an export asks for every row
def _by_digest(texts: frozenset[Buried]) -> Mapping[str, list[Buried]]:
    found: dict[str, list[Buried]] = {}
    for text in texts:
        for digest in (text.text, *text.pieces):
            found.setdefault(digest, []).append(text)
    return found


def stamp_of_tombstones(root: Path) -> FileStamp:
    """Return the identity of a store's current file of tombstones, with one stat call.

    Raises StoreError if it cannot be determined: a forgotten memory could show.
    """
    try:
        found = (root / TOMBSTONES_FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    except OSError:
        raise _unreadable(root) from None
    return found.st_mtime_ns, found.st_ino


def read_tombstones(root: Path) -> Tombstones:
    """Return the tombstones of a store; StoreError for a damaged file, so that nothing shows."""
    # Before the file is read: if it is replaced in between, the next look reads it again.
    stamp, told = stamp_of_tombstones(root), None
    if stamp == (0, 0):
        return Tombstones()
    try:
        told = parse_json((root / TOMBSTONES_FILE).read_text(encoding="utf-8"))
        # Format 1 has no texts: its rows stay as they are.
        texts = {1: (), _FORMAT: told.get("texts", ())}[told["format"]]
        buried = (
            Buried(str(place), str(moment), str(text), frozenset(map(str, pieces)))
            for place, moment, text, pieces in texts
        )
        pending: Mapping[str, Any] = told["pending"] or {}
        ids = frozenset(map(str, pending.get("ids", ())))
        since, is_scanned = str(pending.get("since", "")), pending.get("is_scanned") is True
        rows = frozenset(map(str, told["rows"]))
        return Tombstones(rows, frozenset(buried), ids, since, is_scanned, stamp)
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
    texts = sorted([*text[:3], sorted(text.pieces)] for text in stones.texts)
    told = {"format": _FORMAT, "rows": sorted(stones.rows), "texts": texts}
    write_json(root / TOMBSTONES_FILE, {**told, "pending": pending if stones.since else None})


def bury(
    stones: Tombstones,
    records: Iterable[MemoryRecord],
    since: str,
    is_own: Callable[[MemoryRecord], bool],
) -> Tombstones:
    """Return the tombstones with those of some memories, and an unfinished forgetting of them.

    `is_own` returns whether only noctuary writes a memory.
    """
    known = list(records)
    rows = {digest for record in known if is_own(record) for digest in row_digests(record)}
    texts = {Buried.of(record) for record in known if not is_own(record)}
    return stones._replace(
        rows=stones.rows | rows,
        texts=stones.texts | texts,
        ids=stones.ids | {record.memory_id for record in known},
        since=stones.since or since,
    )


# The rows of a snapshot as every view reads them: a forgotten memory is still in the file until the
# next night, and is in no table of this connection.

_SHOWN = {
    "memories": "position NOT IN hidden",
    "summaries": "summary_id NOT IN (SELECT summary_id FROM main.summary_sources "
    "WHERE position IN hidden)",
    "summary_sources": "summary_id NOT IN (SELECT summary_id FROM main.summary_sources "
    "WHERE position IN hidden)",
    "supersessions": "older NOT IN hidden AND newer NOT IN hidden AND head NOT IN hidden AND "
    "evidence_position NOT IN hidden",
    # An edge that other memories state as well stays; each view limits the evidence by scope.
    "concept_edges": "evidence = '[]' OR EXISTS (SELECT 1 FROM json_each(evidence) j "
    "WHERE json_extract(j.value, '$[0]') NOT IN hidden)",
}


def open_rows(
    directory: Path, stones: Tombstones | None = None, *, check_same_thread: bool = True
) -> sqlite3.Connection:
    """Open the rows of a snapshot of a store, without forgotten ones.

    Args:
        directory: The snapshot, two levels below its store.
        stones: The store's tombstones; None reads them.
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
