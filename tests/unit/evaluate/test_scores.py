from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import DEFAULT_METRICS, FAMILIES, Scores, parse_metric, score_run
from noctuary.evaluate.run import Run


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
    for metric, value in expected.items():
        assert scores.column(metric)[0] == pytest.approx(value), metric


def test_ndcg_takes_the_grades_of_a_query_that_has_them() -> None:
    graded = graded_query(1, {"a": 3, "b": 1})
    plain = query(2, "a", "b")
    scores = score_run(run_of("ba", "ba"), [graded, plain], ["ndcg@10"])
    second = 1 / math.log2(3)
    assert scores.column("ndcg@10")[0] == pytest.approx((1 + 3 * second) / (3 + second))
    assert scores.column("ndcg@10")[1] == 1.0


def test_duplicates_never_inflate() -> None:
    labelled = [query(1, "a", "b")]
    once = score_run(run_of("axxx"), labelled).values
    assert np.array_equal(score_run(run_of("aaaa"), labelled).values, once)


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


def test_a_metric_is_a_family_and_a_cutoff() -> None:
    assert parse_metric("all_relevant@3") == ("all_relevant", 3)


@pytest.mark.parametrize("name", ["recal@5", "", "@5", "Recall@5", "ndcg10"])
def test_an_unknown_family_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown metric .*; known are recall@k, .*, map@k"):
        parse_metric(name)


@pytest.mark.parametrize("name", ["recall", "recall@", "recall@0", "recall@-1", "recall@1.5"])
def test_a_cutoff_is_a_number_from_one_on(name: str) -> None:
    with pytest.raises(ValueError, match="needs a cutoff from 1 on, as in recall@10"):
        parse_metric(name)


def test_a_metric_deeper_than_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'arm' is 10 deep, too shallow for \['mrr@50', 'map@5"):
        score_run(run_of("a", depth=10), [query(1, "a")])


def test_no_queries_missing_rankings_and_missing_labels_are_errors() -> None:
    with pytest.raises(ValueError, match="no labelled query to score"):
        score_run(run_of("a"), [])
    asked = [query(number, "a") for number in range(1, 14)]
    with pytest.raises(ValueError, match="lacks 12 of 13 queries, the first:") as caught:
        score_run(run_of("a"), asked)
    assert "'q11'" in str(caught.value)
    assert "'q12'" not in str(caught.value)
    with pytest.raises(ValueError, match=r"1 queries have no labels, the first: \['q1'\]"):
        score_run(run_of("a"), [query(1)])


def test_a_table_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"values of shape \(1, 1\); expected \(2, 1\)"):
        Scores("arm", ("recall@5",), ("q1", "q2"), ("a", "a"), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="2 queries, 1 strata"):
        Scores("arm", ("recall@5",), ("q1", "q2"), ("a",), np.zeros((2, 1)))


letters = st.text("abcdefgh", max_size=12)


@given(
    ranking=letters,
    grades=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1),
    cutoff=st.integers(1, 12),
)
def test_every_family_stays_in_the_unit_interval_and_is_full_for_the_ideal_order(
    ranking: str, grades: dict[str, int], cutoff: int
) -> None:
    labelled = [graded_query(1, grades), graded_query(2, grades)]
    ideal = "".join(sorted(grades, key=lambda found: -grades[found]))
    metrics = [f"{family}@{cutoff}" for family in FAMILIES]
    scores = score_run(run_of(ranking, ideal), labelled, metrics)
    assert ((scores.values >= 0.0) & (scores.values <= 1.0)).all()
    assert (scores.values[1] >= scores.values[0] - 1e-12).all()
    assert scores.column(f"ndcg@{cutoff}")[1] == pytest.approx(1.0)
