"""Exact nearest neighbours by cosine: the dense baseline and the dense half of `hybrid_seed`.

No approximate index, no fusion.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from bench.arms.freshness import Freshness
from noctuary.evaluate.labels import Query
from noctuary.recall.query import Mask


class CosineRetriever(ArmRetriever):
    """Ranks every memory of the snapshot by cosine, whatever its sign; ties by position."""

    def __init__(self, name: str, views: CorpusViews) -> None:
        super().__init__(name)
        self._views = views
        self._freshness = Freshness()

    @property
    def index_size_bytes(self) -> int:
        """Bytes of the vectors."""
        return int(self._views.vectors.nbytes)

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the k nearest memories, within the query's wing if so scoped."""
        self._freshness.turn_to(query)
        views = self._views
        scores = views.vectors @ views.encode(query)
        best = best_positions(scores, k, views.wing_mask(query))
        return [(views.snapshot_ids[p], float(scores[p])) for p in best]


def best_positions(
    scores: NDArray[np.float32], k: int, mask: Mask | None = None
) -> NDArray[np.int64]:
    """Return the positions of the k highest scores, best first, ties by position.

    Unlike recall's legs this keeps scores of 0 and below: a nearest neighbour is one even if
    nothing is near.

    Args:
        scores: Shape (n,), finite.
        k: How many, none if it is not positive.
        mask: Shape (n,), True where a memory may be returned; None for all.
    """
    allowed = np.arange(scores.size) if mask is None else np.flatnonzero(mask)
    values = scores[allowed]
    if k <= 0 or not values.size:
        return allowed[:0].astype(np.int64)
    if values.size > k:
        # Every tie of the last place stays in, so that the stable sort decides by position.
        kept = values >= np.partition(values, values.size - k)[values.size - k]
        allowed, values = allowed[kept], values[kept]
    return allowed[np.argsort(-values, kind="stable")[:k]].astype(np.int64)
