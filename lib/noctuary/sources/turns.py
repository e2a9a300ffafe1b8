"""The turns of agents' transcripts as a source, and a memory store with them joined."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

from noctuary.core.errors import SourceError, SourceMissingError, StoreError
from noctuary.core.files import hash_file, hash_json
from noctuary.core.settings import Settings, TranscriptSettings
from noctuary.core.sqlite import open_log
from noctuary.core.store import DatabaseName, SourceName, expand_user, path_of
from noctuary.core.types import Origin, from_micros
from noctuary.sources.histories import (
    is_transcripts,
)
from noctuary.sources.ingest import TURNS, WAIT_S, TurnsFile, unusable
from noctuary.sources.open import find_files, is_several, open_source, stores_in
from noctuary.sources.several import read_members
from noctuary.sources.source import IdKind, RawRow, Source, SourceIdentity
from noctuary.sources.sqlite import PinnedFile

KIND = "transcripts"
CATEGORY = "turn"
_ORIGINS = {"user": Origin.USER, "assistant": Origin.ASSISTANT}  # by role
TOOL_IMPORTANCE = 0.2  # of a turn that consists of tool calls only

_SHOWN = """
    FROM turns WHERE (is_sensitive OR EXISTS (SELECT 1 FROM parts WHERE number = turns.number))
    AND (? OR NOT is_sidechain)
"""
_ROWS = """
    SELECT turn_id, {key}, role, session, wing, at_us, is_sensitive, (
        SELECT group_concat(text, char(10)) FROM (
            SELECT text FROM parts WHERE number = turns.number ORDER BY part
        )
    ), EXISTS (SELECT 1 FROM parts WHERE number = turns.number AND kind = 'text')
"""


class TranscriptSource(PinnedFile):
    """The turns of a turns.sqlite, pinned to one state; ids are text or negative integers."""

    def __init__(
        self,
        path: Path,
        *,
        id_kind: IdKind = "str",  # Which of its two ids a turn is named by
        include_sidechains: bool = False,
        location: Path | None = None,  # Where the turns were read from; None means the file itself
    ) -> None:
        super().__init__(path)
        self._location = self._path if location is None else location.absolute()
        self._id_kind: IdKind = id_kind
        self._sidechains = include_sidechains

    def identity(self) -> SourceIdentity:
        """Return the source of the turns and the state that is read."""
        marker = {
            "turns": self.count(),
            "parts": int(self._one("SELECT count(*) FROM parts")),
            "last_part": int(self._one("SELECT coalesce(max(part), 0) FROM parts")),
        }
        version = str(TURNS.version)
        return SourceIdentity(KIND, str(self._location), version, self._id_kind, marker)

    def count(self) -> int:
        """Return the number of turns."""
        return int(self._one(f"SELECT count(*) {_SHOWN}", self._sidechains))

    def rows(self) -> Iterator[RawRow]:
        """Yield the turns by ascending id."""
        name = "turn_id" if self._id_kind == "str" else "number"
        sql = f"{_ROWS.format(key=name)} {_SHOWN} ORDER BY {name}"
        for turn_id, key, role, session, wing, at_us, is_sensitive, text, is_said in self._stream(
            sql, self._sidechains
        ):
            locator = f"turn {turn_id}"
            if is_sensitive:
                yield RawRow(locator, key, {"id": key, "content": "", "is_sensitive": 1})
                continue
            moment = from_micros(at_us) if at_us is not None else None
            fields: dict[str, object] = {
                "id": key,
                # As a memory: its speaker, then its parts line by line.
                "content": f"{role.capitalize()}: {text}",
                "category": CATEGORY,
                "importance": None if is_said else TOOL_IMPORTANCE,
                "created_at": moment and moment.isoformat(),
                "session_id": session or None,
                "wing": wing or None,
                "origin": _ORIGINS.get(role) if is_said else Origin.TOOL,
            }
            yield RawRow(locator, key, fields)

    def _connect(self) -> sqlite3.Connection:
        # A pipeline may open the source in one thread and read it in another.
        return open_log(self._path, TURNS, wait_s=WAIT_S, or_empty=True, check_same_thread=False)

    def _damaged(self, error: sqlite3.Error) -> StoreError:
        return unusable(self._path, error)


def holds_turns(path: Path) -> bool:
    """Return whether there is a non-empty file of turns at a path."""
    if not path.is_file():
        return False
    with TranscriptSource(path, include_sidechains=True) as source:
        return source.count() > 0


def find_roots(source: SourceName, settings: TranscriptSettings) -> list[Path]:
    """Return where transcripts are: those that are the source, and the configured ones."""
    roots = [expand_user(settings.path)] if settings.path else []
    if is_several(source):
        listed = read_members(path_of(source)).values()
        found = [path_of(one.source) for one in listed if one.is_transcripts]
    elif isinstance(source, Path) and not stores_in(source) and is_transcripts(source):
        found = [source]
    else:
        return roots
    known = {path.resolve() for path in found}
    return [*found, *(root for root in roots if root.resolve() not in known)]


def open_with_turns(source: SourceName, turns: Path, settings: Settings, last: Path) -> Source:
    """Open a source with the kept turns joined, where there are any."""
    sidechains = settings.transcripts.include_sidechains
    if isinstance(source, Path) and _is_folder_of_turns(source, last):
        if not turns.is_file():
            TurnsFile(turns, wait_s=WAIT_S).close()
        return TranscriptSource(turns, include_sidechains=sidechains, location=source)
    own = open_source(source, settings.source)
    try:
        if not holds_turns(turns):
            return own
        id_kind = own.identity().id_kind
        joined = TranscriptSource(turns, id_kind=id_kind, include_sidechains=sidechains)
        return CombinedSource(own, joined)
    except BaseException:
        own.close()
        raise


def hash_bytes(source: SourceName, last: Path, *beside: Path) -> str | None:
    """Return the digest of every byte that an export reads; None if it must be read to tell.

    `beside` are other SQLite files of the store that affect the export, such as the kept turns.
    """
    from noctuary.sources.exports import count_expired  # not needed by hooks

    if isinstance(source, DatabaseName):
        return None
    try:
        own = [] if _is_folder_of_turns(source, last) else find_files(source)
        if is_several(source):
            stores = [one.source for one in read_members(source).values() if not one.is_transcripts]
            if any(isinstance(store, DatabaseName) for store in stores):
                return None
            for store in stores:
                with suppress(SourceMissingError):  # the own one, or a folder without a note
                    own += find_files(path_of(store))
        # A write not yet in the file is in a log next to it; any reader leaves an empty one.
        ends = ("", "-wal", "-journal")
        files = [Path(f"{file}{end}") for file in (*own, *beside) for end in ends]
        held = [file for file in files if file.is_file() and file.stat().st_size]
        return hash_json([(str(file), hash_file(file), count_expired(file)) for file in held])
    except (SourceError, OSError):
        return None


def _is_folder_of_turns(source: Path, last: Path) -> bool:
    """Return whether a source is agent transcripts, now or at the last export."""
    if stores_in(source):
        return False
    if is_transcripts(source):
        return True
    from noctuary.sources.export import read_report  # not needed by hooks

    try:
        return source.is_dir() and read_report(last).identity.kind == KIND
    except StoreError:
        return False


class CombinedSource(Source):
    """A source with the rows of another of its kind of ids joined to it; closed with both.

    It is named as the first, whose rows come first.
    """

    def __init__(self, primary: Source, joined: Source) -> None:
        self._own = primary
        self._joined = joined

    @property
    def own(self) -> Source:
        """Return the store."""
        return self._own

    def identity(self) -> SourceIdentity:
        """Return the identity of the store, with the state of the joined source among its marks."""
        identity, joined = self._own.identity(), self._joined.identity()
        marks = {f"{joined.kind}_{name}": mark for name, mark in joined.marker.items()}
        return replace(identity, marker={**identity.marker, **marks})

    def count(self) -> int:
        """Return the number of rows of both."""
        return self._own.count() + self._joined.count()

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows of both by ascending id, the store's first among equals."""

        def placed(source: Source, rank: int) -> Iterator[tuple[tuple[Any, ...], int, RawRow]]:
            last = ()  # A row without an id stays behind its neighbour
            for row in source.rows():
                last = last if row.key is None else (row.key,)
                yield last, rank, row

        both = merge(placed(self._own, 0), placed(self._joined, 1), key=itemgetter(0, 1))
        yield from (row for _, _, row in both)

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the rows of one id, of both."""
        yield from self._own.rows_of(key)
        yield from self._joined.rows_of(key)

    def close(self) -> None:
        """Close both."""
        try:
            self._joined.close()
        finally:
            self._own.close()
