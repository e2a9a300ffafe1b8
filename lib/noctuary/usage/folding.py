"""Folding the access log from where the last night stopped. Build side.

What belongs here: the sums per memory, the mark up to which the log is in them, and how both are
kept between nights. What does not: which memories still exist (`statistics`) and when rows of the
log are deleted (`retention`). The sums outlive the rows they were made of.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noctuary.foreign_json import parse_json

_FORMAT = 2
_FORMAT_WITHOUT_DAYS = 1

_DAY_US = 86_400_000_000

_SUMS = (
    f"SELECT memory_id, retrieved_at_us / {_DAY_US}, COUNT(*), MAX(retrieved_at_us) "
    "FROM retrievals WHERE {which} GROUP BY 1, 2 ORDER BY 1, 2"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where a log was folded.

    Attributes:
        log_id: The log's application_id: one that is made after a deletion has another.
        position: The last row that was folded; 0 before the first.
        at_us: The latest retrieval that was folded, microseconds since the epoch.
    """

    log_id: int = 0
    position: int = 0
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """Every retrieval that was ever folded, as sums.

    Attributes:
        by_memory: memory_id -> (retrievals, last retrieval in microseconds), of all memories that
            the log ever named.
        mark: Up to where the log is in them.
        days: memory_id -> (distinct days of retrieval, the last of them as days since the epoch).
            Days are counted forward: a row that arrives after a later day was counted adds none.
    """

    by_memory: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    mark: Mark = Mark()
    days: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def to_json(self) -> str:
        """Return the text that `parse` reads."""
        mark = [self.mark.log_id, self.mark.position, self.mark.at_us]
        content = {
            "format": _FORMAT,
            "mark": mark,
            "by_memory": self.by_memory,
            "days": self.days,
        }
        return json.dumps(content, sort_keys=True) + "\n"


def parse_folded(text: str) -> Folded | None:
    """Return what `Folded.to_json` wrote, in this version or the one before; else None.

    Format 1 did not count days: a memory has at least the one of its last retrieval.
    """
    try:
        content: dict[str, Any] = parse_json(text)
        if content["format"] not in (_FORMAT, _FORMAT_WITHOUT_DAYS):
            return None
        log_id, position, at_us = map(int, content["mark"])
        sums = {m: (int(n), int(last)) for m, (n, last) in content["by_memory"].items()}
        if content["format"] == _FORMAT_WITHOUT_DAYS:
            days = {m: (1, last // _DAY_US) for m, (_, last) in sums.items()}
        else:
            days = {m: (int(n), int(last)) for m, (n, last) in content["days"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if days.keys() != sums.keys():
        return None
    return Folded(sums, Mark(log_id, position, at_us), days)


def read_folded(path: Path) -> Folded:
    """Return what the nights before have folded.

    Nothing, if the file is missing or damaged: the whole log that is left is folded then.
    """
    try:
        return parse_folded(path.read_text(encoding="utf-8")) or Folded()
    except (OSError, ValueError):
        return Folded()


def fold_on(before: Folded, log_path: Path) -> tuple[Folded, int]:
    """Add the rows of the log that are not in the sums yet.

    A log that took the place of the one folded before is added as a whole; one that was put back
    from a backup from the latest moment on that was folded.

    Returns:
        The new sums and how many rows were added. A missing log adds nothing.

    Raises:
        sqlite3.Error: If the log cannot be read.
    """
    if not log_path.exists():
        return before, 0
    with closing(sqlite3.connect(f"{log_path.absolute().as_uri()}?mode=ro", uri=True)) as log:
        # One transaction: the mark and the sums are of the same moment, whoever appends meanwhile.
        log.execute("BEGIN")
        log_id: int = log.execute("PRAGMA application_id").fetchone()[0]
        position = _last_position(log)
        known = before.mark.log_id == log_id
        which, start = "position > ?", before.mark.position if known else 0
        if known and _was_put_back(log, before.mark, position):
            which, start = "retrieved_at_us > ?", before.mark.at_us
        rows = log.execute(_SUMS.format(which=which), [start])
        return _add(before, rows, Mark(log_id, position, before.mark.at_us))


def _last_position(log: sqlite3.Connection) -> int:
    """Return the highest position that was ever given: the last row may have been deleted."""
    last = log.execute("SELECT COALESCE(MAX(position), 0) FROM retrievals").fetchone()[0]
    given = log.execute("SELECT seq FROM sqlite_sequence WHERE name = 'retrievals'").fetchone()
    return max(last, given[0] if given else 0)


def _was_put_back(log: sqlite3.Connection, mark: Mark, position: int) -> bool:
    """Tell whether positions that were folded are gone or were given again.

    A row at the mark that is later than everything folded cannot have been folded.
    """
    at = log.execute("SELECT retrieved_at_us FROM retrievals WHERE position = ?", [mark.position])
    row = at.fetchone()
    return position < mark.position or (row is not None and row[0] > mark.at_us)


def _add(
    before: Folded, rows: Iterable[tuple[str, int, int, int]], mark: Mark
) -> tuple[Folded, int]:
    """Add rows of (memory, day, retrievals, last), ordered by memory and day; count them too."""
    sums, days, added, latest_us = dict(before.by_memory), dict(before.days), 0, mark.at_us
    for memory_id, day, count, last_us in rows:
        seen, before_us = sums.get(memory_id, (0, last_us))
        sums[memory_id] = (seen + count, max(before_us, last_us))
        counted, last_day = days.get(memory_id, (0, day - 1))
        if day > last_day:
            days[memory_id] = (counted + 1, day)
        added += count
        latest_us = max(latest_us, last_us)
    return Folded(sums, Mark(mark.log_id, mark.position, latest_us), days), added
