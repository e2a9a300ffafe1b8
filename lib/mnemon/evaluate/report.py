"""From per-query scores to a report: means per stratum and overall, with intervals.

What belongs here: grouping and the report's shape. What does not: metrics, resampling, retrieval,
tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon.evaluate.statistics.bootstrap import (
    DEFAULT_CONFIDENCE,
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    MIN_VALUES,
    Interval,
    bootstrap_means,
    interval_of,
)
from mnemon.hashing import JsonValue

DIGITS = 6
"""Decimals kept in JSON: finer than 10,000 queries can tell apart, free of platform noise."""


@dataclass(frozen=True, slots=True)
class QueryScores:
    """What one query scored.

    Attributes:
        query_id: The query.
        stratum: Its kind.
        values: One value in [0, 1] per metric, in the order of the report's `metrics`.
        latency_ms: Wall time of its timed retrieval; None in a report that was not timed.
    """

    query_id: str
    stratum: str
    values: tuple[float, ...]
    latency_ms: float | None = None


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """A mean over queries; `interval` is None where there are too few queries to resample."""

    mean: float
    interval: Interval | None

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the mean and, where there is one, the interval, as plain numbers."""
        found = self.interval
        ends: dict[str, JsonValue] = {"low": None, "high": None}
        if found is not None:
            ends = {"low": round(found.low, DIGITS), "high": round(found.high, DIGITS)}
        return {"mean": round(self.mean, DIGITS), **ends}


@dataclass(frozen=True, slots=True)
class StratumReport:
    """The means over the queries of one stratum (or over all of them)."""

    n_queries: int
    metrics: Mapping[str, MetricSummary]

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the counts and summaries as plain values."""
        return {
            "n": self.n_queries,
            **{name: summary.to_dict() for name, summary in self.metrics.items()},
        }


@dataclass(frozen=True, slots=True)
class Latency:
    """Wall time around the retrieval alone, warm-up excluded, at the depth of the report's k."""

    p50_ms: float
    p95_ms: float
    n: int


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Everything that one run of an evaluation says.

    Attributes:
        k: Depth at which results were asked for and timed.
        metrics: Names, in the order of every `QueryScores.values`.
        overall: Means over all queries (each query counts once, whatever its stratum).
        strata: Means per stratum, by name in sorted order.
        per_query: Scores in query order.
        latency: Percentiles, or None if the run was not timed.
        unstable_prefixes: Queries whose deeper list does not begin with the list asked at k; None
            if no deeper list was asked.
    """

    k: int
    metrics: tuple[str, ...]
    overall: StratumReport
    strata: Mapping[str, StratumReport]
    per_query: tuple[QueryScores, ...]
    latency: Latency | None = None
    unstable_prefixes: int | None = None

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the report as plain values, numbers rounded to `DIGITS`."""
        timing: JsonValue = None
        if self.latency is not None:
            timing = {
                "p50_ms": round(self.latency.p50_ms, 3),
                "p95_ms": round(self.latency.p95_ms, 3),
                "n": self.latency.n,
            }
        return {
            "k": self.k,
            "n": self.overall.n_queries,
            "metrics": list(self.metrics),
            "overall": self.overall.to_dict(),
            "strata": {name: part.to_dict() for name, part in self.strata.items()},
            "latency": timing,
            "unstable_prefixes": self.unstable_prefixes,
            "per_query": {
                row.query_id: [round(value, DIGITS) for value in row.values]
                for row in self.per_query
            },
        }

    def to_json(self) -> str:
        """Return the report as one JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def summarize(
    metrics: Sequence[str],
    per_query: Sequence[QueryScores],
    *,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[StratumReport, dict[str, StratumReport]]:
    """Average per-query scores overall and per stratum, each mean with its bootstrap interval.

    Args:
        metrics: Names of the values, in order.
        per_query: Scores; at least one.
        draws: Resamples per group.
        seed: Seed of the resampling.
        confidence: Coverage of the intervals.

    Returns:
        The overall part and the strata by name, sorted.

    Raises:
        ValueError: If there is no query, or a row has not one value per metric.
    """
    if not per_query:
        raise ValueError("there is no labelled query to average over")
    for row in per_query:
        if len(row.values) != len(metrics):
            raise ValueError(
                f"query {row.query_id!r} has {len(row.values)} values for {len(metrics)} metrics"
            )
    values = np.array([row.values for row in per_query], dtype=np.float64)
    names = np.array([row.stratum for row in per_query])

    def part(rows: NDArray[np.float64]) -> StratumReport:
        return _summarize_rows(metrics, rows, draws, seed, confidence)

    strata = {str(name): part(values[names == name]) for name in np.unique(names)}
    return part(values), strata


def compare(
    metrics: Sequence[str],
    ours: Sequence[QueryScores],
    baseline: Sequence[QueryScores],
    *,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
    confidence: float = DEFAULT_CONFIDENCE,
) -> tuple[StratumReport, dict[str, StratumReport]]:
    """Summarize the paired differences ours - baseline, overall and per stratum.

    Raises:
        ValueError: If the two runs are not over the same queries in the same order.
    """
    if [row.query_id for row in ours] != [row.query_id for row in baseline]:
        raise ValueError("a paired difference needs the same queries in the same order")
    differences = [
        QueryScores(
            query_id=mine.query_id,
            stratum=mine.stratum,
            values=tuple(a - b for a, b in zip(mine.values, other.values, strict=True)),
        )
        for mine, other in zip(ours, baseline, strict=True)
    ]
    return summarize(metrics, differences, draws=draws, seed=seed, confidence=confidence)


def _summarize_rows(
    metrics: Sequence[str],
    values: NDArray[np.float64],
    draws: int,
    seed: int,
    confidence: float,
) -> StratumReport:
    n = values.shape[0]
    # All metrics of a group share one resampling: one matrix product instead of one per metric.
    means = bootstrap_means(values, draws, seed) if n >= MIN_VALUES else values
    return StratumReport(
        n_queries=n,
        metrics={
            name: MetricSummary(
                mean=float(values[:, column].mean()),
                interval=interval_of(values[:, column], means[:, column], confidence),
            )
            for column, name in enumerate(metrics)
        },
    )
