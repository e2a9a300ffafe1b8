"""Bootstrap intervals of a mean and of a paired mean difference.

What belongs here: resampling of per-query values. What does not: which metric, which stratum, what
a verdict follows from.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DEFAULT_DRAWS = 10_000
"""Resamples: more steadies the end points between seeds, at a cost linear in draws x queries."""

DEFAULT_CONFIDENCE = 0.95
DEFAULT_SEED = 20_260_101
"""Any fixed number: the same run must give the same bytes."""

MIN_VALUES = 2
"""Below this there is nothing to resample, and an interval of no width would claim certainty."""

_CHUNK_CELLS = 2_000_000
"""Cells of the resampling matrix held at once (float64, 16 MB): larger gains no speed."""

_TIE = 1e-12
"""Relative to the largest value: means this close are the same sum in another order."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        mean: The observed mean.
        low: Lower end; equal to `mean` only if all values are equal.
        high: Upper end.
        n: How many values it is over.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low > 0.0 or self.high < 0.0


def bootstrap_means(
    values: NDArray[np.float64], draws: int = DEFAULT_DRAWS, seed: int = DEFAULT_SEED
) -> NDArray[np.float64]:
    """Resample rows with replacement and return the column means of every draw.

    All columns share the draws, so a difference of two columns is resampled in pairs.

    Args:
        values: Shape (n, m): n queries by m metrics or arms.
        draws: How many resamples, at least 1.
        seed: Seed of numpy's default generator.

    Returns:
        Shape (draws, m).
    """
    n = values.shape[0]
    rng = np.random.default_rng(seed)
    chunk = max(1, _CHUNK_CELLS // n)
    means = np.empty((draws, values.shape[1]), dtype=np.float64)
    for start in range(0, draws, chunk):
        rows = min(chunk, draws - start)
        picks = rng.integers(0, n, size=(rows, n))
        picks += np.arange(rows)[:, None] * n
        counts = np.bincount(picks.ravel(), minlength=rows * n).reshape(rows, n)
        means[start : start + rows] = counts.astype(np.float64) @ values / n
    return means


def _bca_levels(
    values: NDArray[np.float64], means: NDArray[np.float64], confidence: float
) -> tuple[float, float]:
    """Return the two quantile levels, corrected for bias and skew (Efron 1987)."""
    centred = values - values.mean()
    # Skew is free of scale; without this the powers of tiny values underflow to 0 / 0.
    centred /= np.abs(centred).max()
    tie = _TIE * float(np.abs(values).max())
    below = np.count_nonzero(means < values.mean() - tie)
    tied = np.count_nonzero(np.abs(means - values.mean()) <= tie)
    # Half of the ties count as below: metrics of few queries are discrete and would look biased
    # otherwise.
    share = (below + 0.5 * tied) / means.size
    bias = _NORMAL.inv_cdf(min(max(share, 0.5 / means.size), 1.0 - 0.5 / means.size))
    # The jackknife of a mean in closed form.
    skew = float(np.sum(centred**3)) / (6.0 * float(np.sum(centred**2)) ** 1.5)

    def level(tail: float) -> float:
        z = bias + _NORMAL.inv_cdf(tail)
        return _NORMAL.cdf(bias + z / (1.0 - skew * z))

    tail = (1.0 - confidence) / 2.0
    return level(tail), level(1.0 - tail)


def interval_of(
    values: NDArray[np.float64],
    means: NDArray[np.float64],
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval | None:
    """Return the BCa interval of a mean from its resampled means.

    Args:
        values: Shape (n,): the observed values, finite.
        means: Shape (draws,): their resampled means (a column of `bootstrap_means`).
        confidence: Coverage aimed at, in (0, 1).

    Returns:
        The interval, or None for fewer than two values. Where all values are equal it has no width:
        the sample shows no variation to resample, which is no proof that there is none.

    Raises:
        ValueError: If a value is not finite or `confidence` is out of range.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite; a metric of a query is always a number")
    if values.size < MIN_VALUES:
        return None
    mean = float(values.mean())
    if float(np.ptp(values)) == 0.0:
        constant = float(values[0])
        return Interval(mean=constant, low=constant, high=constant, n=values.size)
    low_level, high_level = _bca_levels(values, means, confidence)
    low, high = np.quantile(means, [low_level, high_level])
    return Interval(mean=mean, low=float(low), high=float(high), n=values.size)


def mean_interval(
    values: NDArray[np.float64],
    *,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval | None:
    """Return the interval of the mean of per-query values (see `interval_of`)."""
    if values.size == 0:
        raise ValueError("the mean over no queries is undefined")
    return interval_of(values, bootstrap_means(values[:, None], draws, seed)[:, 0], confidence)


def paired_interval(
    ours: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval | None:
    """Return the interval of mean(ours - baseline), the same queries in the same order.

    Raises:
        ValueError: If the two differ in length or are empty.
    """
    if ours.shape != baseline.shape:
        raise ValueError(
            "a paired difference needs the same queries in both runs, "
            f"got {ours.shape} and {baseline.shape}"
        )
    return mean_interval(ours - baseline, draws=draws, seed=seed, confidence=confidence)
