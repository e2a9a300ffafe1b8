"""Run a retrieval function over labelled queries.

What belongs here: calling, timing and scoring. No retrieval of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.metrics.mrr import DEFAULT_DEPTH, reciprocal_rank
from mnemon.evaluate.metrics.ndcg import ndcg_at_k
from mnemon.evaluate.metrics.recall_at_k import recall_at_k
from mnemon.evaluate.report import EvaluationReport, Latency, QueryScores, summarize
from mnemon.evaluate.statistics.bootstrap import DEFAULT_CONFIDENCE, DEFAULT_DRAWS, DEFAULT_SEED
from mnemon.progress import SILENT, Progress

Retrieve = Callable[[Query, int], list[str]]
"""Given a query and k, the ids found, best first."""

Clock = Callable[[], int]
"""Nanoseconds from an arbitrary origin, never going back."""

WARM_UP_QUERIES = 5
"""Untimed calls before the first timed one: they fault in mapped files and fill caches."""

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """How an evaluation is run.

    Attributes:
        k: Depth asked for in the timed call; recall and nDCG are taken from this list alone.
        recall_cutoffs: Cutoffs of recall, each at most k.
        mrr_depth: Depth of reciprocal rank; above k it costs a second, untimed call per query.
            Asking once at this depth and cutting would score a list that no user of k gets:
            candidate pools may grow with k.
        warm_up: Queries run once before timing starts, results discarded.
        draws: Bootstrap resamples.
        seed: Bootstrap seed.
        confidence: Coverage of the intervals.
    """

    k: int = 10
    recall_cutoffs: tuple[int, ...] = (5, 10)
    mrr_depth: int = DEFAULT_DEPTH
    warm_up: int = WARM_UP_QUERIES
    draws: int = DEFAULT_DRAWS
    seed: int = DEFAULT_SEED
    confidence: float = DEFAULT_CONFIDENCE

    def __post_init__(self) -> None:
        if self.k < 1 or self.mrr_depth < 1:
            raise ValueError(f"k and mrr_depth start at 1, got {self.k} and {self.mrr_depth}")
        if any(not 1 <= cutoff <= self.k for cutoff in self.recall_cutoffs):
            raise ValueError(f"recall cutoffs must lie in 1..k={self.k}, got {self.recall_cutoffs}")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in the order of every row of scores."""
        recalls = tuple(f"recall@{cutoff}" for cutoff in self.recall_cutoffs)
        return (*recalls, f"ndcg@{self.k}", f"mrr@{self.mrr_depth}")


def evaluate(
    retrieve: Retrieve,
    queries: Sequence[Query],
    k: int = 10,
    *,
    plan: EvaluationPlan | None = None,
    clock: Clock = time.perf_counter_ns,
    progress: Progress = SILENT,
) -> EvaluationReport:
    """Score and time a retrieval function on labelled queries.

    Args:
        retrieve: Returns ids, best first; may return fewer than asked, results beyond the depth are
            ignored.
        queries: Labelled queries (`QuerySet.ranked`), at least one.
        k: Depth of the timed call; ignored if a plan is given.
        plan: Cutoffs, depths, warm-up and resampling; by default recall@5 (where k allows),
            recall@k, nDCG@k and MRR@100.
        clock: Time source, for tests.
        progress: Told of every finished query.

    Returns:
        Means per stratum and overall with intervals, per-query scores, and latency around
        `retrieve` at depth k alone.

    Raises:
        ValueError: If there is no query or one of them has no labels.
    """
    chosen = plan or EvaluationPlan(k=k, recall_cutoffs=tuple(sorted({min(5, k), k})))
    for query in queries[: chosen.warm_up]:
        retrieve(query, chosen.k)
    rows: list[QueryScores] = []
    unstable = 0
    for done, query in enumerate(queries, start=1):
        row, stable = _score_query(retrieve, query, chosen, clock)
        rows.append(row)
        unstable += not stable
        progress.update("evaluate", done, len(queries))
    overall, strata = summarize(
        chosen.metrics, rows, draws=chosen.draws, seed=chosen.seed, confidence=chosen.confidence
    )
    return EvaluationReport(
        k=chosen.k,
        metrics=chosen.metrics,
        overall=overall,
        strata=strata,
        per_query=tuple(rows),
        latency=_latency(rows),
        unstable_prefixes=unstable if chosen.mrr_depth > chosen.k else None,
    )


def _score_query(
    retrieve: Retrieve, query: Query, plan: EvaluationPlan, clock: Clock
) -> tuple[QueryScores, bool]:
    """Return the scores of one query and whether its deeper list starts with the one at k."""
    started = clock()
    ranking = retrieve(query, plan.k)
    elapsed_ns = clock() - started
    deep = retrieve(query, plan.mrr_depth) if plan.mrr_depth > plan.k else ranking
    relevant = query.relevant_ids
    values = (
        *(recall_at_k(ranking, relevant, cutoff) for cutoff in plan.recall_cutoffs),
        ndcg_at_k(ranking, relevant, plan.k),
        reciprocal_rank(deep, relevant, plan.mrr_depth),
    )
    row = QueryScores(query.query_id, query.stratum, values, elapsed_ns / _NS_PER_MS)
    return row, deep[: plan.k] == ranking[: plan.k]


def _latency(rows: Sequence[QueryScores]) -> Latency | None:
    times = np.array([row.latency_ms for row in rows if row.latency_ms is not None])
    if times.size == 0:
        return None
    p50, p95 = np.percentile(times, [50.0, 95.0])
    return Latency(p50_ms=float(p50), p95_ms=float(p95), n=int(times.size))
