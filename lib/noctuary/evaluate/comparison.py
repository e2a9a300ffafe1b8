"""Paired differences between arms: intervals, tests, power, wins and losses.

What belongs here: pairing, grouping and the comparison's shape. What does not: the statistics
(statistics/), means of one arm (report.py), what is decided from a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.resampling import (
    DEFAULT_ALPHA,
    DIGITS,
    Resampling,
    column_intervals,
    interval_from_json,
    interval_json,
)
from noctuary.evaluate.scores import Scores, group_by_queries, rows_by_stratum
from noctuary.evaluate.statistics.bootstrap import Interval
from noctuary.evaluate.statistics.holm import holm
from noctuary.evaluate.statistics.permutation import permutation_p_values
from noctuary.evaluate.statistics.power import minimum_detectable_difference
from noctuary.hashing import JsonValue

TIE = 1e-9
"""Differences up to this are ties: two sums of the same terms in another order differ by 1e-16, the
smallest real difference of a metric by more than 1e-5."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean paired difference, ours - baseline, of one metric over n queries.

    Attributes:
        n: Queries.
        mean: In [-1, 1]; above 0 where ours is better.
        interval: BCa bootstrap interval; None for fewer than two queries.
        p_value: Two-sided paired permutation test, in (0, 1].
        p_holm: The same, adjusted over the strata of this metric; for overall the raw value.
        minimum_detectable: Smallest true difference that these queries would show with the power
            asked for; None for fewer than two queries. A difference that is not significant says
            nothing about effects below it.
        wins: Queries where ours is better.
        losses: Queries where the baseline is better.
        ties: The rest.
        alpha: Level that `p_holm` must stay below to be significant.
    """

    n: int
    mean: float
    interval: Interval | None
    p_value: float
    p_holm: float
    minimum_detectable: float | None
    wins: int
    losses: int
    ties: int
    alpha: float = DEFAULT_ALPHA

    @property
    def significant(self) -> bool:
        """Whether the interval excludes zero and the adjusted p-value is below alpha."""
        excludes = self.interval is not None and self.interval.excludes_zero
        return excludes and self.p_holm < self.alpha

    def to_json(self) -> dict[str, JsonValue]:
        """Return the difference as plain values; rounding never makes it significant."""
        detectable = self.minimum_detectable
        return {
            "n": self.n,
            "mean": round(self.mean, DIGITS),
            **interval_json(self.interval),
            "p_value": round(self.p_value, DIGITS),
            "p_holm": round(self.p_holm, DIGITS),
            "minimum_detectable": None if detectable is None else round(detectable, DIGITS),
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "alpha": self.alpha,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Difference:
        """Read back what `to_json` returned."""
        mean, n = float(raw["mean"]), int(raw["n"])
        detectable = raw["minimum_detectable"]
        return Difference(
            n=n,
            mean=mean,
            interval=interval_from_json(mean, n, raw["low"], raw["high"]),
            p_value=float(raw["p_value"]),
            p_holm=float(raw["p_holm"]),
            minimum_detectable=None if detectable is None else float(detectable),
            wins=int(raw["wins"]),
            losses=int(raw["losses"]),
            ties=int(raw["ties"]),
            alpha=float(raw["alpha"]),
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against another, per metric, overall and within each stratum (names sorted)."""

    ours: str
    baseline: str
    overall: Mapping[str, Difference]
    strata: Mapping[str, Mapping[str, Difference]]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the comparison as plain values, numbers rounded to `DIGITS`."""
        return {
            "ours": self.ours,
            "baseline": self.baseline,
            "overall": _differences_json(self.overall),
            "strata": {name: _differences_json(found) for name, found in self.strata.items()},
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Comparison:
        """Read back what `to_json` returned.

        Raises:
            KeyError: If a key is missing.
        """
        return Comparison(
            ours=str(raw["ours"]),
            baseline=str(raw["baseline"]),
            overall=_differences_from_json(raw["overall"]),
            strata={name: _differences_from_json(part) for name, part in raw["strata"].items()},
        )


def compare(
    pairs: Sequence[tuple[Scores, Scores]],
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> list[Comparison]:
    """Compare arms query by query: mean difference, interval, test, power, wins and losses.

    Pairs over the same queries share one resampling and one set of sign flips per stratum. Drawn
    p-values can therefore move by their sampling error when other pairs are compared along with
    them (flips are drawn for the queries on which any of the pairs differs).

    Args:
        pairs: (ours, baseline); both over the same queries in the same order, with the same strata
            and metrics.
        resampling: Draws, seed, confidence, power and alpha.

    Returns:
        One comparison per pair, in the order given.

    Raises:
        ValueError: If a pair is not aligned, or is over no query.
    """
    differences = [_subtract(ours, baseline) for ours, baseline in pairs]
    found: dict[int, Comparison] = {}
    for places in group_by_queries(differences):
        group = [differences[place] for place in places]
        parts = _compare_group(group, resampling)
        for place, (overall, strata) in zip(places, parts, strict=True):
            ours, baseline = pairs[place]
            found[place] = Comparison(ours.name, baseline.name, overall, strata)
    return [found[place] for place in range(len(pairs))]


def _subtract(ours: Scores, baseline: Scores) -> Scores:
    """Return ours - baseline as one table, after checking that the rows mean the same queries."""
    named = f"{ours.name!r} and {baseline.name!r}"
    if not ours.query_ids:
        raise ValueError(f"there is no query to compare {named} on")
    if ours.query_ids != baseline.query_ids:
        only = len(set(ours.query_ids) ^ set(baseline.query_ids))
        raise ValueError(
            f"a paired difference needs the same queries in the same order: {named} have "
            f"{len(ours.query_ids)} and {len(baseline.query_ids)} queries, {only} of them on one "
            "side only; score both runs with the same list of queries"
        )
    if ours.strata != baseline.strata:
        raise ValueError(f"{named} put the same queries into different strata")
    if ours.metrics != baseline.metrics:
        raise ValueError(
            f"{named} are scored by different metrics: {ours.metrics} and {baseline.metrics}"
        )
    return replace(ours, values=ours.values - baseline.values)


Part = tuple[dict[str, Difference], dict[str, dict[str, Difference]]]


def _compare_group(group: Sequence[Scores], resampling: Resampling) -> list[Part]:
    """Compare pairs that are all over the same queries; returns (overall, strata) of each."""
    values = np.hstack([found.values for found in group])
    overall = _differences(values, resampling)
    strata = {
        name: _differences(values[rows], resampling)
        for name, rows in rows_by_stratum(group[0].strata).items()
    }
    adjusted = _adjust(strata)
    parts: list[Part] = []
    start = 0
    for found in group:
        stop = start + len(found.metrics)
        columns = slice(start, stop)
        parts.append(
            (
                dict(zip(found.metrics, overall[columns], strict=True)),
                {
                    name: dict(zip(found.metrics, column[columns], strict=True))
                    for name, column in adjusted.items()
                },
            )
        )
        start = stop
    return parts


def _differences(values: NDArray[np.float64], resampling: Resampling) -> list[Difference]:
    """Return the difference of every column, p-values not yet adjusted."""
    intervals = column_intervals(values, resampling)
    p_values = permutation_p_values(values, resampling.draws, resampling.seed)
    wins = np.count_nonzero(values > TIE, axis=0)
    losses = np.count_nonzero(values < -TIE, axis=0)
    n = values.shape[0]
    return [
        Difference(
            n=n,
            mean=float(values[:, column].mean()),
            interval=intervals[column],
            p_value=float(p_values[column]),
            p_holm=float(p_values[column]),
            minimum_detectable=minimum_detectable_difference(
                values[:, column], resampling.confidence, resampling.power
            ),
            wins=int(wins[column]),
            losses=int(losses[column]),
            ties=n - int(wins[column]) - int(losses[column]),
            alpha=resampling.alpha,
        )
        for column in range(values.shape[1])
    ]


def _adjust(strata: Mapping[str, Sequence[Difference]]) -> dict[str, list[Difference]]:
    """Adjust the p-values of every column over the strata."""
    rows = zip(*strata.values(), strict=True)
    columns = [holm([found.p_value for found in row]) for row in rows]
    return {
        name: [
            replace(found, p_holm=columns[column][place])
            for column, found in enumerate(differences)
        ]
        for place, (name, differences) in enumerate(strata.items())
    }


def _differences_json(differences: Mapping[str, Difference]) -> dict[str, JsonValue]:
    return {metric: found.to_json() for metric, found in differences.items()}


def _differences_from_json(raw: Mapping[str, Any]) -> dict[str, Difference]:
    return {metric: Difference.from_json(found) for metric, found in raw.items()}
