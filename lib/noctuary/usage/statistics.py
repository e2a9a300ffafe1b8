"""Access statistics: what was folded from the access log, for the memories that exist. Build side.

What belongs here: the numbers of one night. What does not: reading the log (`folding`) and deleting
from it (`retention`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from noctuary.usage.folding import Folded, fold_on


@dataclass(frozen=True, slots=True)
class AccessStatistics:
    """How often and when memories were returned.

    Attributes:
        by_memory: memory_id -> (retrievals, last retrieval in microseconds), existing memories
            only, in order of their ids.
        orphaned: Retrievals of memories that the store no longer has.
        log_position: The last row folded.
        fault: Why the log could not be read, or None.
    """

    by_memory: dict[str, tuple[int, int]]
    orphaned: int
    log_position: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """What one night made of the log.

    Attributes:
        folded: The sums for the next night to go on from.
        statistics: The numbers for the memories that exist now.
        rows: How many rows were read.
    """

    folded: Folded
    statistics: AccessStatistics
    rows: int


def fold_access_log(path: Path, known_ids: Collection[str]) -> AccessStatistics:
    """Fold the whole log.

    A missing log is an empty one, a damaged log is reported and counts nothing.
    """
    return fold_access_log_on(Folded(), path, known_ids).statistics


def fold_access_log_on(before: Folded, path: Path, known_ids: Collection[str]) -> Fold:
    """Fold what was appended since `before`.

    A missing log adds nothing, a damaged log is reported and adds nothing.

    Args:
        before: What the nights before have folded.
        path: The log.
        known_ids: The memories that exist now.
    """
    fault = None
    try:
        after, rows = fold_on(before, path)
    except sqlite3.Error as error:
        after, rows = before, 0
        fault = f"the access log at {path.name} cannot be read: {error}"
    known = set(known_ids)
    sums = sorted(after.by_memory.items())
    by_memory = {m: counted for m, counted in sums if m in known}
    orphaned = sum(count for m, (count, _) in sums if m not in known)
    statistics = AccessStatistics(by_memory, orphaned, after.mark.position, fault)
    return Fold(after, statistics, rows)
