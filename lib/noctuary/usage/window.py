"""What the log still holds of the last weeks: recent retrievals, and what was recalled together.

What belongs here: counting in the single rows, every night anew, because a window moves on without
anything new being appended. What does not: sums over all time (`folding`). Build side.

Memory stays bounded whatever the log holds: rows are streamed, and pairs are counted in a private
SQLite database that spills to disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from noctuary.usage.folding import Mark

CO_RETRIEVAL_RANKS = 10
"""Only the best so many answers of a recall count as recalled together: 45 pairs at most. More
links what merely filled a long list, fewer misses the tail of an ordinary one."""

CO_RETRIEVAL_PAIRS = 200_000
"""Pairs kept, the most frequent and among those the newest (about 10 MB); more remembers looser
ties, fewer makes the file that recall reads smaller."""

_PAIRS_AT_ONCE = 50_000
"""Pairs handed to SQLite in one call, some 5 MB."""

_LOW_32 = 0xFFFF_FFFF

_RECENT = (
    "SELECT memory_id, COUNT(*) FROM retrievals "
    "WHERE position <= ? AND retrieved_at_us >= ? GROUP BY memory_id"
)
_TOP_ROWS = (
    "SELECT memory_id, rank, snapshot_id, retrieved_at_us FROM retrievals "
    f"WHERE position <= ? AND retrieved_at_us >= ? AND rank <= {CO_RETRIEVAL_RANKS} "
    "ORDER BY position"
)

Pair = tuple[str, str, int]
"""Two memories, a < b, and how many recalls returned both."""

_Recall = tuple[int, list[str]]


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted in the log's rows.

    Attributes:
        recent: memory_id -> retrievals inside the LTP window.
        pairs: What was recalled together while the log remembers, ordered by both ids.
        pairs_left_out: Pairs beyond `CO_RETRIEVAL_PAIRS`.
    """

    recent: dict[str, int] = field(default_factory=dict[str, int])
    pairs: list[Pair] = field(default_factory=list[Pair])
    pairs_left_out: int = 0


def count_window(
    log_path: Path,
    folded: Mark,
    known: Collection[str],
    *,
    recent_since_us: int,
    pairs_since_us: int,
) -> Window:
    """Count what the log holds of the memories that exist.

    Args:
        log_path: The log; a missing one, or another than was folded, counts nothing.
        folded: Up to where rows count, so that sums and window are of one moment.
        known: The memories that exist now; fast to look into.
        recent_since_us: Where the LTP window begins, inclusive.
        pairs_since_us: From when on co-retrievals count, inclusive.

    Raises:
        sqlite3.Error: If the log cannot be read.
    """
    if not log_path.exists():
        return Window()
    with closing(sqlite3.connect(f"{log_path.absolute().as_uri()}?mode=ro", uri=True)) as log:
        log.execute("BEGIN")
        if log.execute("PRAGMA application_id").fetchone()[0] != folded.log_id:
            return Window()
        rows = log.execute(_RECENT, [folded.position, recent_since_us])
        recent = {memory_id: count for memory_id, count in rows if memory_id in known}
        top = log.execute(_TOP_ROWS, [folded.position, pairs_since_us])
        pairs, left_out = _count_pairs(_recalls(top, known))
    return Window(recent, pairs, left_out)


def _recalls(
    rows: Iterable[tuple[str, int, str, int]], known: Collection[str]
) -> Iterator[_Recall]:
    """Group the rows of one recall: appended in one go, of one snapshot and time, ranks rising."""
    ids: list[str] = []
    current: tuple[str, int] | None = None
    rank_before = 0
    for memory_id, rank, snapshot_id, at_us in rows:
        if current != (snapshot_id, at_us) or rank <= rank_before:
            if current is not None:
                yield current[1], ids
            ids, current = [], (snapshot_id, at_us)
        rank_before = rank
        if memory_id in known:
            ids.append(memory_id)
    if current is not None:
        yield current[1], ids


def _count_pairs(recalls: Iterable[_Recall]) -> tuple[list[Pair], int]:
    """Return the pairs worth keeping, with their counts, and how many others there were."""
    number_of: dict[str, int] = {}
    # An empty name is a temporary database: in memory while small, then in an unlinked file.
    with closing(sqlite3.connect("", isolation_level=None)) as scratch:
        scratch.execute("CREATE TABLE pairs (pair INTEGER NOT NULL, at_us INTEGER NOT NULL)")
        scratch.execute("BEGIN")
        for some in _batches(_numbered_pairs(recalls, number_of)):
            scratch.executemany("INSERT INTO pairs VALUES (?, ?)", some)
        scratch.execute(
            "CREATE TABLE counted AS SELECT pair, COUNT(*) AS count, MAX(at_us) AS newest_us "
            "FROM pairs GROUP BY pair"
        )
        total: int = scratch.execute("SELECT COUNT(*) FROM counted").fetchone()[0]
        kept = scratch.execute(
            "SELECT pair, count FROM counted ORDER BY count DESC, newest_us DESC, pair LIMIT ?",
            [CO_RETRIEVAL_PAIRS],
        ).fetchall()
    ids = list(number_of)
    named = [(*sorted((ids[pair >> 32], ids[pair & _LOW_32])), count) for pair, count in kept]
    return sorted((a, b, count) for a, b, count in named), total - len(kept)


def _numbered_pairs(
    recalls: Iterable[_Recall], number_of: dict[str, int]
) -> Iterator[tuple[int, int]]:
    """Yield each pair of each recall once, as one integer, and its time; number ids on the way."""
    for at_us, ids in recalls:
        numbers = sorted({number_of.setdefault(m, len(number_of)) for m in ids})
        for i, low in enumerate(numbers):
            for high in numbers[i + 1 :]:
                yield low << 32 | high, at_us


def _batches(pairs: Iterator[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    batch: list[tuple[int, int]] = []
    for pair in pairs:
        batch.append(pair)
        if len(batch) == _PAIRS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
