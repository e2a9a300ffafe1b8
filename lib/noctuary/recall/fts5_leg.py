"""The lexical leg as people run it today: the faithful FTS5 search over one snapshot.

What belongs here: building the index in memory on first use, and a `Leg` of what it finds. What
does not: the search itself, which is `noctuary.lexical.fts_seed` unchanged.

The index takes about as much memory as the texts and is built once per opened snapshot, so this
mode is for comparing and for small stores; "bm25" reads what the night has scored already.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.immutable import connect_immutable
from noctuary.lexical.fts_seed import FtsSeed
from noctuary.recall.legs import Leg
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Mask
from noctuary.snapshot import layout

LEAST_SCORE = 1e-6
"""What the worst ranked memory gets where the blend is not above 0: FTS5's own floor of a word's
weight. Only the legs' contract needs it; it is too small to reorder anything in a fusion."""

_ROWS = (
    "SELECT position, content, category, tags, expanded_keywords, importance FROM memories "
    "ORDER BY position"
)
_SUMMARY_ROWS = (
    "SELECT (SELECT COUNT(*) FROM memories) + s.ordinal, s.text, 'summary', '', '', "
    "(SELECT MAX(m.importance) FROM summary_sources o JOIN memories m ON m.position = o.position "
    "WHERE o.summary_id = s.summary_id) FROM summaries s ORDER BY s.ordinal"
)


class _Index:
    """The index of one snapshot; one search at a time, because they share a connection."""

    def __init__(self, rows_file: Path, statements: Sequence[str]) -> None:
        self._rows_file = rows_file
        self._statements = statements
        self._lock = threading.Lock()
        self._seed: FtsSeed | None = None

    def search(self, query: str, mask: Mask | None, depth: int) -> list[tuple[int, float]]:
        allowed = None if mask is None else _allowed_by(mask)
        with self._lock:
            if self._seed is None:
                self._seed = _build(self._rows_file, self._statements)
            return self._seed.search(query, depth, "and_then_or", allowed=allowed)


_Indexes = weakref.WeakKeyDictionary[SnapshotReader, dict[bool, _Index]]
_indexes: _Indexes = weakref.WeakKeyDictionary()
"""By snapshot, and whether the summaries are in it: with them, words are rarer or less so."""
_lock = threading.Lock()


def rank_fts5(
    reader: SnapshotReader,
    query: str,
    mask: Mask | None,
    depth: int,
    summaries: NDArray[np.bool_] | None = None,
) -> Leg:
    """Rank by the claude-memory local search: every word, else any; bm25 blended with importance.

    The filter acts inside the search: what it hides takes no place, and if every memory that holds
    all the words is hidden, those that hold any are looked for. bm25's own statistics are those of
    the whole store, as in the original.

    Args:
        reader: The snapshot; its index is built by the first call and goes with the reader.
        query: Any text; operators of FTS5 are words like others.
        mask: Which memories may be found, shape (n,), or None.
        summaries: Which summaries may be found, shape (s,), or None for none.
        depth: Most memories to rank.

    Returns:
        A leg whose ranking is `FtsSeed.search`'s order and whose scores are its blends (0 where a
        memory is not ranked); moved up together to `LEAST_SCORE` if the lowest is not above 0.
    """
    count = reader.count
    if summaries is not None:
        seen = np.ones(count, dtype=np.bool_) if mask is None else mask
        mask, count = np.concatenate([seen, summaries]), count + summaries.size
    found = _index_of(reader, summaries is not None).search(query, mask, min(depth, count))
    if not found:
        return Leg.empty()
    ranking = np.array([position for position, _ in found], dtype=np.int64)
    scores = _above_zero(np.array([score for _, score in found], dtype=np.float64))
    known = dict(zip(ranking.tolist(), scores.tolist(), strict=True))

    def scores_at(positions: NDArray[np.int64]) -> NDArray[np.float64]:
        flat = [known.get(position, 0.0) for position in positions.ravel().tolist()]
        return np.array(flat, dtype=np.float64).reshape(positions.shape)

    return Leg(ranking, scores_at)


def _index_of(reader: SnapshotReader, with_summaries: bool) -> _Index:
    statements = (_ROWS, _SUMMARY_ROWS) if with_summaries else (_ROWS,)
    with _lock:
        known = _indexes.setdefault(reader, {})
        if with_summaries not in known:
            known[with_summaries] = _Index(reader.directory / layout.ROWS_FILE, statements)
        return known[with_summaries]


def _allowed_by(mask: Mask) -> Callable[[int], bool]:
    return lambda position: bool(mask[position])


def _above_zero(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    lowest = float(scores.min())
    # Only then: a shift changes how much better one hit is than another, which "cc" looks at.
    return scores if lowest > 0 else scores - lowest + LEAST_SCORE


def _build(rows_file: Path, statements: Sequence[str]) -> FtsSeed:
    with closing(connect_immutable(rows_file)) as rows:
        return FtsSeed.build(row for sql in statements for row in rows.execute(sql))
