"""From a run and its labels to one value per query and metric.

What belongs here: metric names and the table of scores. What does not: the formulas (metrics/),
averaging (report.py), differences (comparison.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import FAULTS_SHOWN
from noctuary.evaluate.labels.queries import Query
from noctuary.evaluate.metrics.all_relevant_at_k import all_relevant_at_k
from noctuary.evaluate.metrics.average_precision import average_precision
from noctuary.evaluate.metrics.graded_ndcg import graded_ndcg_at_k
from noctuary.evaluate.metrics.mrr import reciprocal_rank
from noctuary.evaluate.metrics.ndcg import ndcg_at_k
from noctuary.evaluate.metrics.precision_at_k import precision_at_k
from noctuary.evaluate.metrics.recall_at_k import recall_at_k
from noctuary.evaluate.run import Run

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
