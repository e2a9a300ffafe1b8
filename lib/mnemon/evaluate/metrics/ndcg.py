"""Normalised discounted cumulative gain with binary relevance.

What belongs here: this one metric.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from mnemon.evaluate.metrics.hits import hit_vector


def _dcg(gains: NDArray[np.float64]) -> float:
    return float(gains @ (1.0 / np.log2(np.arange(2, gains.size + 2))))


def _ndcg(hits: NDArray[np.bool_], n_relevant: int, k: int) -> float:
    ideal = np.ones(min(n_relevant, k), dtype=np.float64)
    # Both sums run over the same discounts; the minimum takes off what rounding may leave above 1.
    return min(1.0, _dcg(hits.astype(np.float64)) / _dcg(ideal))


def ndcg_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the discounted gain of the first k results relative to the best possible order.

    DCG = sum over relevant ranks r (from 1) of 1 / log2(r + 1); the ideal order has min(|relevant|,
    k) relevant results first (Järvelin and Kekäläinen 2002, with gains 0 and 1).

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    return _ndcg(hit_vector(ranking, relevant, k), len(set(relevant)), k)
