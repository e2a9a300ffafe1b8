"""What a mean over queries can and cannot show: intervals, tests, power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

# Bootstrap intervals of a mean and of a paired mean difference.


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


# Paired permutation test of a mean difference.


def _chunks(total: int, n: int) -> Iterator[tuple[int, int]]:
    rows = max(1, _CHUNK_CELLS // n)
    for start in range(0, total, rows):
        yield start, min(start + rows, total)


def _enumerated_flips(n: int) -> Iterator[NDArray[np.float64]]:
    """Yield all 2^n ways to flip n signs, the unflipped one among them; 1.0 marks a flip."""
    for start, stop in _chunks(2**n, n):
        codes = np.arange(start, stop, dtype=np.int64)
        yield (codes[:, None] >> np.arange(n) & 1).astype(np.float64)


def _drawn_flips(n: int, draws: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield `draws` random ways to flip n signs, one bit of the generator per sign."""
    rng = np.random.default_rng(seed)
    # Whole 32-bit words per row: the generator hands out no less, so chunks do not change the rows.
    row_bytes = 4 * -(-n // 32)
    for start, stop in _chunks(draws, n):
        raw = np.frombuffer(rng.bytes((stop - start) * row_bytes), dtype=np.uint8)
        bits = np.unpackbits(raw.reshape(stop - start, row_bytes), axis=1, count=n)
        yield bits.astype(np.float64)


def _count_extreme(
    differences: NDArray[np.float64], flips: Iterator[NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Count the flips whose column sums are at least as far from zero as the observed ones."""
    total = differences.sum(axis=0)
    bound = np.abs(total) - _TIE * np.abs(differences).sum(axis=0)
    count = np.zeros(differences.shape[1], dtype=np.int64)
    for chunk in flips:
        sums = total - 2.0 * (chunk @ differences)
        count += np.count_nonzero(np.abs(sums) >= bound, axis=0)
    return count


def _check(differences: NDArray[np.float64], draws: int) -> None:
    if differences.ndim != 2:
        raise ValueError(
            f"differences must be queries by columns (n, m), got shape {differences.shape}"
        )
    if differences.shape[0] == 0:
        raise ValueError("a test over no queries is undefined")
    if not np.isfinite(differences).all():
        raise ValueError("a difference is not finite; a metric of a query is always a number")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")


def permutation_p_values(
    differences: NDArray[np.float64], draws: int = DEFAULT_DRAWS, seed: int = DEFAULT_SEED
) -> NDArray[np.float64]:
    """Return two-sided p-values of the column means when either arm could have been the other.

    Under the null hypothesis the two arms are exchangeable per query, so every sign of a difference
    is as likely as its opposite (Fisher 1935; Smucker, Allan and Carterette 2007 for retrieval).
    The p-value is the share of sign flips whose mean is at least as far from zero as the observed
    one: over all 2^n flips where these are no more than `draws` (n counts the queries that differ
    in some column, the others have no sign to flip), else (count + 1) / (draws + 1) over random
    ones (Phipson and Smyth 2010: never zero, valid at any number of draws).

    Args:
        differences: Shape (n, m): ours minus baseline, n queries by m columns (metrics or arms).
            All columns share the flips.
        draws: Random flips; more steadies small p-values, whose floor is 1 / (draws + 1).
        seed: Seed of numpy's default generator.

    Returns:
        Shape (m,), each in (0, 1]; 1 where nothing differs.

    Raises:
        ValueError: If there is no query, a value is not finite, the shape is not (n, m) or `draws`
            is below 1.
    """
    _check(differences, draws)
    moving = differences[differences.any(axis=1)]
    n = moving.shape[0]
    if n == 0:
        return np.ones(differences.shape[1], dtype=np.float64)
    if 2**n <= draws:
        return _count_extreme(moving, _enumerated_flips(n)) / 2**n
    return (_count_extreme(moving, _drawn_flips(n, draws, seed)) + 1) / (draws + 1)


# Holm's correction of p-values for many tests.


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that the chance of any false alarm stays below the level.

    The i-th smallest of m p-values (i from 1) is multiplied by m - i + 1, raised to the adjusted
    one before it and capped at 1 (Holm 1979). No independence is assumed.

    Args:
        p_values: One per test of the family, each in [0, 1]; may be empty.

    Returns:
        The adjusted values in the order given, each at least its raw value and at most 1.

    Raises:
        ValueError: If a value lies outside [0, 1] or is NaN.
    """
    wrong = [p for p in p_values if not 0.0 <= p <= 1.0]
    if wrong:
        raise ValueError(f"a p-value lies in [0, 1], got {len(wrong)} that do not: {wrong[:10]}")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for n_smaller, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - n_smaller) * p_values[place]))
        adjusted[place] = highest
    return adjusted


# The smallest difference that a set of queries could have shown.


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


# How means are resampled, and the intervals of many columns at once.


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
