"""From runs and labels to values, differences and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import (
    all_relevant_at_k,
    average_precision,
    graded_ndcg_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
)
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import (
    DEFAULT_ALPHA,
    STANDARD,
    Floats,
    Interval,
    Resampling,
    Result,
    column_intervals,
    holm,
    minimum_detectable_difference,
    permutation_p_values,
)

# From a run and its labels to one value per query and metric.


DEFAULT_METRICS = (
    "recall@5",
    "recall@10",
    "all_relevant@10",
    "precision@5",
    "ndcg@10",
    "mrr@50",
    "map@50",
)
HEADLINE_METRIC = "recall@10"
"""What a night is summed up by: whether the answer is there at all."""


def _ndcg(ranking: Sequence[str], query: Query, k: int) -> float:
    if query.grades:
        return graded_ndcg_at_k(ranking, query.grades, k)
    return ndcg_at_k(ranking, query.relevant_ids, k)


FAMILIES: dict[str, Callable[[Sequence[str], Query, int], float]] = {
    "recall": lambda ranking, query, k: recall_at_k(ranking, query.relevant_ids, k),
    "all_relevant": lambda ranking, query, k: all_relevant_at_k(ranking, query.relevant_ids, k),
    "precision": lambda ranking, query, k: precision_at_k(ranking, query.relevant_ids, k),
    "ndcg": _ndcg,
    "mrr": lambda ranking, query, k: reciprocal_rank(ranking, query.relevant_ids, k),
    "map": lambda ranking, query, k: average_precision(ranking, query.relevant_ids, k),
}
"""Metrics by the part of their name before the @: a ranking, its query and a cutoff in, a value in
[0, 1] out. nDCG takes grades where a query has them."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What a run scored, query by query.

    Attributes:
        name: The run's.
        metrics: Names of the columns.
        query_ids: Names of the rows, each once.
        strata: The stratum of every row.
        values: Shape (n, m), each in [0, 1].
    """

    name: str
    metrics: tuple[str, ...]
    query_ids: tuple[str, ...]
    strata: tuple[str, ...]
    values: Floats

    def __post_init__(self) -> None:
        n = len(self.query_ids)
        if len(self.strata) != n or self.values.shape != (n, len(self.metrics)):
            raise ValueError(
                f"scores of {self.name!r} have {n} queries, {len(self.strata)} strata and values "
                f"of shape {self.values.shape}; expected {(n, len(self.metrics))}"
            )

    def column(self, metric: str) -> Floats:
        """Return the values of one metric, shape (n,); ValueError if these scores lack it."""
        if metric not in self.metrics:
            raise ValueError(
                f"scores of {self.name!r} lack {metric!r}; they have {', '.join(self.metrics)}"
            )
        return self.values[:, self.metrics.index(metric)]

    def select(self, keep: NDArray[np.bool_]) -> Scores:
        """Return the rows where `keep`, shape (n,), is True."""
        places = np.flatnonzero(keep).tolist()
        return replace(
            self,
            query_ids=tuple(self.query_ids[place] for place in places),
            strata=tuple(self.strata[place] for place in places),
            values=self.values[keep],
        )


def parse_metric(name: str) -> tuple[str, int]:
    """Return the family and the cutoff of a metric's name, e.g. "ndcg@10".

    Raises:
        ValueError: If the family is unknown or the cutoff is no number from 1 on.
    """
    family, _, cutoff = name.partition("@")
    if family not in FAMILIES:
        known = ", ".join(f"{known}@k" for known in FAMILIES)
        raise ValueError(f"unknown metric {name!r}; known are {known}")
    if not (cutoff.isascii() and cutoff.isdecimal() and int(cutoff) >= 1):
        raise ValueError(f"metric {name!r} needs a cutoff from 1 on, as in {family}@10")
    return family, int(cutoff)


def score_run(
    run: Run, queries: Sequence[Query], metrics: Sequence[str] = DEFAULT_METRICS
) -> Scores:
    """Score a run against the labels of its queries.

    Args:
        run: Rankings; may hold more queries than are scored, in any order.
        queries: Labelled queries (`QuerySet.ranked`), at least one; the rows follow their order.
        metrics: Names; no cutoff deeper than the run.

    Raises:
        ValueError: If there is no query, a query has no labels or no ranking in the run, or a
            metric is unknown or looks deeper than the run does.
    """
    chosen = [parse_metric(name) for name in metrics]
    rankings = dict(zip(run.query_ids, run.rankings, strict=True))
    if not queries:
        raise ValueError("there is no labelled query to score; expected at least one")
    deep = [name for name, (_, k) in zip(metrics, chosen, strict=True) if k > run.depth]
    if deep:
        raise ValueError(f"run {run.name!r} is {run.depth} deep, too shallow for {deep}")
    unlabelled = [query.query_id for query in queries if not query.relevant_ids]
    if unlabelled:
        raise ValueError(
            f"{len(unlabelled)} queries have no labels, the first: {unlabelled[:FAULTS_SHOWN]}; "
            "unanswerable queries are judged apart (judge_abstention)"
        )
    missing = [query.query_id for query in queries if query.query_id not in rankings]
    if missing:
        raise ValueError(
            f"run {run.name!r} lacks {len(missing)} of {len(queries)} queries, the first: "
            f"{missing[:FAULTS_SHOWN]}; it was made from other queries"
        )
    values = [
        [FAMILIES[family](rankings[query.query_id], query, k) for family, k in chosen]
        for query in queries
    ]
    return Scores(
        name=run.name,
        metrics=tuple(metrics),
        query_ids=tuple(query.query_id for query in queries),
        strata=tuple(query.stratum for query in queries),
        values=np.array(values, dtype=np.float64).reshape(len(queries), len(chosen)),
    )


T = TypeVar("T")
Part = dict[str, T]
"""What is known of each metric over the same queries."""


def _measure(
    scores: Sequence[Scores], columns: Callable[[Floats], Sequence[T]]
) -> list[tuple[Part[T], dict[str, Part[T]]]]:
    """Measure every metric of every arm overall and within each stratum (names sorted).

    Arms over the same queries are handed over together, so that they share their draws.

    `columns` takes values, shape (n, m), and returns one result per column.
    """
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for place, found in enumerate(scores):
        groups.setdefault((found.query_ids, found.strata), []).append(place)
    measured: dict[int, tuple[Part[T], dict[str, Part[T]]]] = {}
    for (_, strata), places in groups.items():
        values = np.hstack([scores[place].values for place in places])
        names = np.array(strata, dtype=object)
        overall = iter(columns(values))
        within = {name: iter(columns(values[names == name])) for name in sorted(set(strata))}
        for place in places:
            metrics = scores[place].metrics
            measured[place] = (
                {metric: next(overall) for metric in metrics},
                {
                    name: {metric: next(found) for metric in metrics}
                    for name, found in within.items()
                },
            )
    return [measured[place] for place in range(len(scores))]


# Paired differences between arms: intervals, tests, power, wins and losses.


TIE = 1e-9
"""Differences up to this are ties: two sums of the same terms in another order differ by 1e-16, the
smallest real difference of a metric by more than 1e-5."""


@dataclass(frozen=True, slots=True)
class Difference(Result):
    """A mean paired difference, ours - baseline, of one metric over n queries.

    Attributes:
        mean: In [-1, 1]; above 0 where ours is better.
        interval: BCa bootstrap interval; None for fewer than two queries.
        p_value: Two-sided paired permutation test, in (0, 1].
        p_holm: The same, adjusted over the strata of this metric; for overall the raw value.
        minimum_detectable: Smallest true difference that these queries would show with the power
            asked for; None for fewer than two queries. A difference that is not significant says
            nothing about effects below it.
        wins: Queries where ours is better; losses, where the baseline is.
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


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """One arm against another, per metric, overall and within each stratum (names sorted)."""

    ours: str
    baseline: str
    overall: Mapping[str, Difference]
    strata: Mapping[str, Mapping[str, Difference]]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read back what `to_json` returned; KeyError if a key is missing."""
        overall, strata = _read_parts(Difference, raw)
        return cls(raw["ours"], raw["baseline"], overall, strata)


def compare(
    pairs: Sequence[tuple[Scores, Scores]], resampling: Resampling = STANDARD
) -> list[Comparison]:
    """Compare arms query by query: mean difference, interval, test, power, wins and losses.

    Pairs over the same queries share one resampling and one set of sign flips per stratum. Drawn
    p-values can therefore move by their sampling error when other pairs are compared along with
    them (flips are drawn for the queries on which any of the pairs differs).

    Args:
        pairs: (ours, baseline); both over the same queries in the same order, with the same strata
            and metrics.
        resampling: Draws, seed, confidence, power and alpha.

    Raises:
        ValueError: If a pair is not aligned, or is over no query.
    """
    differences = [_subtract(ours, baseline) for ours, baseline in pairs]
    measured = _measure(differences, lambda values: _differences(values, resampling))
    return [
        Comparison(ours.name, baseline.name, overall, _adjust(strata))
        for (ours, baseline), (overall, strata) in zip(pairs, measured, strict=True)
    ]


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


def _differences(values: Floats, resampling: Resampling) -> list[Difference]:
    """Return the difference of every column, p-values not yet adjusted."""
    n = values.shape[0]
    intervals = column_intervals(values, resampling)
    p_values = permutation_p_values(values, resampling).tolist()
    wins = np.count_nonzero(values > TIE, axis=0).tolist()
    losses = np.count_nonzero(values < -TIE, axis=0).tolist()
    return [
        Difference(
            n=n,
            mean=float(values[:, column].mean()),
            interval=intervals[column],
            p_value=p_values[column],
            p_holm=p_values[column],
            minimum_detectable=minimum_detectable_difference(values[:, column], resampling),
            wins=wins[column],
            losses=losses[column],
            ties=n - wins[column] - losses[column],
            alpha=resampling.alpha,
        )
        for column in range(values.shape[1])
    ]


def _adjust(strata: dict[str, Part[Difference]]) -> dict[str, Part[Difference]]:
    """Adjust the p-values of every metric over the strata."""
    metrics = next(iter(strata.values()))
    adjusted = {
        metric: iter(holm([part[metric].p_value for part in strata.values()])) for metric in metrics
    }
    return {
        name: {m: replace(found, p_holm=next(adjusted[m])) for m, found in part.items()}
        for name, part in strata.items()
    }


# From scores to a report: means per stratum and overall, with intervals.


MS_DIGITS = 3
"""Decimals of a time: microseconds, far below what a machine repeats."""


@dataclass(frozen=True, slots=True)
class Mean(Result):
    """A mean over n queries, in [0, 1]; `interval` is None where n is too small to resample."""

    mean: float
    interval: Interval | None
    n: int


@dataclass(frozen=True, slots=True)
class Latency(Result):
    """Wall time around the retrieval alone, warm-up excluded, at the run's k, over n queries."""

    p50_ms: float
    p95_ms: float
    n: int


@dataclass(frozen=True, slots=True)
class Report(Result):
    """What one arm scored on n queries.

    Attributes:
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

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read back what `to_json` returned; KeyError if a key is missing."""
        overall, strata = _read_parts(Mean, raw)
        latency = None if raw["latency"] is None else Latency.from_json(raw["latency"])
        return cls(raw["name"], raw["n"], overall, raw["macro"], strata, latency)


def summarize(scores: Sequence[Scores], resampling: Resampling = STANDARD) -> list[Report]:
    """Average scores overall and per stratum, each mean with its bootstrap interval.

    Arms over the same queries share one resampling per stratum, so summarizing many arms together
    is cheaper than one by one and gives the same numbers (up to rounding of the last bits).

    No two columns of an arm have the same name. The reports are without latency (see
    `latency_of`). ValueError if an arm has no query.
    """
    empty = [found.name for found in scores if not found.query_ids]
    if empty:
        raise ValueError(f"there is no labelled query to average over in {empty}")

    def means(values: Floats) -> list[Mean]:
        found = zip(values.mean(axis=0), column_intervals(values, resampling), strict=True)
        return [Mean(float(mean), interval, len(values)) for mean, interval in found]

    reports: list[Report] = []
    for found, (overall, strata) in zip(scores, _measure(scores, means), strict=True):
        by_stratum = np.array([[mean.mean for mean in part.values()] for part in strata.values()])
        macro = dict(zip(found.metrics, by_stratum.mean(axis=0).tolist(), strict=True))
        reports.append(Report(found.name, len(found.query_ids), overall, macro, strata))
    return reports


def latency_of(run: Run) -> Latency | None:
    """Return the percentiles of a run's times, linearly interpolated; None if it was not timed."""
    if not run.latency_ms:
        return None
    p50, p95 = np.percentile(run.latency_ms, [50.0, 95.0])
    return Latency(round(float(p50), MS_DIGITS), round(float(p95), MS_DIGITS), len(run.latency_ms))


R = TypeVar("R", Mean, Difference)


def _read_parts(kind: type[R], raw: Mapping[str, Any]) -> tuple[Part[R], dict[str, Part[R]]]:
    """Return the overall values and those of the strata that a report or comparison wrote."""

    def read(part: Mapping[str, Any]) -> Part[R]:
        return {metric: kind.from_json(found) for metric, found in part.items()}

    return read(raw["overall"]), {name: read(part) for name, part in raw["strata"].items()}
