"""UsageReader: what recall may know about use. Read side: standard library and numpy.

What belongs here: answering from usage.sqlite. What does not: making it (`writing`, `scoring`).

The night never changes the file, it puts another in its place. So a reader opens it immutable,
takes no lock, and answers from the one it opened however many nights go by; `refreshed` looks for
a newer one. Without a readable file every answer is "never used": use may lift a memory, its
absence must not fail a recall.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.immutable import connect_immutable, identify
from noctuary.types import UNDATED_US
from noctuary.usage.usage_file import (
    AS_OF_US,
    DIGEST,
    FORMAT,
    MAX_VARIABLES,
    NOT_SCANNED,
    WINDOW_DAYS,
)

Counts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Retrievals inside the window, distinct days over all time, last retrieval in microseconds."""

_FAULTS = (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError)


class UsageReader:
    """One usage.sqlite, pinned; safe to share between threads.

    Attributes:
        path: The file.
        is_missing: True when there was no file: no night has counted yet.
        warning: Why nothing, or nothing any more, can be read; None while all is well.
        window_days: The window that `counts` counts recent retrievals in; 0 without a file.
        as_of_us: When the night counted; UNDATED_US without a file.
        digest: Names the answers: two readers of one digest answer alike. "" without a file.
        not_scanned: Memories without a fresh LTP score because of max_scan_depth.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warning: str | None = None
        self.window_days = 0
        self.as_of_us = UNDATED_US
        self.digest = ""
        self.not_scanned = 0
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        # Before the file is opened: if it is replaced in between, `refreshed` opens it again.
        self._identity = identify(path)
        self.is_missing = self._identity is None
        if self.is_missing:
            self.warning = f"{path.name} is missing: no night has counted retrievals yet"
            return
        try:
            self._db = connect_immutable(path, check_same_thread=False)
            self._read_meta(self._db)
        except _FAULTS as error:
            self._give_up(error)

    @classmethod
    def open(cls, path: Path) -> UsageReader:
        """Return a reader; one without answers, and with a warning, if the file is unusable."""
        return cls(path)

    def refreshed(self) -> UsageReader:
        """Return this reader while its file is the one at the path, else one of the new file.

        Costs one look at the file's metadata. The old reader goes on answering for whoever has it.
        """
        return self if identify(self.path) == self._identity else UsageReader(self.path)

    def close(self) -> None:
        """Close the file; every later answer is "never used"."""
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    def counts(self, memory_ids: Sequence[str]) -> Counts:
        """Return how often memories were recalled.

        Returns:
            Recent, days and last_us, int64, aligned with the ids; 0, 0 and UNDATED_US for a
            memory never recalled.
        """
        with self._lock:
            if self._db is not None:
                try:
                    return read_counts(self._db, memory_ids)
                except _FAULTS as error:
                    self._give_up(error)
        return _no_counts(len(memory_ids))

    def most_used(self, limit: int) -> list[str]:
        """Return the ids recalled most often inside the window, most first; ties: latest first."""
        found = self._rows(
            "SELECT memory_id FROM access WHERE recent > 0 "
            "ORDER BY recent DESC, last_us DESC, memory_id LIMIT ?",
            [max(limit, 0)],
        )
        return [memory_id for (memory_id,) in found]

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return, per id, how often it was recalled together with the others, summed over them.

        Returns:
            int64, aligned with the ids.
        """
        totals = dict.fromkeys(memory_ids, 0)
        distinct = list(totals)
        for some in _chunks(distinct):
            for others in _chunks(distinct):
                # The plus keeps SQLite from seeking every pair: few of them exist.
                sql = (
                    f"SELECT a, b, count FROM co_retrieval WHERE a IN ({_marks(some)}) "
                    f"AND +b IN ({_marks(others)})"
                )
                for a, b, count in self._rows(sql, [*some, *others]):
                    totals[a] += count
                    totals[b] += count
        if self.warning is not None:
            return np.zeros(len(memory_ids), dtype=np.int64)
        return np.array([totals[m] for m in memory_ids], dtype=np.int64)

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            if self._db is None:
                return []
            try:
                return self._db.execute(sql, values).fetchall()
            except _FAULTS as error:
                self._give_up(error)
                return []

    def _read_meta(self, db: sqlite3.Connection) -> None:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found != FORMAT:
            raise ValueError(f"format {found}, expected {FORMAT}")
        meta: dict[str, Any] = dict(db.execute("SELECT key, value FROM meta"))
        self.window_days = int(meta[WINDOW_DAYS])
        self.as_of_us = int(meta[AS_OF_US])
        self.not_scanned = int(meta.get(NOT_SCANNED, 0))
        self.digest = str(meta[DIGEST])

    def _give_up(self, error: Exception) -> None:
        """Answer nothing from here on: half an answer would be neither today's nor a replay's."""
        if self._db is not None:
            self._db.close()
        self._db = None
        self.digest = ""
        self.warning = (
            f"{self.path.name} cannot be read ({error}): use does not count until the next night "
            "has replaced it"
        )


def read_counts(db: sqlite3.Connection, memory_ids: Sequence[str]) -> Counts:
    """Return what `UsageReader.counts` returns, from an open usage.sqlite.

    Raises:
        sqlite3.Error: If it cannot be read.
    """
    recent, days, last_us = _no_counts(len(memory_ids))
    found: dict[str, list[int]] = {}
    for some in _chunks(memory_ids):
        columns = "memory_id, recent, days, last_us"
        sql = f"SELECT {columns} FROM access WHERE memory_id IN ({_marks(some)})"
        found.update((memory_id, numbers) for memory_id, *numbers in db.execute(sql, some))
    for i, memory_id in enumerate(memory_ids):
        if memory_id in found:
            recent[i], days[i], last_us[i] = found[memory_id]
    return recent, days, last_us


def _no_counts(size: int) -> Counts:
    none = np.zeros(size, dtype=np.int64)
    return none, none.copy(), np.full(size, UNDATED_US, dtype=np.int64)


def _chunks(values: Sequence[str]) -> Iterator[Sequence[str]]:
    half = MAX_VARIABLES // 2
    for start in range(0, len(values), half):
        yield values[start : start + half]


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))
