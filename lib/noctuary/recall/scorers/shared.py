"""What the scorers share: inputs made safe, weights that sum to 1, and the order of a result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Ranked = tuple[NDArray[np.int64], FloatArray]


def unit_of(values: NDArray[np.floating]) -> FloatArray:
    """Return values clipped to [0, 1], same shape; NaN and infinities are 0.

    Of cosines this makes similarities: a negative one is as good as none.
    """
    exact = values.astype(np.float64)
    return np.clip(np.where(np.isfinite(exact), exact, 0.0), 0.0, 1.0)


def convex_weights(weights: Sequence[float], fallback: Sequence[float]) -> FloatArray:
    """Return the weights clamped to [0, 1] and scaled to sum to 1.

    Source: libravdb mathematics section 1 and research/peers.md 1.1.

    Args:
        weights: Any numbers; what is not finite counts as 0.
        fallback: Taken whole if nothing is left of them; sums to 1.

    Returns:
        In [0, 1], shape (len(weights),).
    """
    clamped = unit_of(np.array(weights, dtype=np.float64))
    total = math.fsum(clamped)
    return clamped / total if total > 0.0 else np.array(fallback, dtype=np.float64)


def decayed(ages_s: FloatArray, rates_per_s: FloatArray | float) -> FloatArray:
    """Return exp(-rate * age), in [0, 1], exactly 1 at age 0.

    Args:
        ages_s: Finite; below 0 (a date in the future) counts as 0.
        rates_per_s: Finite; below 0 counts as 0.
    """
    with np.errstate(over="ignore"):
        return np.exp(-np.maximum(ages_s, 0.0) * np.maximum(rates_per_s, 0.0))


def best_first(positions: NDArray[np.int64], scores: FloatArray) -> Ranked:
    """Return both sorted by descending score, ties by lower position."""
    order = np.lexsort((positions, -scores))
    return positions[order], scores[order]
