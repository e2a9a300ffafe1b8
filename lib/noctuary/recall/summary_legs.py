"""Summaries beside memories in the legs: their scores, and one ranking of both.

What belongs here: what a leg says of the searched summaries. What does not: which are searched
(`searched`), the legs over memories (`legs`, `dense`), fusion. Loaded where summaries are searched.

Both kinds compare: a summary's words weigh what they weigh in the corpus
(noctuary.lexical.postings.build_postings_beside), and its vector comes from the same encoder.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.search import hold_every_token, score, top_positions
from noctuary.recall.legs import Leg
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.turn_cosines import score_all, score_shortlist
from noctuary.text.tokens import tokenize

Shown = NDArray[np.bool_]
"""Which summaries are searched, shape (s,)."""


def add_lexical(reader: SnapshotReader, query: str, leg: Leg, shown: Shown, depth: int) -> Leg:
    """Return the lexical leg over memories and summaries, at most `depth` of both together."""
    words = reader.summary_words
    scores = score(
        tokenize(query), reader.look_up_summary_terms, words.positions, words.scores, shown.size
    )
    return join_legs(leg, scores, shown, reader.count, depth)


def add_dense(
    reader: SnapshotReader,
    query_vector: NDArray[np.float32],
    leg: Leg,
    shown: Shown,
    depth: int,
    *,
    by_turns: bool = False,
) -> Leg:
    """Return the dense leg over memories and summaries, at most `depth` of both together.

    Summaries are compared exactly, however many there are: there is one for some dozen turns.

    Args:
        reader: The snapshot.
        query_vector: Unit vector, shape (d,).
        leg: Over the memories.
        shown: Which summaries are searched, shape (s,).
        depth: Most positions to rank.
        by_turns: Compare the query with a summary's turns instead of with its own vector.
    """
    vectors = reader.summary_vectors
    if vectors is None or reader.vectors is None:
        return leg
    arrays = reader.summaries.arrays
    if by_turns and leg.all_scores is not None:
        scores = score_all(arrays, leg.all_scores)
    else:
        scores = np.asarray(vectors @ query_vector, dtype=np.float32)
        if by_turns:
            scores = score_shortlist(arrays, reader.vectors, query_vector, scores, shown, depth)
    return join_legs(leg, scores, shown, reader.count, depth)


def join_legs(leg: Leg, scores: NDArray[np.float32], shown: Shown, count: int, depth: int) -> Leg:
    """Return one leg over memories and summaries.

    Args:
        leg: Over the memories, positions below `count`.
        scores: Of every summary on the same scale, shape (s,).
        shown: Which summaries are searched.
        count: Memories in the snapshot; summary i stands at count + i.
        depth: Most positions to rank.
    """
    best = top_positions(scores, depth, shown)
    ranking = np.concatenate([leg.ranking, best + count])
    values = np.concatenate([leg.scores_at(leg.ranking), scores[best].astype(np.float64)])
    ranking = ranking[np.lexsort((ranking, -values))[:depth]]

    def scores_at(positions: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.zeros(positions.shape, dtype=np.float64)
        inside = positions < count
        found[inside] = leg.scores_at(positions[inside])
        found[~inside] = scores[positions[~inside] - count]
        return found

    everyone = None if leg.all_scores is None else np.concatenate([leg.all_scores, scores])
    return Leg(ranking, scores_at, everyone)


def hold_every_word(reader: SnapshotReader, query: str) -> NDArray[np.bool_]:
    """Tell which summaries hold every token of the query, shape (s,)."""
    return hold_every_token(
        tokenize(query),
        reader.look_up_summary_terms,
        reader.summary_words.positions,
        reader.summaries.size,
    )
