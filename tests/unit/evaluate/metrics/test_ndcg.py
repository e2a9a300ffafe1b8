from __future__ import annotations

from math import log2

import pytest

from noctuary.evaluate.metrics import ndcg_at_k


def test_ndcg_of_hand_made_rankings() -> None:
    ideal_of_two = 1 / log2(2) + 1 / log2(3)
    assert ndcg_at_k(["a", "b"], {"a", "b"}, 10) == 1.0
    assert ndcg_at_k(["x", "a"], {"a"}, 10) == pytest.approx((1 / log2(3)) / 1.0, abs=1e-15)
    assert ndcg_at_k(["a", "x", "b"], {"a", "b"}, 10) == pytest.approx(
        (1 / log2(2) + 1 / log2(4)) / ideal_of_two, abs=1e-15
    )


def test_the_ideal_is_capped_at_the_cutoff() -> None:
    assert ndcg_at_k(["a", "b"], {"a", "b", "c", "d"}, 2) == 1.0


def test_results_below_the_cutoff_do_not_count() -> None:
    assert ndcg_at_k(["x", "y", "a"], {"a"}, 2) == 0.0


def test_a_duplicate_earns_its_gain_once() -> None:
    ideal = 1 / log2(2) + 1 / log2(3)
    assert ndcg_at_k(["a", "a"], {"a", "b"}, 10) == pytest.approx(1 / ideal, abs=1e-15)
    assert ndcg_at_k(["a", "a", "b"], {"a", "b"}, 10) < ndcg_at_k(["a", "b"], {"a", "b"}, 10)


def test_no_label_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        ndcg_at_k(["a"], (), 5)
