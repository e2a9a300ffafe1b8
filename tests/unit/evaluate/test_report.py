from __future__ import annotations

import json

import pytest

from mnemon.evaluate.report import (
    EvaluationReport,
    Latency,
    QueryScores,
    compare,
    summarize,
)

METRICS = ("recall@5", "ndcg@10")


def scores(query_id: str, stratum: str, *values: float) -> QueryScores:
    return QueryScores(query_id, stratum, values)


def test_means_are_per_stratum_and_overall_every_query_counting_once() -> None:
    rows = [
        scores("q1", "exact", 1.0, 0.5),
        scores("q2", "exact", 0.0, 0.0),
        scores("q3", "exact", 1.0, 1.0),
        scores("q4", "multihop", 0.0, 0.1),
    ]
    overall, strata = summarize(METRICS, rows, draws=100)
    assert overall.n_queries == 4
    assert overall.metrics["recall@5"].mean == 2 / 4
    assert overall.metrics["ndcg@10"].mean == pytest.approx(1.6 / 4)
    assert list(strata) == ["exact", "multihop"]
    assert strata["exact"].metrics["recall@5"].mean == pytest.approx(2 / 3)
    assert strata["multihop"].metrics["ndcg@10"].mean == pytest.approx(0.1)
    assert strata["multihop"].metrics["ndcg@10"].interval is None
    interval = overall.metrics["recall@5"].interval
    assert interval is not None
    assert interval.low <= 0.5 <= interval.high


def test_a_comparison_pairs_by_query() -> None:
    ours = [scores("q1", "a", 1.0, 0.5), scores("q2", "b", 0.5, 0.5)]
    base = [scores("q1", "a", 0.5, 0.5), scores("q2", "b", 0.5, 0.0)]
    overall, strata = compare(METRICS, ours, base, draws=100)
    assert overall.metrics["recall@5"].mean == 0.25
    assert strata["a"].metrics["recall@5"].mean == 0.5
    assert strata["b"].metrics["ndcg@10"].mean == 0.5
    with pytest.raises(ValueError, match="same queries in the same order"):
        compare(METRICS, ours, base[::-1])


def test_no_rows_and_ragged_rows_are_errors() -> None:
    with pytest.raises(ValueError, match="no labelled query"):
        summarize(METRICS, [])
    with pytest.raises(ValueError, match="'q1' has 1 values for 2 metrics"):
        summarize(METRICS, [scores("q1", "a", 1.0)])


def test_json_holds_everything_and_is_rounded() -> None:
    rows = (scores("q1", "a", 1 / 3, 0.0), scores("q2", "a", 1 / 3, 1.0))
    overall, strata = summarize(METRICS, rows, draws=50)
    report = EvaluationReport(
        k=10,
        metrics=METRICS,
        overall=overall,
        strata=strata,
        per_query=rows,
        latency=Latency(1.23456, 2.0, 2),
        unstable_prefixes=0,
    )
    found = json.loads(report.to_json())
    assert found["n"] == 2
    assert found["overall"]["recall@5"] == {"mean": 0.333333, "low": 0.333333, "high": 0.333333}
    assert found["strata"]["a"]["n"] == 2
    assert found["per_query"] == {"q1": [0.333333, 0.0], "q2": [0.333333, 1.0]}
    assert found["latency"] == {"p50_ms": 1.235, "p95_ms": 2.0, "n": 2}
