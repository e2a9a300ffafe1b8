"""Bringing the replica of a store up to date, by as little reading as what is known allows.

What belongs here: the order of a capture, and when a window is not enough. What does not: the file
(`noctuary.capture.replica_file`), what is kept of a row (`noctuary.capture.stored_row`).

Every run asks which ids there are: hard deletes leave nothing else to see, and a row that is new is
read whatever its date. Then either the rows that changed since the last run and a little before it
(a transaction may commit late with an older time), or, from time to time and whenever a clock or
the ids went back, the digests of all rows and those that differ. Upserts of equal rows change
nothing, so that a run may be repeated. The clock is the store's, and it moves in the transaction
that moves the rows: a run that dies leaves the run before (research/peers.md 2.3).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import noctuary
from noctuary.capture.replica_file import (
    Kept,
    ReplicaFile,
    Seen,
    StoredLine,
    explain,
    remove_replica,
)
from noctuary.capture.stored_row import encode_row
from noctuary.corpus.changes import ChangeFeed
from noctuary.corpus.source import DEFAULT_BATCH_ROWS, RawRow, Source
from noctuary.errors import SourceError
from noctuary.hashing import hash_json, hash_text
from noctuary.progress import SILENT, Progress
from noctuary.settings import CaptureSettings

TASK = "capture"

FIRST = "first"
DUE = "due"
CLOCK_WENT_BACK = "clock_went_back"
IDS_WENT_BACK = "ids_went_back"
DAMAGED = "damaged"

_MINUTE_US = 60_000_000
_HOUR_US = 60 * _MINUTE_US
_READERS = ("capture", "corpus", "postgres", "text")
"""Packages that decide what a row looks like in the replica: sources, judgement, secret scan."""

_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
    }
)  # fmt: skip
"""Making the file anew would not help against these."""


class FollowedSource(Source, ChangeFeed, Protocol):
    """A source that tells what changed."""


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What one capture did; numbers and reasons only.

    Attributes:
        is_full: Everything was compared, not only what changed lately.
        why: Why it was: "first", "due", "clock_went_back", "ids_went_back", "damaged"; else "".
        read: Rows whose text was asked for.
        added: Rows that were not there before.
        edited: Rows of which something else is kept now.
        removed: Rows that the store has no more.
        rows: Rows that the replica holds now; as many as the store.
    """

    is_full: bool
    why: str
    read: int
    added: int
    edited: int
    removed: int
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def capture(
    source: FollowedSource,
    path: Path,
    settings: CaptureSettings | None = None,
    *,
    user: str = "",
    progress: Progress = SILENT,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> CaptureReport:
    """Bring the replica of a store up to the state that an open source is pinned to.

    A replica that is missing, damaged, or of another store, user or version of noctuary is made
    anew.

    Args:
        source: The store; not closed here.
        path: `StorePaths.replica`; the caller holds the store's lock.
        settings: Overlap and distance of full comparisons; None means the defaults.
        user: Whose rows the source gives (`source.user`); part of what the replica belongs to.
        progress: Told after each batch of ids.
        batch_rows: Rows asked for at once.

    Raises:
        SourceError: The store cannot be read to its end, or contradicts itself. The replica stays
            as it was.
        StoreError: The replica cannot be written.
    """
    run = _Run(source, path, settings or CaptureSettings(), progress, batch_rows)
    binding = _binding_of(source, user)
    try:
        return run.capture(binding)
    except _DamagedError:
        pass
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _NOT_DAMAGE:
            raise explain(path, error) from None
    try:
        remove_replica(path)
        return run.capture(binding, why=DAMAGED)
    except _DamagedError as error:
        raise SourceError(
            f"{source.identity().location} counts {error.counted} rows but names {error.named}. "
            f"Nothing was kept; run again, and report this if it stays."
        ) from None
    except sqlite3.Error as error:
        raise explain(path, error) from None


class _DamagedError(Exception):
    def __init__(self, counted: int = 0, named: int = 0) -> None:
        super().__init__(counted, named)
        self.counted, self.named = counted, named


@dataclass(slots=True)
class _Tally:
    read: int = 0
    added: int = 0
    edited: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class _Run:
    source: FollowedSource
    path: Path
    settings: CaptureSettings
    progress: Progress
    batch_rows: int

    def capture(self, binding: str, why: str = "") -> CaptureReport:
        """Do it once, `why` given: as a full comparison.

        Raises:
            _DamagedError: The replica is damaged, or does not hold as many rows as the store.
        """
        now_us = self.source.now_us()
        with closing(ReplicaFile(self.path, binding)) as replica:
            if not replica.is_whole():
                raise _DamagedError
            tally = _Tally()
            with replica.transaction():
                why = why or self._why_full(replica, now_us)
                why = self._follow(replica, why, tally)
                counted, rows = self.source.count(), replica.count()
                if rows != counted:
                    raise _DamagedError(counted, rows)
                replica.keep_fact("watermark_us", str(now_us))
                if why:
                    replica.keep_fact("full_us", str(now_us))
        return CaptureReport(
            is_full=bool(why),
            why=why,
            read=tally.read,
            added=tally.added,
            edited=tally.edited,
            removed=tally.removed,
            rows=rows,
        )

    def _why_full(self, replica: ReplicaFile, now_us: int) -> str:
        """Return why a window is not enough, or ""."""
        watermark, full = replica.fact("watermark_us"), replica.fact("full_us")
        if watermark is None or full is None:
            return FIRST
        if now_us < max(int(watermark), int(full)):
            return CLOCK_WENT_BACK
        is_due = now_us - int(full) >= self.settings.full_diff_hours * _HOUR_US
        return DUE if is_due else ""

    def _follow(self, replica: ReplicaFile, why: str, tally: _Tally) -> str:
        """Bring the rows up to date; return why everything was compared, "" if it was not."""
        last_before = replica.last_key()
        if not why:
            self._compare(replica, _named(self.source.keys(self.batch_rows)), tally)
            last_now = replica.last_key()
            # A store that was restored from a backup: what was edited since is old again.
            if last_before is not None and (last_now is None or _is_before(last_now, last_before)):
                why = IDS_WENT_BACK
        if why:
            self._compare(replica, _digested(self.source.digests(self.batch_rows)), tally)
        else:
            self._read_window(replica, tally)
        for keys in replica.wanted(self.batch_rows):
            self._keep(replica, self.source.rows_of(keys, self.batch_rows), tally)
        return why

    def _compare(
        self, replica: ReplicaFile, batches: Iterator[Sequence[Seen]], tally: _Tally
    ) -> None:
        """Mark what has to be read, and forget what is gone."""
        last: int | str | None = None
        done, total = 0, self.source.count()
        for batch in batches:
            _check_ascending(batch, last)
            tally.removed += replica.compare(batch, last)
            last = batch[-1].key
            done += len(batch)
            self.progress.update(TASK, done, total)
        tally.removed += replica.forget_above(last)

    def _read_window(self, replica: ReplicaFile, tally: _Tally) -> None:
        watermark_us = int(replica.fact("watermark_us") or 0)
        overlap_us = min(self.settings.overlap_minutes * _MINUTE_US, watermark_us)
        since_us = watermark_us - int(overlap_us)
        self._keep(replica, self.source.changed_since(since_us, self.batch_rows), tally)

    def _keep(
        self, replica: ReplicaFile, batches: Iterable[Sequence[RawRow]], tally: _Tally
    ) -> None:
        for batch in batches:
            tally.read += len(batch)
            for row in batch:
                if row.key is None:
                    raise SourceError(f"{row.locator} has no id; expected one of every row.")
                kept = replica.keep(StoredLine(row.key, encode_row(row)))
                tally.added += kept is Kept.ADDED
                tally.edited += kept is Kept.EDITED


def _named(batches: Iterable[Sequence[int | str]]) -> Iterator[list[Seen]]:
    return ([Seen(key, None) for key in batch] for batch in batches if batch)


def _digested(batches: Iterable[Sequence[Any]]) -> Iterator[list[Seen]]:
    return ([Seen(row.key, row.digest) for row in batch] for batch in batches if batch)


def _check_ascending(batch: Sequence[Seen], last: int | str | None) -> None:
    """Refuse ids out of order: ranges of them are compared.

    Raises:
        SourceError: They are.
    """
    keys = [row.key for row in batch] if last is None else [last, *(row.key for row in batch)]
    if not all(_is_before(one, other) for one, other in pairwise(keys)):
        raise SourceError("The source names its rows out of order; expected ascending ids.")


def _is_before(one: int | str, other: int | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one < other
    return one < other


def _binding_of(source: Source, user: str) -> str:
    """Return what the replica belongs to: the store, whose rows, and the code that reads them."""
    identity = source.identity()
    return hash_json(
        {
            "kind": identity.kind,
            "location": identity.location,
            "schema_version": identity.schema_version,
            "id_kind": identity.id_kind,
            "user": user,
            # By which rule rows are given to users; under another one the same rows differ.
            "users": identity.marker.get("users", ""),
            "code": _digest_readers(),
        }
    )


def _digest_readers() -> str:
    """Return a digest of the code that decides what a row looks like.

    Another version of noctuary may format a date or judge a text differently, which no digest of
    the store can tell; it reads everything once.
    """
    package = Path(str(noctuary.__file__)).parent
    files = sorted(file for name in _READERS for file in (package / name).glob("*.py"))
    return hash_text(*(file.read_text(encoding="utf-8") for file in files))
