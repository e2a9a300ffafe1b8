"""The turns of agents' transcripts as a source, and a memory store with them joined."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from noctuary.core.errors import StoreError
from noctuary.core.settings import Settings, TranscriptSettings
from noctuary.core.sqlite import open_log
from noctuary.core.store import DatabaseName, SourceName, expand_user
from noctuary.core.types import from_micros
from noctuary.sources.export import read_report
from noctuary.sources.ingest import WAIT_S, damaged, is_transcripts
from noctuary.sources.source import (
    DEFAULT_BATCH_ROWS,
    IdKind,
    RawRow,
    Source,
    SourceIdentity,
    batch_rows,
    holds_store,
    open_source,
)
from noctuary.sources.sqlite import PinnedFile
from noctuary.sources.turns import TURNS, TurnsFile, join_parts, next_number

KIND = "transcripts"
CATEGORY = "turn"

TOOL_IMPORTANCE = 0.2
"""Importance of a turn in which nobody says anything but to tools; that of others is the default.
Lower buries what was run beneath what was said, higher does not tell them apart."""

_SHOWN = """
    (is_sensitive OR EXISTS (SELECT 1 FROM parts WHERE parts.number = turns.number))
    AND (? OR NOT is_sidechain)
"""


class TranscriptSource(PinnedFile):
    """The turns of a turns.sqlite, pinned to one state.

    Ids are text ("turn-" and 16 hexadecimal digits) or negative integers, both the same on every
    night. A turn that held a secret is a row that is marked as sensitive and holds no text.
    """

    def __init__(
        self,
        path: Path,
        *,
        id_kind: IdKind = "str",  # Which of its two ids a turn is named by
        include_sidechains: bool = False,
        # Numbers that are ids of another source: such a turn gets the next one that is free
        taken: Collection[int] = frozenset(),
        location: Path | None = None,  # What the turns were read from; None means the file itself
    ) -> None:
        super().__init__(path)
        self._location = self._path if location is None else location.absolute()
        self._id_kind: IdKind = id_kind
        self._sidechains = include_sidechains
        self._renamed = self._rename(taken)

    def identity(self) -> SourceIdentity:
        """Return what the turns come from and which state of them is read."""
        return SourceIdentity(
            kind=KIND,
            location=str(self._location),
            schema_version=str(TURNS.version),
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

    def _connect(self) -> sqlite3.Connection:
        # A pipeline may open the source in one thread and read it in another.
        return open_log(self._path, TURNS, wait_s=WAIT_S, check_same_thread=False)

    def _damaged(self, error: sqlite3.Error) -> StoreError:
        return damaged(self._path, error)

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
                yield self._turn(waiting.pop(0))
            yield self._raw_row(turn)
        yield from map(self._turn, waiting)

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

    def _turn(self, number: int) -> RawRow:
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


def holds_turns(path: Path) -> bool:
    """Say whether there is a file of turns at a path that holds one."""
    if not path.is_file():
        return False
    with TranscriptSource(path, include_sidechains=True) as source:
        return source.count() > 0


# A memory store with the turns that were kept beside it.


def find_roots(source: SourceName, settings: TranscriptSettings) -> list[Path]:
    """Return where transcripts are: those that are the source, and the configured ones."""
    roots = [expand_user(settings.path)] if settings.path else []
    folder = _transcripts_of(source)
    if folder is not None and folder.resolve() not in map(Path.resolve, roots):
        roots.insert(0, folder)
    return roots


def open_with_turns(source: SourceName, turns: Path, settings: Settings, last: Path) -> Source:
    """Open a source with the kept turns joined, where there are any.

    Raises:
        SourceError: The source is missing or cannot be read.
        StoreError: The turns cannot be read.
    """
    sidechains = settings.transcripts.include_sidechains
    folder = _transcripts_of(source) or _emptied_folder(source, last)
    if folder is not None:
        if not turns.is_file():
            TurnsFile(turns, wait_s=WAIT_S).close()
        return TranscriptSource(turns, include_sidechains=sidechains, location=folder)
    own = open_source(source, settings.source)
    try:
        if not holds_turns(turns):
            return own
        id_kind = own.identity().id_kind
        taken = negative_ids(own) if id_kind == "int" else frozenset[int]()
        joined = TranscriptSource(
            turns, id_kind=id_kind, include_sidechains=sidechains, taken=taken
        )
        return CombinedSource(own, joined)
    except BaseException:
        own.close()
        raise


def _transcripts_of(source: SourceName) -> Path | None:
    """Return the path of a source that is transcripts of an agent and no memory store."""
    if isinstance(source, DatabaseName) or holds_store(source) or not is_transcripts(source):
        return None
    return source


def _emptied_folder(source: SourceName, last: Path) -> Path | None:
    if isinstance(source, DatabaseName) or not source.is_dir() or holds_store(source):
        return None
    try:
        return source if read_report(last).identity.kind == KIND else None
    except StoreError:
        return None


MAX_TAKEN = 1_000_000
"""Negative ids of a store that are held to keep turns from being named alike."""


class CombinedSource(Source):
    """A source with the rows of another joined to it.

    It is named as the first: that is the store which its owner writes. Ids of the two should
    differ; of a row of each with the same id the store's comes first, and the export reports the
    other as a duplicate.
    """

    def __init__(self, primary: Source, joined: Source) -> None:
        """Join two open sources of one kind of ids, which are closed with this one."""
        self._own = primary
        self._joined = joined

    @property
    def own(self) -> Source:
        """Return the store."""
        return self._own

    def identity(self) -> SourceIdentity:
        """Return what the store is, with the state of what is joined among its marks."""
        identity, joined = self._own.identity(), self._joined.identity()
        marks = {f"{joined.kind}_{name}": mark for name, mark in joined.marker.items()}
        return replace(identity, marker={**identity.marker, **marks})

    def count(self) -> int:
        """Return the number of rows of both."""
        return self._own.count() + self._joined.count()

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows of both by ascending id, the store's first among equals."""
        yield from batch_rows(self._merged(size), size)

    def close(self) -> None:
        """Close both."""
        try:
            self._joined.close()
        finally:
            self._own.close()

    def _merged(self, size: int) -> Iterator[RawRow]:
        others = (row for batch in self._joined.batches(size) for row in batch)
        other = next(others, None)
        for batch in self._own.batches(size):
            for row in batch:
                while other is not None and _is_before(other.key, row.key):
                    yield other
                    other = next(others, None)
                yield row
        while other is not None:
            yield other
            other = next(others, None)


def _is_before(one: int | str | None, other: int | str | None) -> bool:
    """Say whether a joined row's id sorts before a store's; one without stays in its place."""
    if isinstance(one, int):
        return isinstance(other, int) and one < other
    return isinstance(one, str) and isinstance(other, str) and one < other


def negative_ids(source: Source) -> frozenset[int]:
    """Return the negative ids of a source, which come first in its order; `MAX_TAKEN` at most."""
    found: set[int] = set()
    for batch in source.batches():
        for row in batch:
            if isinstance(row.key, int):
                if row.key >= 0 or len(found) >= MAX_TAKEN:
                    return frozenset(found)
                found.add(row.key)
    return frozenset(found)
