"""What a leg is, and the lexical one: its best positions and the scores behind them.

The dense leg has its own module (`dense`). No fusion here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.search import hold_every_token, rank
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Mask
from noctuary.text.tokens import tokenize
from noctuary.values import dataclass

ScoresAt = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg's view of a query.

    Attributes:
        ranking: Its best allowed positions, best first, scores above 0 only.
        scores_at: The leg's own score of any positions, ranked or not, shape as asked; only
            compared within the leg.
        all_scores: The same for every memory, shape (n,), where the leg has scored them all; where
            summaries are searched they follow, shape (n + s,).
    """

    ranking: NDArray[np.int64]
    scores_at: ScoresAt
    all_scores: NDArray[np.float32] | None = None

    @staticmethod
    def empty() -> Leg:
        """Return a leg that found nothing."""
        return Leg(np.empty(0, dtype=np.int64), lambda positions: np.zeros(positions.shape))

    @staticmethod
    def of_scores(scores: NDArray[np.float32], ranking: NDArray[np.int64]) -> Leg:
        """Return a leg that scored every memory, shape (n,)."""
        return Leg(ranking, lambda positions: scores[positions].astype(np.float64), scores)

    def rank_of(self) -> dict[int, int]:
        """Return the 1-based rank of every ranked position."""
        return {int(p): rank for rank, p in enumerate(self.ranking, start=1)}


def rank_lexical(reader: SnapshotReader, query: str, mask: Mask | None, depth: int) -> Leg:
    """Score every memory by BM25 over the query's tokens and rank the best allowed ones."""
    scores, ranking = rank(
        tokenize(query),
        reader.look_up_terms,
        reader.posting_positions,
        reader.posting_scores,
        reader.count,
        depth,
        mask,
    )
    return Leg.of_scores(scores, ranking)


def find_exact_matches(
    reader: SnapshotReader, query: str, positions: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which of the positions hold every token of the query, shape of `positions`."""
    held = hold_every_token(
        tokenize(query), reader.look_up_terms, reader.posting_positions, reader.count
    )
    if positions.size and int(positions.max()) >= reader.count:
        from noctuary.recall.summary_legs import hold_every_word

        held = np.concatenate([held, hold_every_word(reader, query)])
    return held[positions]
