"""Differential test: our metrics against ir-measures (trec_eval) on seeded random runs.

trec_eval sorts by score and breaks ties by document id, and a run holds a document once; so the
runs here have distinct scores and no duplicates. Its reciprocal rank knows no cutoff, so it is
given runs cut at k. "All relevant" has no counterpart there; it must hold exactly where their
recall is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log2
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import (
    DEFAULT_METRICS,
    Scores,
    all_relevant_at_k,
    any_relevant_at_k,
    auroc,
    average_precision,
    dcg,
    graded_ndcg_at_k,
    ndcg_at_k,
    parse_metric,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
    risk_coverage,
    score_run,
)
from noctuary.evaluate.run import Run


def floats(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def test_auroc_agrees_with_scipys_mann_whitney_statistic() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not a dependency")
    rng = np.random.default_rng(4)
    ours, theirs = rng.integers(0, 20, 90) / 7, rng.integers(0, 15, 70) / 7
    expected = stats.mannwhitneyu(ours, theirs).statistic / (90 * 70)
    assert auroc(ours, theirs) == pytest.approx(expected, abs=1e-12)


def test_auroc_of_nothing_or_of_nan_is_an_error() -> None:
    with pytest.raises(ValueError, match="unanswerable needs one score per query"):
        auroc(floats(1.0), floats())
    with pytest.raises(ValueError, match="answerable holds 1 scores"):
        auroc(floats(1.0, math.nan), floats(1.0))


def test_the_curve_of_four_queries_by_hand() -> None:
    confidence = floats(0.2, 0.9, 0.5, 0.7)
    correct = np.array([False, True, True, False])
    curve = risk_coverage(confidence, correct)
    assert curve.thresholds == (0.9, 0.7, 0.5, 0.2)
    assert curve.coverage == (1 / 4, 2 / 4, 3 / 4, 1.0)
    assert curve.risk == (0.0, 1 / 2, 1 / 3, 2 / 4)
    assert curve.area == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4, abs=1e-15)


def test_bad_input_of_curves_and_tables_is_named() -> None:
    with pytest.raises(ValueError, match="one verdict per confidence"):
        risk_coverage(floats(1.0, 2.0), np.array([True]))
    with pytest.raises(ValueError, match="confidence needs one score per query"):
        risk_coverage(floats(), np.array([], dtype=np.bool_))
    with pytest.raises(ValueError, match="confidence holds 1 scores"):
        risk_coverage(floats(math.nan), np.array([True]))
    with pytest.raises(ValueError, match=r"values of shape \(1, 1\); expected \(2, 1\)"):
        Scores("arm", ("recall@5",), ("q1", "q2"), ("a", "a"), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="2 queries, 1 strata"):
        Scores("arm", ("recall@5",), ("q1", "q2"), ("a",), np.zeros((2, 1)))


N_QUERIES = 150
N_DOCUMENTS = 60
CUTOFFS = (1, 3, 5, 10, 50, 100)
TOLERANCE = 1e-9

Rankings = Mapping[str, Sequence[str]]
Qrels = Mapping[str, Mapping[str, int]]
OfGrades = Callable[[Sequence[str], Mapping[str, int], int], float]


def random_case(seed: int, highest_grade: int) -> tuple[Rankings, Qrels]:
    """Rankings of 1 to 60 documents and labels of 1 to 20, zeros and unretrieved ones included."""
    rng = np.random.default_rng(seed)
    documents = [f"d{i}" for i in range(N_DOCUMENTS)]
    rankings: dict[str, list[str]] = {}
    qrels: dict[str, dict[str, int]] = {}
    for query in range(N_QUERIES):
        length, n_judged = int(rng.integers(1, N_DOCUMENTS + 1)), int(rng.integers(1, 21))
        rankings[f"q{query}"] = [documents[i] for i in rng.permutation(N_DOCUMENTS)[:length]]
        judged = [documents[i] for i in rng.permutation(N_DOCUMENTS)[:n_judged]]
        grades = [int(g) for g in rng.integers(0, highest_grade + 1, n_judged)]
        grades[0] = max(1, grades[0])
        qrels[f"q{query}"] = dict(zip(judged, grades, strict=True))
    return rankings, qrels


def theirs(measure: Any, rankings: Rankings, qrels: Qrels) -> dict[str, float]:
    run = {
        query: {document: float(len(ids) - rank) for rank, document in enumerate(ids)}
        for query, ids in rankings.items()
    }
    plain_qrels = {query: dict(grades) for query, grades in qrels.items()}
    found: Any = ir_measures.pytrec_eval.iter_calc([measure], plain_qrels, run)
    return {metric.query_id: metric.value for metric in found}


def relevant(grades: Mapping[str, int]) -> set[str]:
    return {document for document, grade in grades.items() if grade > 0}


THEIRS: dict[str, Any] = {
    "R": ir_measures.R,
    "P": ir_measures.P,
    "AP": ir_measures.AP,
    "nDCG": ir_measures.nDCG,
}
MEASURES: dict[str, OfGrades] = {
    "R": lambda ranking, grades, k: recall_at_k(ranking, relevant(grades), k),
    "P": lambda ranking, grades, k: precision_at_k(ranking, relevant(grades), k),
    "RR": lambda ranking, grades, k: reciprocal_rank(ranking, relevant(grades), k),
    "AP": lambda ranking, grades, k: average_precision(ranking, relevant(grades), k),
    "nDCG": graded_ndcg_at_k,
}


@pytest.mark.parametrize("highest_grade", [1, 3])
@pytest.mark.parametrize("k", CUTOFFS)
@pytest.mark.parametrize("family", MEASURES)
def test_our_metric_is_trec_evals_on_random_runs(family: str, k: int, highest_grade: int) -> None:
    rankings, qrels = random_case(seed=1000 * highest_grade + k, highest_grade=highest_grade)
    if family == "RR":
        expected = theirs(
            ir_measures.RR, {query: ids[:k] for query, ids in rankings.items()}, qrels
        )
    else:
        expected = theirs(THEIRS[family] @ k, rankings, qrels)
    ours = {query: MEASURES[family](rankings[query], qrels[query], k) for query in rankings}
    assert len(expected) == N_QUERIES
    assert len(set(expected.values())) > 1  # all zeros would agree with anything
    assert ours == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("k", CUTOFFS)
def test_our_binary_ndcg_is_trec_evals_on_labels_without_grades(k: int) -> None:
    rankings, qrels = random_case(seed=k, highest_grade=1)
    expected = theirs(ir_measures.nDCG @ k, rankings, qrels)
    ours = {query: ndcg_at_k(rankings[query], relevant(qrels[query]), k) for query in rankings}
    assert ours == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("k", [10, 50])
@pytest.mark.parametrize(("metric", "least"), [("all_relevant", 1.0), ("any_relevant", 1e-9)])
def test_all_or_any_are_found_exactly_where_their_recall_says_so(
    metric: str, least: float, k: int
) -> None:
    rankings, qrels = random_case(seed=k, highest_grade=1)
    recalls = theirs(ir_measures.R @ k, rankings, qrels)
    expected = {q: recall >= least for q, recall in recalls.items()}
    found = {q: METRICS[metric](rankings[q], [*relevant(qrels[q])], k) for q in rankings}
    assert len(set(expected.values())) > 1
    assert found == expected


def by_hand(metric: str, ranking: str, relevant: str, k: int) -> float:
    """Return a metric of a ranking whose letters are ids."""
    return METRICS[metric](list(ranking), list(relevant), k)


METRICS: dict[str, Callable[[Sequence[str], Sequence[str], int], float]] = {
    "recall": recall_at_k,
    "precision": precision_at_k,
    "any_relevant": any_relevant_at_k,
    "all_relevant": all_relevant_at_k,
    "map": average_precision,
    "ndcg": ndcg_at_k,
    "mrr": reciprocal_rank,
}
LOG3 = log2(3)


@pytest.mark.parametrize(
    ("metric", "ranking", "relevant", "k", "expected"),
    [
        # A duplicate in the answer counts once and keeps its slot: trec_eval allows none.
        ("recall", "aab", "ab", 2, 1 / 2),
        ("precision", "aab", "ab", 2, 1 / 2),
        ("precision", "aab", "ab", 3, 2 / 3),
        ("all_relevant", "aab", "ab", 2, 0.0),
        ("map", "aa", "ab", 10, 1 / 2),
        ("map", "aab", "ab", 10, (1 + 2 / 3) / 2),
        ("ndcg", "aa", "ab", 10, 1 / (1 + 1 / LOG3)),
        ("ndcg", "aab", "ab", 10, (1 + 1 / 2) / (1 + 1 / LOG3)),
        ("mrr", "xxa", "a", 10, 1 / 3),
        # A label that stands twice is one.
        ("recall", "a", "aa", 1, 1.0),
        ("all_relevant", "a", "aa", 1, 1.0),
        # An empty answer finds nothing.
        *((metric, "", "a", 10, 0.0) for metric in METRICS),
        # More is relevant than fits.
        ("recall", "ab", "abcd", 2, 1 / 2),
        ("all_relevant", "abc", "abc", 2, 0.0),
        ("any_relevant", "xbc", "abc", 2, 1.0),
        ("any_relevant", "xbc", "abc", 1, 0.0),
        ("map", "abc", "abc", 1, 1 / 3),
        ("ndcg", "ab", "abcd", 2, 1.0),
        ("precision", "a", "a", 5, 1 / 5),
    ],
)
def test_what_trec_eval_does_not_know_is_as_it_is_written_down(
    metric: str, ranking: str, relevant: str, k: int, expected: float
) -> None:
    assert by_hand(metric, ranking, relevant, k) == pytest.approx(expected, abs=1e-15)


def test_a_first_hit_behind_rank_100_counts_nothing_unless_it_is_asked_for() -> None:
    ranking = [f"x{i}" for i in range(100)] + ["a"]
    assert reciprocal_rank(ranking, {"a"}) == 0.0
    assert reciprocal_rank(ranking[1:], {"a"}) == 1 / 100
    assert reciprocal_rank(ranking, {"a"}, depth=101) == 1 / 101


@pytest.mark.parametrize("metric", METRICS)
def test_no_label_and_no_cutoff_are_errors_and_not_a_zero(metric: str) -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        by_hand(metric, "a", "", 5)
    with pytest.raises(ValueError, match="starts at 1, got 0"):
        by_hand(metric, "a", "a", 0)


def test_graded_gains_count_once_up_to_the_ideal_and_zero_is_no_label() -> None:
    grades = {"a": 3, "b": 2, "c": 1, "junk": 0}
    ideal = 3 + 2 / LOG3 + 1 / 2
    assert graded_ndcg_at_k(["a", "a", "a"], grades, 10) == pytest.approx(3 / ideal, abs=1e-15)
    assert graded_ndcg_at_k(["b"], grades, 1) == 2 / 3
    assert graded_ndcg_at_k(["junk"], grades, 10) == 0.0
    with pytest.raises(ValueError, match="unanswerable"):
        graded_ndcg_at_k(["junk"], {"junk": 0}, 10)
    with pytest.raises(ValueError, match="starts at 1, got 0"):
        graded_ndcg_at_k(["a"], grades, 0)


def test_the_sum_is_rounded_once_so_every_python_gives_the_same_digits() -> None:
    for n in range(1, 60):
        exact = sum((Fraction(1 / log2(rank + 1)) for rank in range(1, n + 1)), Fraction(0))
        assert dcg([1.0] * n) == dcg([1.0] * n + [0.0] * 70) == float(exact)


def query(number: int, *relevant: str, stratum: str = "a") -> Query:
    return Query(f"q{number}", f"text {number}", stratum, relevant)


def graded_query(number: int, grades: dict[str, int]) -> Query:
    return replace(query(number, *grades), grades=grades)


def run_of(*rankings: str, depth: int = 50) -> Run:
    """A run over q1, q2, ...; every letter of a ranking is an id."""
    n = len(rankings)
    query_ids = tuple(f"q{number}" for number in range(1, n + 1))
    lists = tuple(tuple(ranking) for ranking in rankings)
    return Run("arm", 10, depth, query_ids, lists, (None,) * n, None, None, None, 0)


def test_every_default_metric_of_a_list_checked_by_hand() -> None:
    """Relevant are a and b; a stands at rank 2, b at rank 6."""
    scores = score_run(run_of("xayzwb"), [query(1, "a", "b")])
    assert scores.metrics == DEFAULT_METRICS
    ideal = 1 / math.log2(2) + 1 / math.log2(3)
    expected = {
        "recall@5": 1 / 2,
        "recall@10": 1.0,
        "all_relevant@10": 1.0,
        "precision@5": 1 / 5,
        "ndcg@10": (1 / math.log2(3) + 1 / math.log2(7)) / ideal,
        "mrr@50": 1 / 2,
        "map@50": (1 / 2 + 2 / 6) / 2,
    }
    repeated = score_run(run_of("aaaa"), [query(1, "a", "b")]).values
    assert np.array_equal(repeated, score_run(run_of("axxx"), [query(1, "a", "b")]).values)
    for metric, value in expected.items():
        assert scores.column(metric)[0] == pytest.approx(value), metric


def test_ndcg_takes_the_grades_of_a_query_that_has_them() -> None:
    graded = graded_query(1, {"a": 3, "b": 1})
    plain = query(2, "a", "b")
    scores = score_run(run_of("ba", "ba"), [graded, plain], ["ndcg@10"])
    second = 1 / math.log2(3)
    assert scores.column("ndcg@10")[0] == pytest.approx((1 + 3 * second) / (3 + second))
    assert scores.column("ndcg@10")[1] == 1.0


def test_rows_follow_the_queries_and_a_run_may_hold_more() -> None:
    run = run_of("a", "x", "b")
    asked = [query(3, "b", stratum="late"), query(1, "a", stratum="early")]
    scores = score_run(run, asked, ["recall@5", "mrr@10"])
    assert scores.query_ids == ("q3", "q1")
    assert scores.strata == ("late", "early")
    assert scores.values.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert score_run(run, [query(2, "a")], ["recall@5"]).values.tolist() == [[0.0]]


def test_columns_and_rows_can_be_picked() -> None:
    scores = score_run(run_of("a", "xa"), [query(1, "a"), query(2, "a")], ["recall@5", "mrr@10"])
    assert scores.column("mrr@10").tolist() == [1.0, 0.5]
    second = scores.select(np.array([False, True]))
    assert (second.query_ids, second.strata, second.name) == (("q2",), ("a",), "arm")
    assert second.values.tolist() == [[1.0, 0.5]]
    with pytest.raises(ValueError, match=r"lack 'map@5'; they have recall@5, mrr@10"):
        scores.column("map@5")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["recal@5", "", "@5", "Recall@5", "ndcg10"], "unknown metric .*; known are .*, map@k"),
        (["recall", "recall@", "recall@0", "recall@-1", "recall@1.5"], "a cutoff from 1 on, as in"),
    ],
)
def test_a_metric_is_a_family_and_a_cutoff(names: list[str], says: str) -> None:
    assert parse_metric("all_relevant@3") == ("all_relevant", 3)
    for name in names:
        with pytest.raises(ValueError, match=says):
            parse_metric(name)


def test_no_queries_missing_rankings_and_missing_labels_are_errors() -> None:
    with pytest.raises(ValueError, match=r"'arm' is 10 deep, too shallow for \['mrr@50', 'map@5"):
        score_run(run_of("a", depth=10), [query(1, "a")])
    with pytest.raises(ValueError, match="no labelled query to score"):
        score_run(run_of("a"), [])
    asked = [query(number, "a") for number in range(1, 14)]
    with pytest.raises(ValueError, match="lacks 12 of 13 queries, the first:") as caught:
        score_run(run_of("a"), asked)
    assert "'q11'" in str(caught.value)
    assert "'q12'" not in str(caught.value)
    with pytest.raises(ValueError, match=r"1 queries have no labels, the first: \['q1'\]"):
        score_run(run_of("a"), [query(1)])


letters = st.text("abcdefgh", max_size=12)
