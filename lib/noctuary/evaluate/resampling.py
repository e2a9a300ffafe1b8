"""How means are resampled, and the intervals of many columns at once.

What belongs here: the settings of every interval and test, and sharing one resampling between all
columns over the same queries. What does not: the statistics themselves (statistics/), which arm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.statistics.bootstrap import (
    DEFAULT_CONFIDENCE,
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    MIN_VALUES,
    Interval,
    bootstrap_means,
    interval_of,
)
from noctuary.evaluate.statistics.power import DEFAULT_POWER

DIGITS = 6
"""Decimals kept in JSON: finer than 10,000 queries can tell apart, free of platform noise."""

DEFAULT_ALPHA = 0.05
"""Largest adjusted p-value that counts as significant: lower misses more, higher cries more."""

COLUMNS_AT_ONCE = 512
"""Columns resampled together (10,000 draws: 41 MB). Fewer save memory, but every block draws the
same resamples again, which for 1,476 queries takes as long as its matrix product (0.1 s)."""


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings of every interval and test of a report.

    Attributes:
        draws: Resamples per group of queries, at least 1.
        seed: Seed of every resampling: the same scores give the same numbers.
        confidence: Coverage of the intervals, in (0, 1).
        power: Power that the minimum detectable difference is stated for, in [0.5, 1).
        alpha: Level that a Holm-adjusted p-value must stay below, in (0, 1).
    """

    draws: int = DEFAULT_DRAWS
    seed: int = DEFAULT_SEED
    confidence: float = DEFAULT_CONFIDENCE
    power: float = DEFAULT_POWER
    alpha: float = DEFAULT_ALPHA

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"draws starts at 1, got {self.draws}")
        for name in ("confidence", "alpha"):
            value = getattr(self, name)
            if not 0.0 < value < 1.0:
                raise ValueError(f"{name} must lie in (0, 1), got {value}")
        if not 0.5 <= self.power < 1.0:
            raise ValueError(f"power must lie in [0.5, 1), got {self.power}")


def column_intervals(values: NDArray[np.float64], resampling: Resampling) -> list[Interval | None]:
    """Return the interval of every column's mean; all columns share the resampled rows.

    Args:
        values: Shape (n, m): n queries by m columns (arms by metrics), n at least 1.
        resampling: Draws, seed and confidence.

    Returns:
        One interval per column; all None for fewer than two rows.
    """
    n, m = values.shape
    if n < MIN_VALUES:
        return [None] * m
    found: list[Interval | None] = []
    for start in range(0, m, COLUMNS_AT_ONCE):
        block = values[:, start : start + COLUMNS_AT_ONCE]
        # The seed is the same for every block, so blocks are resampled in pairs as well.
        means = bootstrap_means(block, resampling.draws, resampling.seed)
        # One column's means after another in memory: quantiles of strided columns cost more.
        by_column = np.ascontiguousarray(means.T)
        found.extend(
            interval_of(block[:, column], by_column[column], resampling.confidence)
            for column in range(block.shape[1])
        )
    return found


def interval_json(found: Interval | None) -> dict[str, float | None]:
    """Return the ends of an interval, rounded, None where there is no interval."""
    if found is None:
        return {"low": None, "high": None}
    return {"low": round(found.low, DIGITS), "high": round(found.high, DIGITS)}


def interval_from_json(
    mean: float, n: int, low: float | None, high: float | None
) -> Interval | None:
    """Return the interval that `interval_json` wrote."""
    return None if low is None or high is None else Interval(mean, low, high, n)
