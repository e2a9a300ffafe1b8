"""The smallest difference that a set of queries could have shown.

What belongs here: the power of a paired comparison. What does not: whether one was found.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.statistics.bootstrap import DEFAULT_CONFIDENCE, MIN_VALUES

DEFAULT_POWER = 0.8
"""Chance to find a difference of the returned size: the custom since Cohen 1988. Higher asks for a
larger difference or more queries."""


def minimum_detectable_difference(
    differences: NDArray[np.float64],
    confidence: float = DEFAULT_CONFIDENCE,
    power: float = DEFAULT_POWER,
) -> float | None:
    """Return the true mean difference that a two-sided paired test would find with `power`.

    (z_(1 - alpha/2) + z_power) * sd / sqrt(n), alpha = 1 - confidence, with the sample standard
    deviation of the differences: the normal approximation, which is a few percent too low below
    some twenty queries (the t distribution has heavier tails).

    Args:
        differences: Shape (n,): ours minus baseline per query, finite.
        confidence: 1 - level of the test, in (0, 1).
        power: Chance of finding it, in [0.5, 1).

    Returns:
        The difference in units of the metric, at least 0; None for fewer than two queries. 0 where
        all differences are equal: the sample shows no variation, which is no proof that any
        difference would be found.

    Raises:
        ValueError: If a value is not finite, the array is not one-dimensional, or `confidence` or
            `power` is out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    if not 0.5 <= power < 1.0:
        raise ValueError(f"power must lie in [0.5, 1), got {power}")
    if differences.ndim != 1 or not np.isfinite(differences).all():
        raise ValueError(
            f"differences must be finite, one per query; got shape {differences.shape}"
        )
    if differences.size < MIN_VALUES:
        return None
    if float(np.ptp(differences)) == 0.0:
        return 0.0  # in floats the deviation of equal values need not come out as zero
    normal = NormalDist()
    z_sum = normal.inv_cdf(0.5 + confidence / 2.0) + normal.inv_cdf(power)
    return z_sum * float(differences.std(ddof=1)) / float(np.sqrt(differences.size))
