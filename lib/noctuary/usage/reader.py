"""What recall may know about use: counts, and the formula of long-term potentiation."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.sqlite import READ_FAULTS, ReplacedFile, connect_immutable
from noctuary.core.types import DAY_US, UNDATED_US

# The file usage.sqlite: its format, its tables and what its rows mean. The night replaces the file
# as a whole; nobody ever writes into the one that readers have open.

FORMAT = formats.USAGE.version  # `user_version` of the file
# `access` has the memories that were ever returned and still exist, `ltp` all that were scanned,
# `co_retrieval` the pairs with a < b by code point.
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE access (
    memory_id TEXT PRIMARY KEY, retrievals INTEGER NOT NULL, recent INTEGER NOT NULL,
    days INTEGER NOT NULL, last_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX access_by_use ON access (recent DESC, last_us DESC, memory_id) WHERE recent > 0;
CREATE TABLE co_retrieval (
    a TEXT NOT NULL, b TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE ltp (
    memory_id TEXT PRIMARY KEY, ltp_multiplier REAL NOT NULL, ltp_score REAL NOT NULL,
    decayed_score REAL NOT NULL, last_accessed_us INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""

# Keys of `meta`.
WINDOW_DAYS = "window_days"  # `access.recent` counts the retrievals of so many days before AS_OF_US
AS_OF_US = "as_of_us"  # When the night counted, microseconds since the epoch
DIGEST = "digest"  # Of window, `access` and `co_retrieval` (SHA-256): equal ones answer alike
NOT_SCANNED = "ltp_not_scanned"  # Memories that the last scan left out because of max_scan_depth
RESUME_AT = "ltp_resume_at"  # Position from which the next bounded scan goes on
BATCH_ROWS = 5_000  # Of a scan: more is a little faster and takes more memory

# Long-term potentiation: what is recalled often counts more. Two faces of one number: the
# multiplier in [1, LTP_MAX_BOOST] for ranking, the score in [0, 1] for thresholds of compaction.

Ints, Floats = NDArray[np.int64], NDArray[np.float64]

# Weight of ln(1 + n) (MemPalace #441): with it 27 retrievals in the window double a score.
LTP_GAIN = 0.3
LTP_MAX_BOOST = 2.0  # of the multiplier: more favours the few that are always recalled
LTP_WINDOW_DAYS = 30  # retrievals of this many days count; fewer forgets habits faster


def ltp_multiplier(retrievals: Ints, max_boost: float = LTP_MAX_BOOST) -> Floats:
    """Return clamp(1 + 0.3 * ln(1 + n), 1, max_boost) of n >= 0 retrievals inside the window."""
    return np.clip(1.0 + LTP_GAIN * np.log1p(np.maximum(retrievals, 0)), 1.0, max_boost)


def ltp_score(multiplier: Floats, max_boost: float = LTP_MAX_BOOST) -> Floats:
    """Return the multiplier on a scale of [0, 1]; `max_boost` is above 1."""
    return np.clip((multiplier - 1.0) / (max_boost - 1.0), 0.0, 1.0)


def decayed(score: Floats, idle_days: Floats, decay_lambda: float) -> Floats:
    """Return score * exp(-lambda * days since the last access) (RFC 914, phase 13); all >= 0."""
    return score * np.exp(-decay_lambda * idle_days)


def last_accessed(last_us: Ints, created_at_us: Ints) -> Ints:
    """Return when each memory was last of use: its last retrieval, else its creation."""
    return np.where(last_us == UNDATED_US, created_at_us, last_us)


def idle_days(accessed_us: Ints, now_us: int) -> Floats:
    """Return days since the last access, >= 0; 0 of an unknown or future moment."""
    known = np.where(accessed_us == UNDATED_US, now_us, accessed_us)
    return np.maximum((now_us - known) / DAY_US, 0.0)


# The night never changes the file, it puts another in its place. So a reader opens it immutable,
# takes no lock, and answers from the one it opened; `refreshed` looks for a newer one. Without a
# readable file every answer is "never used": its absence must not fail a recall.

_Answer = TypeVar("_Answer")
_IDS = "SELECT value FROM json_each(?)"


class Usage(NamedTuple):
    """How often memories were recalled; int64 arrays of one length, aligned with what was asked."""

    recent: Ints  # retrievals inside the LTP window; 0 for a memory never recalled
    days: Ints  # distinct days on which it was recalled, over all time
    last_us: Ints  # last retrieval in microseconds; UNDATED_US for none

    @staticmethod
    def none(count: int) -> Usage:
        """Return that of memories that were never recalled."""
        zeros = np.zeros(count, dtype=np.int64)
        return Usage(zeros, zeros.copy(), np.full(count, UNDATED_US, dtype=np.int64))


class UsageReader(ReplacedFile):
    """One usage.sqlite, pinned; safe to share between threads. A missing one has a warning."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.window_days = 0  # The window that `counts` counts recent retrievals in
        self.as_of_us = UNDATED_US  # When the night counted
        self.not_scanned = 0  # Memories without a fresh LTP score because of max_scan_depth
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        if self.is_missing:
            self.warning = f"{path.name} is missing: no night has counted retrievals yet"
            return
        try:
            self._db = connect_immutable(path, check_same_thread=False)
            meta = self._read_meta(self._db, FORMAT)
            self.window_days, self.as_of_us = int(meta[WINDOW_DAYS]), int(meta[AS_OF_US])
            self.not_scanned = int(meta.get(NOT_SCANNED, 0))
            self.digest = str(meta[DIGEST])
        except READ_FAULTS as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file; every later answer is "never used"."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def __del__(self) -> None:
        # A replaced reader has no owner that could close it: recalls may still share it.
        if getattr(self, "_db", None) is not None:
            self.close()

    def counts(self, memory_ids: Sequence[str]) -> Usage:
        """Return how often memories were recalled."""
        return self._ask(lambda db: read_counts(db, memory_ids), Usage.none(len(memory_ids)))

    def most_used(self, limit: int) -> list[str]:
        """Return the ids recalled most often inside the window, most first; ties: latest first."""
        order = "recent DESC, last_us DESC, memory_id"
        sql = f"SELECT memory_id FROM access WHERE recent > 0 ORDER BY {order} LIMIT ?"
        return self._ask(lambda db: [m for (m,) in db.execute(sql, [max(limit, 0)])], [])

    def co_retrieved(self, memory_ids: Sequence[str]) -> Ints:
        """Return, per id, how often it was recalled together with the others, summed: int64."""
        totals = dict.fromkeys(memory_ids, 0)
        ids = json.dumps(list(totals))
        # The plus keeps SQLite from seeking every pair: few of them exist.
        sql = f"SELECT a, b, count FROM co_retrieval WHERE a IN ({_IDS}) AND +b IN ({_IDS})"
        for a, b, count in self._ask(lambda db: db.execute(sql, [ids, ids]).fetchall(), []):
            totals[a] += count
            totals[b] += count
        return np.array([totals[m] for m in memory_ids], dtype=np.int64)

    def _ask(self, question: Callable[[sqlite3.Connection], _Answer], unknown: _Answer) -> _Answer:
        with self._lock:
            if self._db is not None:
                try:
                    return question(self._db)
                except READ_FAULTS as error:
                    self._give_up(error)
        return unknown

    def _give_up(self, error: Exception) -> None:
        """Answer nothing from here on: half an answer would be neither today's nor a replay's."""
        if self._db is not None:
            self._db.close()
        self._db = None
        self.digest = ""
        until = "use does not count until the next night has replaced it"
        self.warning = f"{self.path.name} cannot be read ({error}): {until}"


def read_counts(db: sqlite3.Connection, memory_ids: Sequence[str]) -> Usage:
    """Return what `UsageReader.counts` returns, from an open usage.sqlite."""
    usage = Usage.none(len(memory_ids))
    sql = f"SELECT memory_id, recent, days, last_us FROM access WHERE memory_id IN ({_IDS})"
    found = {m: numbers for m, *numbers in db.execute(sql, [json.dumps(list(memory_ids))])}
    for i, memory_id in enumerate(memory_ids):
        if memory_id in found:
            usage.recent[i], usage.days[i], usage.last_us[i] = found[memory_id]
    return usage
