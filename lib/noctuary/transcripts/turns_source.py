"""Reading the turns of agents' transcripts from turns.sqlite.

What belongs here: kept turns to raw rows, pinned to one state. What does not: filling the file
(`reading`), joining it to another source (`noctuary.corpus.combined_source`). Build side: the other
modules of the package do not import it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from noctuary.corpus.source import (
    DEFAULT_BATCH_ROWS,
    Closing,
    IdKind,
    RawRow,
    SourceIdentity,
    batch_rows,
)
from noctuary.errors import StoreError
from noctuary.transcripts.ingest import damaged
from noctuary.transcripts.turns_file import FORMAT, join_parts, next_number
from noctuary.types import from_micros

KIND = "transcripts"
CATEGORY = "turn"

TOOL_IMPORTANCE = 0.2
"""Importance of a turn in which nobody says anything but to tools; that of others is the default.
Lower buries what was run beneath what was said, higher does not tell them apart."""

_BUSY_TIMEOUT_S = 30.0
_SHOWN = """
    (is_sensitive OR EXISTS (SELECT 1 FROM parts WHERE parts.number = turns.number))
    AND (? OR NOT is_sidechain)
"""


class TranscriptSource(Closing):
    """The turns of a turns.sqlite, pinned to one state; see `noctuary.corpus.source.Source`.

    Ids are text ("turn-" and 16 hexadecimal digits) or negative integers, both the same on every
    night. A turn that held a secret is a row that is marked as sensitive and holds no text.
    """

    def __init__(
        self,
        path: Path,
        *,
        id_kind: IdKind = "str",
        include_sidechains: bool = False,
        taken: Collection[int] = frozenset(),
        location: Path | None = None,
    ) -> None:
        """Open the file.

        Args:
            path: `StorePaths.turns`.
            id_kind: Which of its two ids a turn is named by.
            include_sidechains: Yield the turns of subagents that are kept as well.
            taken: Negative integers that are ids of another source: a turn whose number is among
                them is named by the next one that is free.
            location: What the turns were read from, for the identity; None means the file itself.

        Raises:
            StoreError: The file cannot be read, or is of another format.
        """
        self._path = path.absolute()
        self._location = self._path if location is None else location.absolute()
        self._id_kind: IdKind = id_kind
        self._sidechains = include_sidechains
        try:
            self._db = _pin(self._path)
        except sqlite3.Error as error:
            raise damaged(self._path, error) from None
        self._renamed = self._rename(taken)

    def identity(self) -> SourceIdentity:
        """Return what the turns come from and which state of them is read."""
        return SourceIdentity(
            kind=KIND,
            location=str(self._location),
            schema_version=str(FORMAT),
            id_kind=self._id_kind,
            marker=self.marker(),
        )

    def marker(self) -> dict[str, int | str]:
        """Return what tells one state of the turns from another."""
        parts, last = self._rows("SELECT count(*), coalesce(max(part), 0) FROM parts")[0]
        return {"turns": self.count(), "parts": int(parts), "last_part": int(last)}

    def count(self) -> int:
        """Return the number of rows that `batches` yields."""
        sql = f"SELECT count(*) FROM turns WHERE {_SHOWN}"
        return int(self._rows(sql, self._sidechains)[0][0])

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the turns by ascending id; a batch is cut short when its texts reach the bound."""
        yield from batch_rows(self._in_order(size), size)

    def close(self) -> None:
        """End the read transaction and close the file."""
        self._db.close()

    def _in_order(self, size: int) -> Iterator[RawRow]:
        if self._id_kind == "str":
            yield from (self._raw_row(turn) for turn in self._pages("turn_id", "", size))
            return
        # The few that had to be renamed are put in their new places.
        waiting = sorted(self._renamed, key=self._renamed.__getitem__)
        for turn in self._pages("number", -(2**63), size):
            if turn[0] in self._renamed:
                continue
            while waiting and self._renamed[waiting[0]] < turn[0]:
                yield self._one(waiting.pop(0))
            yield self._raw_row(turn)
        yield from map(self._one, waiting)

    def _pages(self, key: str, first: int | str, size: int) -> Iterator[tuple[Any, ...]]:
        place = ("number", "turn_id").index(key)
        last: int | str = first
        while page := self._rows(
            f"SELECT number, turn_id, role, session, wing, at_us, is_sensitive FROM turns "
            f"WHERE {key} > ? AND {_SHOWN} ORDER BY {key} LIMIT ?",
            last,
            self._sidechains,
            size,
        ):
            yield from page
            last = page[-1][place]

    def _one(self, number: int) -> RawRow:
        found = self._rows(
            "SELECT number, turn_id, role, session, wing, at_us, is_sensitive FROM turns "
            "WHERE number = ?",
            number,
        )
        return self._raw_row(found[0])

    def _raw_row(self, turn: tuple[Any, ...]) -> RawRow:
        number, turn_id, role, session, wing, at_us, is_sensitive = turn
        key: int | str = (
            turn_id if self._id_kind == "str" else self._renamed.get(number, int(number))
        )
        locator = f"turn {turn_id}"
        if is_sensitive:
            return RawRow(locator, key, {"id": key, "content": "", "is_sensitive": 1})
        parts = self._rows("SELECT kind, text FROM parts WHERE number = ? ORDER BY part", number)
        is_said = any(kind == "text" for kind, _ in parts)
        moment = None if at_us is None else from_micros(at_us)
        fields: dict[str, object] = {
            "id": key,
            "content": join_parts(role, [text for _, text in parts]),
            "category": CATEGORY,
            "importance": None if is_said else TOOL_IMPORTANCE,
            "created_at": None if moment is None else moment.isoformat(),
            "session_id": session or None,
            "wing": wing or None,
        }
        return RawRow(locator, key, fields)

    def _rename(self, taken: Collection[int]) -> dict[int, int]:
        """Return the numbers of turns that another source uses, with those to use instead."""
        renamed: dict[int, int] = {}
        for number in sorted(taken):
            if not self._holds(number):
                continue
            free = next_number(number)
            while free in taken or free in renamed.values() or self._holds(free):
                free = next_number(free)
            renamed[number] = free
        return renamed

    def _holds(self, number: int) -> bool:
        sql = f"SELECT 1 FROM turns WHERE number = ? AND {_SHOWN}"
        return bool(self._rows(sql, number, self._sidechains))

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise damaged(self._path, error) from None


def holds_turns(path: Path) -> bool:
    """Say whether there is a file of turns at a path that holds one.

    Raises:
        StoreError: There is a file that cannot be read.
    """
    if not path.is_file():
        return False
    with TranscriptSource(path, include_sidechains=True) as source:
        return source.count() > 0


def _pin(path: Path) -> sqlite3.Connection:
    """Open a file of turns and take its read snapshot at once."""
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=ro",
        uri=True,
        timeout=_BUSY_TIMEOUT_S,
        isolation_level=None,
        # A pipeline may open the source in one thread and read it in another.
        check_same_thread=False,
    )
    try:
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a turn in a temporary file
        _check_format(path, int(db.execute("PRAGMA user_version").fetchone()[0]))
        db.execute("BEGIN DEFERRED")
        db.execute("SELECT count(*) FROM turns").fetchone()  # the first read takes the snapshot
    except BaseException:
        db.close()
        raise
    return db


def _check_format(path: Path, version: int) -> None:
    if version != FORMAT:
        raise StoreError(
            f"{path} is of format {version}, expected {FORMAT}. Upgrade noctuary, or move the file "
            f"away to ingest the transcripts that are still there again."
        )
