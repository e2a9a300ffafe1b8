"""Significance of a mean over queries: intervals, tests, power (decisions/0012)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import JsonValue

Floats = NDArray[np.float64]

DEFAULT_ALPHA = 0.05  # largest adjusted p that counts: lower misses more, higher cries more
MIN_VALUES = 2  # below there is nothing to resample, and no width would claim certainty
DIGITS = 6  # decimals in JSON: finer than 10,000 queries can resolve, free of platform noise
_CHUNK_CELLS = 2_000_000  # of a resampling matrix at once (16 MB): larger gains no speed
_TIE = 1e-12  # relative to the largest value: means this close are the same sum in another order

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Resampling:
    """Settings of every interval and test of a report."""

    draws: int = 10_000  # more steadies end points and small p-values, at a cost linear in draws
    seed: int = 20_260_101  # the same scores give the same numbers
    confidence: float = 0.95  # coverage of the intervals, in (0, 1)
    power: float = 0.8  # chance to find the minimum detectable difference, in [0.5, 1) (Cohen 1988)
    alpha: float = DEFAULT_ALPHA  # level that a Holm-adjusted p-value must stay below, in (0, 1)

    @property
    def tails(self) -> tuple[float, float]:
        """The two quantile levels that `confidence` lies between."""
        tail = (1.0 - self.confidence) / 2.0
        return tail, 1.0 - tail


STANDARD = Resampling()


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over n values and its confidence interval from `low` to `high`."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low > 0.0 or self.high < 0.0


def draw_counts(rng: np.random.Generator, rows: int, n: int) -> NDArray[np.int64]:
    """Return how often each of n values is drawn in each of `rows` resamples, shape (rows, n)."""
    picks = rng.integers(0, n, size=(rows, n)) + np.arange(rows)[:, None] * n
    return np.bincount(picks.ravel(), minlength=rows * n).reshape(rows, n)


def chunks(total: int, cells: int) -> list[int]:
    """Cut `total` resamples of so many cells each into sizes that memory holds at once."""
    size = max(1, _CHUNK_CELLS // cells)
    return [min(size, total - start) for start in range(0, total, size)]


def bootstrap_means(values: Floats, resampling: Resampling = STANDARD) -> Floats:
    """Resample rows with replacement: from shape (n, m) to the column means (draws, m)."""
    # All columns share the draws, so a difference of two columns is resampled in pairs.
    n = values.shape[0]
    rng = np.random.default_rng(resampling.seed)
    sizes = chunks(resampling.draws, n)
    return np.vstack([draw_counts(rng, rows, n).astype(np.float64) @ values / n for rows in sizes])


def _bca_interval(values: Floats, means: Floats, resampling: Resampling) -> Interval:
    """Return the interval corrected for bias and skew (BCa; Efron 1987)."""
    mean, centred = float(values.mean()), values - values.mean()
    if float(np.ptp(values)) == 0.0:
        constant = float(values[0])
        return Interval(constant, constant, constant, values.size)
    # Skew is free of scale; without this the powers of tiny values underflow to 0 / 0.
    centred /= np.abs(centred).max()
    tie = _TIE * float(np.abs(values).max())
    below = np.count_nonzero(means < mean - tie)
    tied = np.count_nonzero(np.abs(means - mean) <= tie)
    # Half of the ties count as below: metrics of few queries are discrete.
    share = (below + 0.5 * tied) / means.size
    bias = _NORMAL.inv_cdf(min(max(share, 0.5 / means.size), 1.0 - 0.5 / means.size))
    # The jackknife of a mean in closed form.
    skew = float(np.sum(centred**3)) / (6.0 * float(np.sum(centred**2)) ** 1.5)
    scores = [bias + _NORMAL.inv_cdf(tail) for tail in resampling.tails]
    levels = [_NORMAL.cdf(bias + z / (1.0 - skew * z)) for z in scores]
    low, high = np.quantile(means, levels)
    return Interval(mean, float(low), float(high), values.size)


def _require_values(values: Floats, ndim: int) -> None:
    if values.ndim != ndim or not len(values) or not np.isfinite(values).all():
        raise ValueError(
            f"expected finite values of at least one query in {ndim} dimensions, got shape "
            f"{values.shape}"
        )


def column_intervals(values: Floats, resampling: Resampling = STANDARD) -> list[Interval | None]:
    """Return the BCa interval of the mean of every column, shape (n, m); None below two rows."""
    # Equal values give no width: they show no variation, which is no proof that there is none.
    _require_values(values, 2)
    n, m = values.shape
    if n < MIN_VALUES:
        return [None] * m
    # One column's means after another in memory: quantiles of strided columns cost more.
    means = np.ascontiguousarray(bootstrap_means(values, resampling).T)
    return [_bca_interval(values[:, i], means[i], resampling) for i in range(m)]


def mean_interval(values: Floats, resampling: Resampling = STANDARD) -> Interval | None:
    """Return the interval of the mean of per-query values, shape (n,) (see `column_intervals`)."""
    return column_intervals(values[:, None], resampling)[0]


def permutation_p_values(differences: Floats, resampling: Resampling = STANDARD) -> Floats:
    """Return two-sided p-values of the column means when either arm could have been the other.

    Under the null hypothesis every sign of a difference is as likely as its opposite (Fisher 1935;
    Smucker, Allan and Carterette 2007 for retrieval). The p-value is the share of sign flips whose
    mean is at least as far from zero as the observed one: over all 2^n flips where these are no
    more than `draws` (n counts the queries that differ in some column), else
    (count + 1) / (draws + 1) over random ones (Phipson and Smyth 2010: valid at any number).

    Differences of shape (n, m) share the flips; p-values, shape (m,), lie in (0, 1] and are 1 where
    nothing differs. ValueError for another shape, no query, or a value that is not finite.
    """
    _require_values(differences, 2)
    moving = differences[differences.any(axis=1)]
    n = moving.shape[0]
    if n == 0:
        return np.ones(differences.shape[1], dtype=np.float64)
    exact = 2**n <= resampling.draws
    total = moving.sum(axis=0)
    bound = np.abs(total) - _TIE * np.abs(moving).sum(axis=0)
    rng = np.random.default_rng(resampling.seed)
    done, count = 0, np.zeros(moving.shape[1], dtype=np.int64)
    for rows in chunks(2**n if exact else resampling.draws, n):
        # 1 marks a flip; the bits of a number are one of all ways to flip n signs.
        numbers = np.arange(done, done + rows, dtype=np.int64)[:, None]
        flips = numbers >> np.arange(n) & 1 if exact else _random_flips(rng, rows, n)
        sums = total - 2.0 * (flips.astype(np.float64) @ moving)
        count += np.count_nonzero(np.abs(sums) >= bound, axis=0)
        done += rows
    return count / done if exact else (count + 1) / (done + 1)


def _random_flips(rng: np.random.Generator, rows: int, n: int) -> NDArray[np.uint8]:
    """Return random ways to flip n signs, one bit of the generator per sign."""
    # Whole 32-bit words per row: the generator hands out no less, so chunks do not change the rows.
    row_bytes = 4 * -(-n // 32)
    raw = np.frombuffer(rng.bytes(rows * row_bytes), dtype=np.uint8)
    return np.unpackbits(raw.reshape(rows, row_bytes), axis=1, count=n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that the chance of any false alarm stays below the level."""
    # The i-th smallest of m (i from 1) is multiplied by m - i + 1, raised to the adjusted one
    # before it and capped at 1 (Holm 1979). No independence is assumed.
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for n_smaller, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - n_smaller) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def minimum_detectable_difference(
    differences: Floats, resampling: Resampling = STANDARD
) -> float | None:
    """Return the true mean difference that a two-sided paired test would find with `power`."""
    # (z_(1 - a/2) + z_power) * sd / sqrt(n), a = 1 - confidence: the normal approximation, a few
    # percent too low below some twenty queries. None below two queries; 0 where all differences are
    # equal, which is no proof that any difference would be found.
    if differences.size < MIN_VALUES:
        return None
    _require_values(differences, 1)
    if float(np.ptp(differences)) == 0.0:
        return 0.0  # in floats the deviation of equal values need not come out as zero
    z_sum = _NORMAL.inv_cdf(0.5 + resampling.confidence / 2.0) + _NORMAL.inv_cdf(resampling.power)
    return z_sum * float(differences.std(ddof=1)) / float(np.sqrt(differences.size))


@dataclass(frozen=True, slots=True)
class Result:
    """Numbers that are written as JSON: rounded, infinite ones as None, an interval as its ends."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields in their order as plain values."""
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_interval = field.name == "interval"
            found |= interval_json(value) if is_interval else {field.name: to_plain(value)}
        return found

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`; ignores other keys, KeyError if one is missing."""
        names = [field.name for field in fields(cls)]
        plain = {name: raw[name] for name in names if name != "interval"}
        if "interval" in names:
            mean, n, low, high = (raw[name] for name in ("mean", "n", "low", "high"))
            plain["interval"] = (
                None if low is None or high is None else Interval(mean, low, high, n)
            )
        return cls(**plain)


def to_plain(value: Any) -> JsonValue:
    """Return a number, a `Result`, or a mapping or sequence of them as plain values."""
    if isinstance(value, float):
        return round(value, DIGITS) if math.isfinite(value) else None
    if isinstance(value, Result):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: to_plain(inner) for name, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def interval_json(found: Interval | None) -> dict[str, float | None]:
    """Return the ends of an interval, rounded, None where there is no interval."""
    if found is None:
        return {"low": None, "high": None}
    return {"low": round(found.low, DIGITS), "high": round(found.high, DIGITS)}
