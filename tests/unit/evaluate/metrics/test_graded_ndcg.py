from __future__ import annotations

from math import log2

import pytest

from noctuary.evaluate.metrics import graded_ndcg_at_k, ndcg_at_k

GRADES = {"a": 3, "b": 2, "c": 1, "junk": 0}


def test_gains_are_the_grades() -> None:
    ideal = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    assert graded_ndcg_at_k(["a", "b", "c"], GRADES, 10) == 1.0
    assert graded_ndcg_at_k(["c", "x", "a"], GRADES, 10) == pytest.approx(
        (1 / log2(2) + 3 / log2(4)) / ideal, abs=1e-15
    )


def test_the_worked_example_of_jarvelin_and_kekalainen_with_this_discount() -> None:
    # Gains <3,2,3,0,1,2>, ideal <3,3,2,2,1,0>: the much copied example of six judged documents.
    grades = {"d1": 3, "d2": 2, "d3": 3, "d4": 0, "d5": 1, "d6": 2}
    found = graded_ndcg_at_k(["d1", "d2", "d3", "d4", "d5", "d6"], grades, 6)
    dcg = 3 + 2 / log2(3) + 3 / 2 + 1 / log2(6) + 2 / log2(7)
    ideal = 3 + 3 / log2(3) + 2 / 2 + 2 / log2(5) + 1 / log2(6)
    assert found == pytest.approx(dcg / ideal, abs=1e-15)
    assert found == pytest.approx(0.9608, abs=5e-5)


def test_the_ideal_takes_the_highest_grades_up_to_the_cutoff() -> None:
    assert graded_ndcg_at_k(["a", "b"], GRADES, 2) == 1.0
    assert graded_ndcg_at_k(["b"], GRADES, 1) == 2 / 3


def test_grades_of_one_are_the_binary_metric() -> None:
    ranking = ["x", "a", "y", "b", "b", "z"]
    grades = {"a": 1, "b": 1, "c": 1, "x": 0}
    assert graded_ndcg_at_k(ranking, grades, 5) == ndcg_at_k(ranking, {"a", "b", "c"}, 5)


def test_a_duplicate_earns_its_gain_once() -> None:
    ideal = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    assert graded_ndcg_at_k(["a", "a", "a"], GRADES, 10) == pytest.approx(3 / ideal, abs=1e-15)


def test_grade_zero_gains_nothing_and_is_no_label() -> None:
    assert graded_ndcg_at_k(["junk"], GRADES, 10) == 0.0
    with pytest.raises(ValueError, match="unanswerable"):
        graded_ndcg_at_k(["junk"], {"junk": 0}, 10)
    with pytest.raises(ValueError, match="unanswerable"):
        graded_ndcg_at_k(["a"], {}, 10)


def test_a_cutoff_starts_at_one() -> None:
    with pytest.raises(ValueError, match="starts at 1, got 0"):
        graded_ndcg_at_k(["a"], GRADES, 0)
