"""Recall at k. What belongs here: this one metric."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.metrics.hits import hit_vector


def _recall(hits: NDArray[np.bool_], n_relevant: int) -> float:
    return float(np.count_nonzero(hits)) / n_relevant


def recall_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the share of the relevant memories that stand in the first k results.

    recall@k = |relevant ∩ top k| / |relevant|. The denominator is not capped at k: with more than k
    relevant memories the highest value is k / |relevant| (the convention of trec_eval's `recall`).

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    return _recall(hit_vector(ranking, relevant, k), len(set(relevant)))
