from __future__ import annotations

import pytest

from noctuary.evaluate.metrics import recall_at_k


def test_recall_counts_the_relevant_share_within_the_cutoff() -> None:
    ranking = ["x", "a", "y", "b", "c"]
    assert recall_at_k(ranking, {"a", "b", "c"}, 2) == 1 / 3
    assert recall_at_k(ranking, {"a", "b", "c"}, 4) == 2 / 3
    assert recall_at_k(ranking, {"a", "b", "c"}, 5) == 1.0
    assert recall_at_k(ranking, {"z"}, 5) == 0.0


def test_recall_is_not_capped_at_k_when_more_is_relevant() -> None:
    assert recall_at_k(["a", "b"], {"a", "b", "c", "d"}, 2) == 2 / 4


def test_a_duplicate_counts_once_and_keeps_its_slot() -> None:
    assert recall_at_k(["a", "a", "b"], {"a", "b"}, 2) == 1 / 2
    assert recall_at_k(["a"], ["a", "a"], 1) == 1.0


def test_an_empty_ranking_recalls_nothing() -> None:
    assert recall_at_k([], {"a"}, 10) == 0.0


def test_no_label_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        recall_at_k(["a"], set(), 5)


def test_a_cutoff_starts_at_one() -> None:
    with pytest.raises(ValueError, match="starts at 1, got 0"):
        recall_at_k(["a"], {"a"}, 0)
