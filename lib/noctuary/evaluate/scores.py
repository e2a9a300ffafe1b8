"""From runs and labels to values, differences and reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN
from noctuary.core.files import JsonValue
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
    DIGITS,
    Interval,
    Resampling,
    column_intervals,
    holm,
    interval_from_json,
    interval_json,
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

Formula = Callable[[Sequence[str], Query, int], float]
"""A ranking, its query and a cutoff in; a value in [0, 1] out."""


def _ndcg(ranking: Sequence[str], query: Query, k: int) -> float:
    if query.grades:
        return graded_ndcg_at_k(ranking, query.grades, k)
    return ndcg_at_k(ranking, query.relevant_ids, k)


FAMILIES: dict[str, Formula] = {
    "recall": lambda ranking, query, k: recall_at_k(ranking, query.relevant_ids, k),
    "all_relevant": lambda ranking, query, k: all_relevant_at_k(ranking, query.relevant_ids, k),
    "precision": lambda ranking, query, k: precision_at_k(ranking, query.relevant_ids, k),
    "ndcg": _ndcg,
    "mrr": lambda ranking, query, k: reciprocal_rank(ranking, query.relevant_ids, k),
    "map": lambda ranking, query, k: average_precision(ranking, query.relevant_ids, k),
}
"""Metrics by the part of their name before the @. nDCG takes grades where a query has them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its cutoff, named like "recall@10".

    Attributes:
        name: The whole name.
        family: One of `FAMILIES`.
        cutoff: Ranks looked at, at least 1.
    """

    name: str
    family: str
    cutoff: int

    def score(self, ranking: Sequence[str], query: Query) -> float:
        """Return the value of one ranking, in [0, 1]."""
        return FAMILIES[self.family](ranking, query, self.cutoff)


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
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        n = len(self.query_ids)
        if len(self.strata) != n or self.values.shape != (n, len(self.metrics)):
            raise ValueError(
                f"scores of {self.name!r} have {n} queries, {len(self.strata)} strata and values "
                f"of shape {self.values.shape}; expected {(n, len(self.metrics))}"
            )

    def column(self, metric: str) -> NDArray[np.float64]:
        """Return the values of one metric, shape (n,).

        Raises:
            ValueError: If these scores lack it.
        """
        if metric not in self.metrics:
            raise ValueError(
                f"scores of {self.name!r} lack {metric!r}; they have {', '.join(self.metrics)}"
            )
        return self.values[:, self.metrics.index(metric)]

    def select(self, keep: NDArray[np.bool_]) -> Scores:
        """Return the rows where `keep`, shape (n,), is True."""
        return Scores(
            name=self.name,
            metrics=self.metrics,
            query_ids=tuple(q for q, kept in zip(self.query_ids, keep, strict=True) if kept),
            strata=tuple(s for s, kept in zip(self.strata, keep, strict=True) if kept),
            values=self.values[keep],
        )


def parse_metric(name: str) -> Metric:
    """Read a metric's name, e.g. "ndcg@10".

    Raises:
        ValueError: If the family is unknown or the cutoff is no number from 1 on.
    """
    family, _, cutoff = name.partition("@")
    if family not in FAMILIES:
        known = ", ".join(f"{known}@k" for known in FAMILIES)
        raise ValueError(f"unknown metric {name!r}; known are {known}")
    if not (cutoff.isascii() and cutoff.isdecimal() and int(cutoff) >= 1):
        raise ValueError(f"metric {name!r} needs a cutoff from 1 on, as in {family}@10")
    return Metric(name, family, int(cutoff))


def score_run(
    run: Run, queries: Sequence[Query], metrics: Sequence[str] = DEFAULT_METRICS
) -> Scores:
    """Score a run against the labels of its queries.

    Args:
        run: Rankings; may hold more queries than are scored, in any order.
        queries: Labelled queries (`QuerySet.ranked`), at least one; the rows follow their order.
        metrics: Names; no cutoff deeper than the run.

    Returns:
        One row per query, one column per metric.

    Raises:
        ValueError: If there is no query, a query has no labels or no ranking in the run, or a
            metric is unknown or looks deeper than the run does.
    """
    chosen = [parse_metric(name) for name in metrics]
    _check(run, queries, chosen)
    rankings = dict(zip(run.query_ids, run.rankings, strict=True))
    values = np.array(
        [[m.score(rankings[query.query_id], query) for m in chosen] for query in queries],
        dtype=np.float64,
    )
    return Scores(
        name=run.name,
        metrics=tuple(metrics),
        query_ids=tuple(query.query_id for query in queries),
        strata=tuple(query.stratum for query in queries),
        values=values.reshape(len(queries), len(chosen)),
    )


def _check(run: Run, queries: Sequence[Query], metrics: Sequence[Metric]) -> None:
    if not queries:
        raise ValueError("there is no labelled query to score; expected at least one")
    deep = [metric.name for metric in metrics if metric.cutoff > run.depth]
    if deep:
        raise ValueError(f"run {run.name!r} is {run.depth} deep, too shallow for {deep}")
    unlabelled = [query.query_id for query in queries if not query.relevant_ids]
    if unlabelled:
        raise ValueError(
            f"{len(unlabelled)} queries have no labels, the first: {unlabelled[:FAULTS_SHOWN]}; "
            "unanswerable queries are judged apart (judge_abstention)"
        )
    asked = frozenset(run.query_ids)
    missing = [query.query_id for query in queries if query.query_id not in asked]
    if missing:
        raise ValueError(
            f"run {run.name!r} lacks {len(missing)} of {len(queries)} queries, the first: "
            f"{missing[:FAULTS_SHOWN]}; it was made from other queries"
        )


def group_by_queries(scores: Sequence[Scores]) -> list[list[int]]:
    """Return the places of scores over the same queries and strata, in order of first appearance.

    What is over the same queries can share one resampling.
    """
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for place, found in enumerate(scores):
        groups.setdefault((found.query_ids, found.strata), []).append(place)
    return list(groups.values())


def rows_by_stratum(strata: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    """Return which rows belong to each stratum, shape (n,) each, names sorted."""
    names = np.array(strata, dtype=object)
    return {name: np.asarray(names == name, dtype=np.bool_) for name in sorted(set(strata))}


# Paired differences between arms: intervals, tests, power, wins and losses.


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


# From scores to a report: means per stratum and overall, with intervals.


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
