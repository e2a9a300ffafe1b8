"""Reciprocal rank and its mean over queries. What belongs here: this one metric."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.metrics.hits import hit_vector

DEFAULT_DEPTH = 100
"""Ranks looked at: a first hit below 100 would add less than 0.01 to its query's value."""


def _reciprocal_rank(hits: NDArray[np.bool_]) -> float:
    return 1.0 / (int(np.argmax(hits)) + 1) if hits.any() else 0.0


def reciprocal_rank(
    ranking: Sequence[str], relevant: Collection[str], depth: int = DEFAULT_DEPTH
) -> float:
    """Return 1 / rank of the first relevant result, 0 if none stands within `depth`.

    Args:
        ranking: Ids, best first.
        relevant: Ids of the relevant memories; not empty.
        depth: How many ranks are looked at, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `depth` is below 1.
    """
    return _reciprocal_rank(hit_vector(ranking, relevant, depth))


def mean_reciprocal_rank(
    runs: Iterable[tuple[Sequence[str], Collection[str]]], depth: int = DEFAULT_DEPTH
) -> float:
    """Return the mean reciprocal rank over (ranking, relevant ids) pairs.

    Raises:
        ValueError: If there is no pair, or one of them has no relevant id.
    """
    values = [reciprocal_rank(ranking, relevant, depth) for ranking, relevant in runs]
    if not values:
        raise ValueError("the mean over no queries is undefined")
    return float(np.mean(values))
