"""From scores to a report: means per stratum and overall, with intervals.

What belongs here: grouping and the report's shape. What does not: metrics, resampling, retrieval,
differences between arms (comparison.py), tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.resampling import (
    DIGITS,
    Resampling,
    column_intervals,
    interval_from_json,
    interval_json,
)
from noctuary.evaluate.run import Run
from noctuary.evaluate.scores import Scores, group_by_queries, rows_by_stratum
from noctuary.evaluate.statistics.bootstrap import Interval
from noctuary.hashing import JsonValue

MS_DIGITS = 3
"""Decimals of a time in JSON: microseconds, far below what a machine repeats."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over n queries, in [0, 1]; `interval` is None where n is too small to resample."""

    mean: float
    interval: Interval | None
    n: int

    def to_json(self) -> dict[str, JsonValue]:
        """Return the mean, the ends of its interval and n as plain numbers."""
        ends = interval_json(self.interval)
        return {"mean": round(self.mean, DIGITS), **ends, "n": self.n}

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Mean:
        """Read back what `to_json` returned."""
        mean, n = float(raw["mean"]), int(raw["n"])
        return Mean(mean, interval_from_json(mean, n, raw["low"], raw["high"]), n)


@dataclass(frozen=True, slots=True)
class Latency:
    """Wall time around the retrieval alone, warm-up excluded, at the run's k, over n queries."""

    p50_ms: float
    p95_ms: float
    n: int

    def to_json(self) -> dict[str, JsonValue]:
        """Return the percentiles and n as plain numbers."""
        return {
            "p50_ms": round(self.p50_ms, MS_DIGITS),
            "p95_ms": round(self.p95_ms, MS_DIGITS),
            "n": self.n,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Latency:
        """Read back what `to_json` returned."""
        return Latency(float(raw["p50_ms"]), float(raw["p95_ms"]), int(raw["n"]))


@dataclass(frozen=True, slots=True)
class Report:
    """What one arm scored.

    Attributes:
        name: The arm's.
        n: Queries.
        overall: Per metric, the mean over all queries, each counting once.
        macro: Per metric, the unweighted mean of the strata's means: every stratum counts once,
            however few its queries.
        strata: The means within each stratum, by name, sorted.
        latency: Percentiles, or None if the run was not timed.
    """

    name: str
    n: int
    overall: Mapping[str, Mean]
    macro: Mapping[str, float]
    strata: Mapping[str, Mapping[str, Mean]]
    latency: Latency | None = None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as plain values, numbers rounded to `DIGITS`."""
        return {
            "name": self.name,
            "n": self.n,
            "overall": _means_json(self.overall),
            "macro": {metric: round(mean, DIGITS) for metric, mean in self.macro.items()},
            "strata": {name: _means_json(means) for name, means in self.strata.items()},
            "latency": None if self.latency is None else self.latency.to_json(),
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Report:
        """Read back what `to_json` returned.

        Raises:
            KeyError: If a key is missing.
        """
        return Report(
            name=str(raw["name"]),
            n=int(raw["n"]),
            overall=_means_from_json(raw["overall"]),
            macro={metric: float(mean) for metric, mean in raw["macro"].items()},
            strata={name: _means_from_json(means) for name, means in raw["strata"].items()},
            latency=None if raw["latency"] is None else Latency.from_json(raw["latency"]),
        )


def summarize(
    scores: Sequence[Scores],
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> list[Report]:
    """Average scores overall and per stratum, each mean with its bootstrap interval.

    Arms over the same queries share one resampling per stratum, so summarizing many arms together
    is cheaper than one by one and gives the same numbers (up to rounding of the last bits).

    Args:
        scores: One per arm; no two columns of an arm have the same name.
        resampling: Draws, seed and confidence.

    Returns:
        One report per arm, in the order given, without latency (see `latency_of`).

    Raises:
        ValueError: If an arm has no query.
    """
    empty = [found.name for found in scores if not found.query_ids]
    if empty:
        raise ValueError(f"there is no labelled query to average over in {empty}")
    reports: dict[int, Report] = {}
    for places in group_by_queries(scores):
        group = [scores[place] for place in places]
        reports.update(zip(places, _summarize_group(group, resampling), strict=True))
    return [reports[place] for place in range(len(scores))]


def latency_of(run: Run) -> Latency | None:
    """Return the percentiles of a run's times, linearly interpolated; None if it was not timed."""
    if not run.latency_ms:
        return None
    p50, p95 = np.percentile(run.latency_ms, [50.0, 95.0])
    return Latency(p50_ms=float(p50), p95_ms=float(p95), n=len(run.latency_ms))


def _summarize_group(group: Sequence[Scores], resampling: Resampling) -> list[Report]:
    """Summarize arms that are all over the same queries."""
    values = np.hstack([found.values for found in group])
    widths = [len(found.metrics) for found in group]
    overall = _split(_means(values, resampling), widths)
    strata = {
        name: _split(_means(values[rows], resampling), widths)
        for name, rows in rows_by_stratum(group[0].strata).items()
    }
    return [
        _report(found, overall[arm], {name: means[arm] for name, means in strata.items()})
        for arm, found in enumerate(group)
    ]


def _means(values: NDArray[np.float64], resampling: Resampling) -> list[Mean]:
    n = values.shape[0]
    intervals = column_intervals(values, resampling)
    return [
        Mean(float(mean), interval, n)
        for mean, interval in zip(values.mean(axis=0), intervals, strict=True)
    ]


def _split(means: Sequence[Mean], widths: Sequence[int]) -> list[Sequence[Mean]]:
    """Cut the columns of all arms into those of each."""
    stops = np.cumsum(widths).tolist()
    return [means[stop - width : stop] for stop, width in zip(stops, widths, strict=True)]


def _report(
    scores: Scores, overall: Sequence[Mean], strata: Mapping[str, Sequence[Mean]]
) -> Report:
    def named(means: Sequence[Mean]) -> dict[str, Mean]:
        return dict(zip(scores.metrics, means, strict=True))

    columns = np.array([[mean.mean for mean in means] for means in strata.values()])
    macro = columns.mean(axis=0).tolist()
    return Report(
        name=scores.name,
        n=len(scores.query_ids),
        overall=named(overall),
        macro=dict(zip(scores.metrics, macro, strict=True)),
        strata={name: named(means) for name, means in strata.items()},
    )


def _means_json(means: Mapping[str, Mean]) -> dict[str, JsonValue]:
    return {metric: mean.to_json() for metric, mean in means.items()}


def _means_from_json(raw: Mapping[str, Any]) -> dict[str, Mean]:
    return {metric: Mean.from_json(mean) for metric, mean in raw.items()}
