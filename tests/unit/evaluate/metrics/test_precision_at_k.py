from __future__ import annotations

import pytest

from noctuary.evaluate.metrics import precision_at_k


def test_precision_is_the_relevant_share_of_the_slots() -> None:
    ranking = ["x", "a", "y", "b", "c"]
    assert precision_at_k(ranking, {"a", "b", "c"}, 1) == 0.0
    assert precision_at_k(ranking, {"a", "b", "c"}, 2) == 1 / 2
    assert precision_at_k(ranking, {"a", "b", "c"}, 5) == 3 / 5


def test_a_short_ranking_is_still_divided_by_k() -> None:
    assert precision_at_k(["a"], {"a"}, 5) == 1 / 5
    assert precision_at_k([], {"a"}, 5) == 0.0


def test_a_duplicate_wastes_its_slot() -> None:
    assert precision_at_k(["a", "a", "b"], {"a", "b"}, 2) == 1 / 2
    assert precision_at_k(["a", "a", "b"], {"a", "b"}, 3) == 2 / 3


def test_no_label_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        precision_at_k(["a"], set(), 5)


def test_a_cutoff_starts_at_one() -> None:
    with pytest.raises(ValueError, match="starts at 1, got -1"):
        precision_at_k(["a"], {"a"}, -1)
