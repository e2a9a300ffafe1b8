"""The lexical and dense legs over one snapshot: full score arrays and their best positions.

No fusion here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon.lexical.search import hold_every_token, score, top_positions
from mnemon.recall.reader import SnapshotReader
from mnemon.recall.scope import Mask
from mnemon.text.tokens import tokenize


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg's view of a query.

    Attributes:
        scores: The leg's score of every memory, shape (n,); only compared within the leg.
        ranking: Its best allowed positions, best first, scores above 0 only.
    """

    scores: NDArray[np.float32]
    ranking: NDArray[np.int64]

    @staticmethod
    def empty(count: int) -> Leg:
        """Return a leg that found nothing."""
        return Leg(np.zeros(count, dtype=np.float32), np.empty(0, dtype=np.int64))

    def rank_of(self) -> dict[int, int]:
        """Return the 1-based rank of every ranked position."""
        return {int(p): rank for rank, p in enumerate(self.ranking, start=1)}


def rank_lexical(reader: SnapshotReader, query: str, mask: Mask | None, depth: int) -> Leg:
    """Score every memory by BM25 over the query's tokens and rank the best allowed ones."""
    scores = score(
        tokenize(query),
        reader.look_up_terms,
        reader.posting_positions,
        reader.posting_scores,
        reader.count,
    )
    return Leg(scores, top_positions(scores, depth, mask))


def find_exact_matches(
    reader: SnapshotReader, query: str, positions: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which of the positions hold every token of the query, shape of `positions`."""
    held = hold_every_token(
        tokenize(query), reader.look_up_terms, reader.posting_positions, reader.count
    )
    return held[positions]


def rank_dense(
    reader: SnapshotReader, query_vector: NDArray[np.float32], mask: Mask | None, depth: int
) -> Leg:
    """Score every memory by cosine to the query, exactly, and rank the best allowed ones.

    Raises:
        ValueError: If the query vector's dimension is not the snapshot's.
    """
    if reader.vectors is None:
        return Leg.empty(reader.count)
    scores: NDArray[np.float32] = np.asarray(reader.vectors @ query_vector, dtype=np.float32)
    return Leg(scores, top_positions(scores, depth, mask))
