"""Normalised discounted cumulative gain with binary relevance.

What belongs here: this one metric. Grades are in graded_ndcg.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from noctuary.evaluate.metrics.dcg import normalised_dcg
from noctuary.evaluate.metrics.hits import hit_vector


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
    gains = [float(hit) for hit in hit_vector(ranking, relevant, k)]
    return normalised_dcg(gains, [1.0] * min(len(set(relevant)), k))
