"""Live rows as candidates of one recall: who may see them, and what each leg says of them.

What belongs here: joining live rows with the legs of a snapshot. What does not: finding them
(noctuary.live), lookups by position (`overlaid_reader`), fusion, which does not know where a
candidate comes from. Loaded where the store has something that the snapshot lacks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.bm25 import idf
from noctuary.lexical.search import MIN_EXACT_TOKENS
from noctuary.live.state import LiveRow, LiveState
from noctuary.live.words import document_frequencies, held_words, mean_length, score_rows
from noctuary.recall.legs import Leg, find_exact_matches
from noctuary.recall.overlaid_reader import OverlaidReader
from noctuary.recall.phases.base import Positions
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning
from noctuary.recall.scope import Mask, Scope, aware
from noctuary.recall.summary_legs import join_legs
from noctuary.text.tokens import tokenize
from noctuary.types import UNDATED_US, MemoryRecord, to_micros

if TYPE_CHECKING:
    from noctuary.recall.answer import Answer
    from noctuary.recall.asking import Request
    from noctuary.recall.run import Run
    from noctuary.recall.world import World

Vectors = Callable[[Sequence[MemoryRecord]], Mapping[str, NDArray[np.float32]]]
"""Memories, the most wanted first -> unit vectors by content hash, of as many as there was time."""

FROM_STORE = "live_overlay"
"""Warning code: how old the snapshot is and how many rows were read from the store itself."""

_UNKNOWN_VALUES = frozenset({"unknown_wing", "unknown_room", "unknown_category"})
_HOUR_US = 3_600_000_000

_means: weakref.WeakKeyDictionary[SnapshotReader, float] = weakref.WeakKeyDictionary()
"""Mean length of a snapshot's memories in tokens: read off its postings once."""


class Seen(NamedTuple):
    """What one recall sees of a look into the store.

    Attributes:
        rows: Live rows in its scope.
        mask: What it sees of the snapshot, shape (n,); None for everything.
        gained: Rows that the snapshot lacks.
        changed: Rows that the snapshot has in another form.
        lost: Memories of the snapshot that it does not see any more.
    """

    rows: tuple[LiveRow, ...]
    mask: Mask | None
    gained: int
    changed: int
    lost: int


def lay_over(
    run: Run,
    request: Request,
    world: World,
    reader: SnapshotReader,
    state: LiveState,
    mask: Mask | None,
    warnings: Sequence[RecallWarning],
    answer: Answer,
) -> tuple[Mask | None, Sequence[RecallWarning]]:
    """Add what a recall may see of the store to its answer, and say how much that is.

    Args:
        run: Gets the warnings about the look.
        request: Its scope says what may be seen.
        world: Where vectors and the clock come from.
        reader: The snapshot.
        state: What the look found.
        mask: What the scope allows of the snapshot, shape (n,); None for everything.
        warnings: The scope's own.
        answer: Gets the overlay, where there is a row to search.

    Returns:
        The mask without what the store changed or lost, and the scope's warnings that still hold.
    """
    for code, message in state.faults:
        run.warn(code, message)
    seen = see(state, reader, request.scope, mask)
    if seen.rows:

        def encode(rows: Sequence[MemoryRecord]) -> Mapping[str, NDArray[np.float32]]:
            return world.live_vectors(rows, run.left_ms())

        answer.overlay = Overlay(reader, state._replace(rows=seen.rows), encode)
        warnings = without_known(warnings, seen.rows)
    if seen.rows or seen.lost:
        run.warn(FROM_STORE, _say(seen, reader, world.now_us()))
    return seen.mask, warnings


def _say(seen: Seen, reader: SnapshotReader, now_us: int) -> str:
    built_us = to_micros(datetime.fromisoformat(reader.manifest.built_at))
    hours = max(now_us - built_us, 0) / _HOUR_US
    return (
        f"the snapshot is {hours:.1f} h old; read from the store itself: {seen.gained} new, "
        f"{seen.changed} changed, {seen.lost} gone"
    )


def see(state: LiveState, reader: SnapshotReader, scope: Scope, mask: Mask | None) -> Seen:
    """Apply a recall's scope to live rows and hide from it what they replace.

    Rows of named users are denied by default, as `build_mask` denies memories. What a user shares
    is known to the next snapshot only: until then a live row is its owner's.

    Args:
        state: What the look found.
        reader: The snapshot.
        scope: What may be seen.
        mask: What the scope allows of the snapshot; None for everything.
    """
    rows = tuple(row for row in state.rows if _is_allowed(row.memory, scope))
    places = reader.positions_of(state.hidden)
    hidden = np.array(sorted(places.values()), dtype=np.int64)
    seen = hidden if mask is None else hidden[mask[hidden]]
    before = {int(p) for p in seen.tolist()}
    # Of counts, too, only what the recall may see: a row of others changes none of them.
    held = [places.get(row.memory.memory_id) for row in rows]
    changed = sum(p is not None and p in before for p in held)
    if seen.size:
        mask = np.ones(reader.count, dtype=np.bool_) if mask is None else mask.copy()
        mask[seen] = False
    return Seen(rows, mask, len(rows) - changed, changed, len(before) - changed)


def _is_allowed(memory: MemoryRecord, scope: Scope) -> bool:
    if memory.user is not None and memory.user != scope.user:
        return False
    for name in ("wing", "room", "category"):
        wanted = getattr(scope, name)
        if wanted is not None and getattr(memory, name) != wanted:
            return False
    as_of: datetime | None = scope.as_of
    created_us = memory.created_at_us
    return as_of is None or created_us == UNDATED_US or created_us <= to_micros(aware(as_of))


def without_known(
    warnings: Sequence[RecallWarning], rows: Sequence[LiveRow]
) -> list[RecallWarning]:
    """Return the scope's warnings without "unknown" ones where a live row has the value.

    Rows are those in scope, so each of them has every value that was asked for.
    """
    return [w for w in warnings if not (rows and w.code in _UNKNOWN_VALUES)]


class Overlay:
    """The live rows of one recall as candidates; not shared between recalls.

    Attributes:
        view: The snapshot with the rows behind it.
        state: The rows.
    """

    def __init__(self, reader: SnapshotReader, state: LiveState, vectors: Vectors) -> None:
        """Take rows that the recall may see; nothing is computed yet."""
        self.state = state
        self.view = OverlaidReader(reader, [row.memory for row in state.rows])
        self._vectors = vectors
        self._has_vectors: Mask | None = None

    def add_lexical(self, query: str, leg: Leg, depth: int) -> Leg:
        """Return the lexical leg over snapshot and live rows, at most `depth` of both together."""
        return self._joined(leg, self.word_scores(query), depth)

    def add_dense(self, query: str, query_vector: NDArray[np.float32], leg: Leg, depth: int) -> Leg:
        """Return the dense leg over snapshot and live rows, at most `depth` of both together.

        A row whose vector there was no time for has no cosine, and so no place in this leg.
        """
        self._encode(query)
        scores = np.asarray(self.view.vectors_live @ query_vector, dtype=np.float32)
        return self._joined(leg, scores, depth)

    def find_exact_matches(self, query: str, positions: Positions) -> Mask:
        """Tell which of the positions hold every token of the query."""
        live = positions >= self.view.first_live
        found = np.zeros(positions.shape, dtype=np.bool_)
        found[~live] = find_exact_matches(self.view.base, query, positions[~live])
        tokens = sorted(set(tokenize(query)))
        if len(tokens) >= MIN_EXACT_TOKENS and live.any():
            held: Mask = np.logical_and.reduce(held_words(self.state, tokens))
            found[live] = held[positions[live] - self.view.first_live]
        return found

    def word_scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of every live row, on the scale of the snapshot's."""
        tokens = tokenize(query)
        base = self.view.base
        mean = _means.get(base)
        if mean is None:
            mean = _means[base] = mean_length(base)
        frequencies = document_frequencies(base, sorted(set(tokens)))
        return score_rows(self.state, tokens, frequencies, base.count, mean)

    def share_of_words(self, tokens: Sequence[str]) -> NDArray[np.float64]:
        """Return which share of a query's distinct tokens each row holds, in [0, 1], shape (l,)."""
        asked = sorted(set(tokens))
        return held_words(self.state, asked).sum(axis=0) / max(len(asked), 1)

    def coverage(self, tokens: Sequence[str], mask: Mask | None) -> NDArray[np.float64]:
        """Return the share of a query that each row holds, by idf among what may be seen.

        As `answerability_words.read_words` weighs words: in [0, 1], shape (l,).
        """
        asked = sorted(set(tokens))
        if not asked:
            return np.zeros(len(self.state.rows))
        reader = self.view.base
        visible = reader.count if mask is None else int(np.count_nonzero(mask))
        seen: list[int] = []
        for token in asked:
            held = [reader.posting_positions[a:b] for a, b in reader.look_up_terms([token])]
            seen.append(sum(p.size if mask is None else int(mask[p].sum()) for p in held))
        weights = idf(np.array(seen, dtype=np.int64), visible)
        return np.minimum(weights @ held_words(self.state, asked) / weights.sum(), 1.0)

    def cosines(self, dense: Leg) -> NDArray[np.float64]:
        """Return every row's cosine to the query, shape (l,); zeros without a dense leg."""
        places = np.arange(self.view.first_live, self.view.end, dtype=np.int64)
        return dense.scores_at(places) if dense.ranking.size else np.zeros(places.size)

    def without_vectors(self) -> int:
        """Return how many rows the dense leg could not look at; 0 where there was none."""
        return 0 if self._has_vectors is None else int(np.count_nonzero(~self._has_vectors))

    def _encode(self, query: str) -> None:
        """Fill in the vectors, of the rows that share words with the query first."""
        if self._has_vectors is not None:
            return
        scores = self.word_scores(query)
        # Then the newest: rows stand by ascending id.
        order = np.lexsort((-np.arange(scores.size), -scores))
        rows = self.view.rows
        found = self._vectors([rows[i] for i in order.tolist()])
        self._has_vectors = np.array([r.content_hash in found for r in rows], dtype=np.bool_)
        for place, row in enumerate(rows):
            if row.content_hash in found:
                self.view.vectors_live[place] = found[row.content_hash]

    def _joined(self, leg: Leg, scores: NDArray[np.float32], depth: int) -> Leg:
        everyone = np.ones(scores.size, dtype=np.bool_)
        joined = join_legs(leg, scores, everyone, self.view.first_live, depth)
        # The quota of wings looks at snapshot and summaries alone.
        return replace(joined, all_scores=leg.all_scores)
