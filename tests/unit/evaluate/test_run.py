from __future__ import annotations

import pytest

from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.run import EvaluationPlan, evaluate


def query(number: int, *relevant: str, stratum: str = "a") -> Query:
    return Query(f"q{number}", f"text {number}", stratum, relevant)


class TickingClock:
    """A clock that only moves when the retrieval under test moves it."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_scores_are_those_of_the_lists_retrieved() -> None:
    lists = {"q1": ["a", "x"], "q2": ["x", "b"], "q3": ["x"]}
    report = evaluate(
        lambda q, k: lists[q.query_id][:k],
        [query(1, "a"), query(2, "b", "c"), query(3, "d", stratum="b")],
        plan=EvaluationPlan(draws=50),
    )
    assert report.metrics == ("recall@5", "recall@10", "ndcg@10", "mrr@100")
    assert [row.values[0] for row in report.per_query] == [1.0, 0.5, 0.0]
    assert report.overall.metrics["recall@10"].mean == pytest.approx(1.5 / 3)
    assert report.overall.metrics["mrr@100"].mean == pytest.approx((1 + 1 / 2) / 3)
    assert {name: part.n_queries for name, part in report.strata.items()} == {"a": 2, "b": 1}


def test_only_the_call_at_k_is_timed_and_the_warm_up_is_not() -> None:
    clock = TickingClock()
    calls: list[tuple[str, int]] = []

    def retrieve(asked: Query, k: int) -> list[str]:
        warming = len(calls) < 2
        calls.append((asked.query_id, k))
        # Warm-up and deep calls take a second; the timed ones take 1, 2, 3 ms.
        clock.now_ns += 10**9 if warming or k > 10 else int(asked.query_id[1:]) * 10**6
        return ["a"]

    queries = [query(n, "a") for n in (1, 2, 3)]
    plan = EvaluationPlan(warm_up=2, draws=50)
    report = evaluate(retrieve, queries, plan=plan, clock=clock)
    assert calls[:2] == [("q1", 10), ("q2", 10)]
    assert calls[2:] == [(f"q{n}", k) for n in (1, 2, 3) for k in (10, 100)]
    assert report.latency is not None
    assert (report.latency.p50_ms, report.latency.n) == (2.0, 3)
    assert report.latency.p95_ms == pytest.approx(2.9)


def test_recall_comes_from_the_list_at_k_and_a_deeper_list_that_differs_is_reported() -> None:
    def retrieve(asked: Query, k: int) -> list[str]:
        return ["x"] * 10 if k == 10 else ["a", *["x"] * 99]

    report = evaluate(retrieve, [query(1, "a"), query(2, "a")], plan=EvaluationPlan(draws=50))
    assert report.overall.metrics["recall@10"].mean == 0.0
    assert report.overall.metrics["mrr@100"].mean == 1.0
    assert report.unstable_prefixes == 2


def test_without_a_deeper_list_there_is_one_call_per_query() -> None:
    calls: list[int] = []

    def retrieve(asked: Query, k: int) -> list[str]:
        calls.append(k)
        return ["a"]

    plan = EvaluationPlan(k=3, recall_cutoffs=(1, 3), mrr_depth=3, warm_up=0, draws=50)
    report = evaluate(retrieve, [query(1, "a")], plan=plan)
    assert calls == [3]
    assert report.metrics == ("recall@1", "recall@3", "ndcg@3", "mrr@3")
    assert report.unstable_prefixes is None


def test_k_alone_sets_the_cutoffs() -> None:
    report = evaluate(lambda q, k: ["a"], [query(1, "a")], k=3)
    assert report.metrics == ("recall@3", "ndcg@3", "mrr@100")


def test_no_queries_and_unanswerable_queries_are_errors() -> None:
    with pytest.raises(ValueError, match="no labelled query"):
        evaluate(lambda q, k: [], [])
    with pytest.raises(ValueError, match="unanswerable"):
        evaluate(lambda q, k: [], [query(1)])


def test_a_plan_checks_its_cutoffs() -> None:
    with pytest.raises(ValueError, match="recall cutoffs"):
        EvaluationPlan(k=5, recall_cutoffs=(5, 10))
    with pytest.raises(ValueError, match="start at 1"):
        EvaluationPlan(k=0, recall_cutoffs=())
