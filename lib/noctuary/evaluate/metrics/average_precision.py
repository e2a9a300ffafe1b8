"""Average precision, whose mean over queries is MAP. What belongs here: this one metric."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.metrics.hits import hit_vector


def _average_precision(hits: NDArray[np.bool_], n_relevant: int) -> float:
    hit_ranks = np.flatnonzero(hits) + 1
    precisions = np.arange(1, hit_ranks.size + 1) / hit_ranks
    return float(precisions.sum()) / n_relevant


def average_precision(ranking: Sequence[str], relevant: Collection[str], depth: int) -> float:
    """Return the precision at the rank of every relevant memory, averaged over all of them.

    AP@depth = (1 / |relevant|) * sum over relevant ranks r <= depth of precision@r. A relevant
    memory that is not found adds 0, and the denominator is not capped at the depth (the convention
    of trec_eval's `map_cut`).

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        depth: How many ranks are looked at, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `depth` is below 1.
    """
    return _average_precision(hit_vector(ranking, relevant, depth), len(set(relevant)))
