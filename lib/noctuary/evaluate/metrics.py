"""Metrics of rankings against labels, the scores of runs, and differences between them.

In the formulas R is the set of relevant ids and k the cutoff. A ranking is a sequence of ids, best
first. A repeated id earns nothing the second time but keeps its rank: a list that repeats itself
has wasted a slot that the reader had to look at.

Every metric of a ranking raises ValueError where no id is relevant or the cutoff is below 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, log2
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN
from noctuary.evaluate.labels import Query
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

# Metrics of one ranking.

DEFAULT_DEPTH = 100  # ranks examined: a first hit below would add less than 0.01 to a value


def _hit_ranks(ranking: Sequence[str], relevant: Collection[str], k: int) -> list[int]:
    """Return the ranks (from 1, at most k) at which a relevant id first occurs."""
    if not relevant:
        raise ValueError(
            "no relevant id: a metric of a query without labels is undefined; "
            "score unanswerable queries apart (QuerySet.unanswerable)"
        )
    if k < 1:
        raise ValueError(f"a cutoff counts ranks and starts at 1, got {k}")
    first = {memory_id: rank for rank, memory_id in reversed([*enumerate(ranking[:k], start=1)])}
    return sorted(first[memory_id] for memory_id in first.keys() & set(relevant))


def precision_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return |R in top k| / k, in [0, 1]; also where the ranking is shorter (trec_eval's P)."""
    return len(_hit_ranks(ranking, relevant, k)) / k


def recall_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return |R in top k| / |R|, in [0, 1]; at most k / |R| (trec_eval's recall)."""
    return len(_hit_ranks(ranking, relevant, k)) / len(set(relevant))


def any_relevant_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 1.0 if a relevant id is in the top k, else 0.0: what others call hit@k."""
    return float(bool(_hit_ranks(ranking, relevant, k)))


def all_relevant_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 1.0 if every relevant id is in the top k, else 0.0: all of an answer or none."""
    return float(len(_hit_ranks(ranking, relevant, k)) == len(set(relevant)))


def average_precision(ranking: Sequence[str], relevant: Collection[str], depth: int) -> float:
    """Return (1 / |R|) * sum of precision@r over the relevant ranks r (trec_eval's map_cut)."""
    ranks = _hit_ranks(ranking, relevant, depth)
    return fsum(n / rank for n, rank in enumerate(ranks, start=1)) / len(set(relevant))


def reciprocal_rank(
    ranking: Sequence[str], relevant: Collection[str], depth: int = DEFAULT_DEPTH
) -> float:
    """Return 1 / rank of the first relevant id, in [0, 1]; 0 if none is within the depth."""
    ranks = _hit_ranks(ranking, relevant, depth)
    return 1.0 / ranks[0] if ranks else 0.0


def dcg(gains: Sequence[float]) -> float:
    """Return the sum over ranks r of gain / log2(r + 1), rounded once; trec_eval's discount."""
    return fsum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain)


def ndcg_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the DCG of the top k over that of the best order, in [0, 1]; every gain is 1."""
    return graded_ndcg_at_k(ranking, dict.fromkeys(relevant, 1), k)


def graded_ndcg_at_k(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the DCG of the top k over the best order's, in [0, 1]; a grade, >= 0, is its gain."""
    gain_of = {memory_id: float(grade) for memory_id, grade in grades.items() if grade > 0}
    gains = [0.0] * min(k, len(ranking))
    for rank in _hit_ranks(ranking, gain_of, k):
        gains[rank - 1] = gain_of[ranking[rank - 1]]
    ideal = sorted(gain_of.values(), reverse=True)[:k]
    # The minimum cuts rounding errors of the terms above 1.
    return min(1.0, dcg(gains) / dcg(ideal))


# From a run and its labels to one value per query and metric.

DEFAULT_METRICS = (
    "recall@5", "recall@10", "all_relevant@10", "precision@5", "ndcg@10", "mrr@50", "map@50",
)  # fmt: skip
HEADLINE_METRIC = "recall@10"  # summary of a night: whether the answer is found at all

# By the part of a metric's name before the @; only nDCG looks at the grades.
FAMILIES: dict[str, Callable[[Sequence[str], Mapping[str, int], int], float]] = {
    "recall": recall_at_k,
    "any_relevant": any_relevant_at_k,
    "all_relevant": all_relevant_at_k,
    "precision": precision_at_k,
    "ndcg": graded_ndcg_at_k,
    "mrr": reciprocal_rank,
    "map": average_precision,
}


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a run, query by query."""

    name: str
    metrics: tuple[str, ...]  # names of the columns
    query_ids: tuple[str, ...]  # names of the rows, each once
    strata: tuple[str, ...]  # the stratum of every row
    values: Floats  # shape (n, m), each in [0, 1]

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
    """Return family and cutoff of a name like "ndcg@10"; ValueError if it is none."""
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
    """Score a run of these queries and perhaps others; ValueError for missing ones."""
    chosen = [parse_metric(name) for name in metrics]
    rankings = dict(zip(run.query_ids, run.rankings, strict=True))
    if not queries:
        raise ValueError("there is no labelled query to score; expected at least one")
    if deep := [name for name, (_, k) in zip(metrics, chosen, strict=True) if k > run.depth]:
        raise ValueError(f"run {run.name!r} is {run.depth} deep, too shallow for {deep}")
    if unlabelled := [query.query_id for query in queries if not query.relevant_ids]:
        raise ValueError(
            f"{len(unlabelled)} queries have no labels, the first: {unlabelled[:FAULTS_SHOWN]}; "
            "unanswerable queries are judged apart (judge_abstention)"
        )
    if missing := [query.query_id for query in queries if query.query_id not in rankings]:
        raise ValueError(
            f"run {run.name!r} lacks {len(missing)} of {len(queries)} queries, the first: "
            f"{missing[:FAULTS_SHOWN]}; it was made from other queries"
        )
    values = [
        [FAMILIES[family](rankings[query.query_id], query.gains, k) for family, k in chosen]
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
Part = dict[str, T]  # values of each metric over the same queries


def _measure(
    scores: Sequence[Scores], columns: Callable[[Floats], Sequence[T]]
) -> list[tuple[Part[T], dict[str, Part[T]]]]:
    """Measure every metric of every arm overall and within each stratum (names sorted)."""
    # Arms over the same queries are handed over together, so that they share their draws. `columns`
    # takes values, shape (n, m), and returns one result per column.
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
            every = {metric: next(overall) for metric in metrics}
            parts = {name: {m: next(found) for m in metrics} for name, found in within.items()}
            measured[place] = every, parts
    return [measured[place] for place in range(len(scores))]


# Paired differences between arms: intervals, tests, power, wins and losses.

# Differences up to this are ties: two sums of the same terms in another order differ by 1e-16, the
# smallest real difference of a metric by more than 1e-5.
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Difference(Result):
    """A mean paired difference, ours - baseline, of one metric over n queries."""

    n: int
    mean: float  # in [-1, 1]; above 0 where ours is better
    interval: Interval | None  # BCa bootstrap interval; None for fewer than two queries
    p_value: float  # two-sided paired permutation test, in (0, 1]
    p_holm: float  # adjusted over the strata of this metric; for overall the raw value
    minimum_detectable: float | None  # smallest true difference that so many queries would show
    wins: int  # queries where ours is better
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
        """Parse the output of `to_json`; KeyError if a key is missing."""
        return cls(raw["ours"], raw["baseline"], *_read_parts(Difference, raw))


def compare(
    pairs: Sequence[tuple[Scores, Scores]], resampling: Resampling = STANDARD
) -> list[Comparison]:
    """Compare pairs of (ours, baseline) over the same queries, strata and metrics."""
    # Pairs over the same queries share one resampling and one set of sign flips per stratum, so
    # drawn p-values can move by their sampling error when other pairs are compared along with them.
    differences = [subtract(ours, baseline) for ours, baseline in pairs]
    measured = _measure(differences, lambda values: difference_columns(values, resampling))
    return [
        Comparison(ours.name, baseline.name, overall, _adjust(strata))
        for (ours, baseline), (overall, strata) in zip(pairs, measured, strict=True)
    ]


def subtract(ours: Scores, baseline: Scores) -> Scores:
    """Return ours - baseline as one table, after checking that the rows mean the same queries."""
    of_ours, of_baseline = ((a.query_ids, a.strata, a.metrics) for a in (ours, baseline))
    if of_ours != of_baseline or not ours.query_ids:
        raise ValueError(
            f"a paired difference needs the same queries in the same order, their strata and "
            f"metrics alike: {ours.name!r} and {baseline.name!r} differ, or there is no query"
        )
    return replace(ours, values=ours.values - baseline.values)


def difference_columns(values: Floats, resampling: Resampling = STANDARD) -> list[Difference]:
    """Return the difference of every column, p-values not yet adjusted."""
    intervals = column_intervals(values, resampling)
    p_values = permutation_p_values(values, resampling).tolist()
    found: list[Difference] = []
    for column, interval, p in zip(values.T, intervals, p_values, strict=True):
        n, mean = column.size, float(column.mean())
        wins, losses = int((column > TIE).sum()), int((column < -TIE).sum())
        power = minimum_detectable_difference(column, resampling)
        counts = wins, losses, n - wins - losses
        found.append(Difference(n, mean, interval, p, p, power, *counts, resampling.alpha))
    return found


def _adjust(strata: dict[str, Part[Difference]]) -> dict[str, Part[Difference]]:
    metrics = next(iter(strata.values()))
    adjusted = {
        metric: iter(holm([part[metric].p_value for part in strata.values()])) for metric in metrics
    }
    return {
        name: {m: replace(found, p_holm=next(adjusted[m])) for m, found in part.items()}
        for name, part in strata.items()
    }


# From scores to a report: means per stratum and overall, with intervals.

MS_DIGITS = 3  # decimals of a time: microseconds, far below the noise of a machine


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
    """Results of one arm on n queries; latency is None if the run was not timed."""

    name: str
    n: int
    overall: Mapping[str, Mean]  # per metric, the mean over all queries, each counting once
    macro: Mapping[str, float]  # per metric, the unweighted mean of the strata's means
    strata: Mapping[str, Mapping[str, Mean]]  # the means within each stratum, by name, sorted
    latency: Latency | None = None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`; KeyError if a key is missing."""
        (overall, strata), latency = _read_parts(Mean, raw), raw["latency"]
        latency = None if latency is None else Latency.from_json(latency)
        return cls(raw["name"], raw["n"], overall, raw["macro"], strata, latency)


def summarize(scores: Sequence[Scores], resampling: Resampling = STANDARD) -> list[Report]:
    """Average scores overall and per stratum, each mean with its bootstrap interval; no latency."""
    if empty := [found.name for found in scores if not found.query_ids]:
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


# Whether a score shows when to stay silent: AUROC and the risk-coverage curve.


@dataclass(frozen=True, slots=True)
class RiskCoverage(Result):
    """Risk and coverage at every distinct threshold, the highest threshold first."""

    thresholds: tuple[float, ...]  # the distinct confidences, descending; answered from there on
    coverage: tuple[float, ...]  # share of the queries that is answered, rising to 1
    risk: tuple[float, ...]  # share of errors among the answered, in [0, 1]
    area: float  # under risk over coverage, in [0, 1]; lower is better


def _check_scores(name: str, scores: Floats) -> None:
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"{name} needs one score per query, at least one; got {scores.shape}")
    if np.isnan(scores).any():
        n_missing = int(np.count_nonzero(np.isnan(scores)))
        raise ValueError(f"{name} holds {n_missing} scores that are not numbers (NaN)")


def auroc(answerable: Floats, unanswerable: Floats) -> float:
    """Return the chance that an answerable query scores above an unanswerable one, in [0, 1]."""
    # The Mann-Whitney statistic over all pairs; a tie counts half (Hanley and McNeil 1982).
    _check_scores("answerable", answerable)
    _check_scores("unanswerable", unanswerable)
    ordered = np.sort(unanswerable)
    below = np.searchsorted(ordered, answerable, side="left")
    not_above = np.searchsorted(ordered, answerable, side="right")
    return float((below + not_above).sum()) / (2 * answerable.size * unanswerable.size)


def risk_coverage(confidence: Floats, correct: NDArray[np.bool_]) -> RiskCoverage:
    """Return the selective risk at every coverage when the least confident are left unanswered."""
    # The area is the mean risk over the first 1, 2, ..., n queries in order of falling confidence
    # (AURC; Geifman, Uziel and El-Yaniv 2019). Equal confidences make one point.
    _check_scores("confidence", confidence)
    if correct.shape != confidence.shape:
        raise ValueError(
            f"one verdict per confidence is needed, got {correct.shape} and {confidence.shape}"
        )
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    last_of_tie = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    answered = last_of_tie + 1
    errors = np.cumsum(~correct[order], dtype=np.int64)[last_of_tie]
    # Ties share their errors evenly: the average of breaking them at random.
    count = np.arange(1, ranked.size + 1)
    expected_errors = np.interp(count, np.append(0, answered), np.append(0, errors))
    return RiskCoverage(
        thresholds=tuple(ranked[last_of_tie].tolist()),
        coverage=tuple((answered / ranked.size).tolist()),
        risk=tuple((errors / answered).tolist()),
        area=min(1.0, float((expected_errors / count).mean())),
    )
