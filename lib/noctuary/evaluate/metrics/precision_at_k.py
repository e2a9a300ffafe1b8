"""Precision at k. What belongs here: this one metric."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from noctuary.evaluate.metrics.hits import hit_vector


def precision_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the share of the first k slots that hold a relevant memory.

    precision@k = |relevant ∩ top k| / k. A ranking shorter than k is still divided by k (the
    convention of trec_eval's `P`), so with fewer than k relevant memories the highest value is
    |relevant| / k.

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    return float(np.count_nonzero(hit_vector(ranking, relevant, k))) / k
