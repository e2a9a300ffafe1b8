"""Access statistics: the access log folded to one row per memory. Build side."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AccessStatistics:
    """How often and when memories were returned.

    Attributes:
        by_memory: memory_id -> (retrievals, last retrieval in microseconds), existing memories
            only.
        orphaned: Retrievals of memories that the store no longer has.
        log_position: The last row folded.
        fault: Why the log could not be read, or None.
    """

    by_memory: dict[str, tuple[int, int]]
    orphaned: int
    log_position: int
    fault: str | None = None


def fold_access_log(path: Path, known_ids: Collection[str]) -> AccessStatistics:
    """Fold the whole log.

    A missing log is an empty one, a damaged log is reported and counts nothing.
    """
    if not path.exists():
        return AccessStatistics({}, 0, 0)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as log:
            rows = log.execute(
                "SELECT memory_id, COUNT(*), MAX(retrieved_at_us) FROM retrievals GROUP BY "
                "memory_id ORDER BY memory_id"
            ).fetchall()
            last = log.execute("SELECT COALESCE(MAX(position), 0) FROM retrievals").fetchone()[0]
    except sqlite3.Error as error:
        return AccessStatistics({}, 0, 0, f"the access log at {path.name} cannot be read: {error}")
    known = set(known_ids)
    by_memory = {m: (count, last_us) for m, count, last_us in rows if m in known}
    orphaned = sum(count for m, count, _ in rows if m not in known)
    return AccessStatistics(by_memory, orphaned, last)
