from __future__ import annotations

import pytest

from noctuary.evaluate.metrics import all_relevant_at_k


def test_the_answer_is_complete_only_with_the_last_relevant_result() -> None:
    ranking = ["x", "a", "y", "b", "z"]
    assert all_relevant_at_k(ranking, {"a", "b"}, 3) == 0.0
    assert all_relevant_at_k(ranking, {"a", "b"}, 4) == 1.0
    assert all_relevant_at_k(ranking, {"a", "b", "c"}, 5) == 0.0
    assert all_relevant_at_k(ranking, {"a"}, 2) == 1.0


def test_more_relevant_than_slots_is_never_complete() -> None:
    assert all_relevant_at_k(["a", "b", "c"], {"a", "b", "c"}, 2) == 0.0


def test_a_duplicate_result_does_not_stand_in_for_a_missing_one() -> None:
    assert all_relevant_at_k(["a", "a"], {"a", "b"}, 2) == 0.0
    assert all_relevant_at_k(["a", "a", "b"], {"a", "b"}, 2) == 0.0


def test_a_duplicate_label_counts_once() -> None:
    assert all_relevant_at_k(["a"], ["a", "a"], 1) == 1.0


def test_an_empty_ranking_is_not_complete() -> None:
    assert all_relevant_at_k([], {"a"}, 10) == 0.0


def test_no_label_is_an_error_not_a_one() -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        all_relevant_at_k(["a"], set(), 5)


def test_a_cutoff_starts_at_one() -> None:
    with pytest.raises(ValueError, match="starts at 1, got 0"):
        all_relevant_at_k(["a"], {"a"}, 0)
