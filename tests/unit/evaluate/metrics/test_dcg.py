from __future__ import annotations

from fractions import Fraction
from math import log2

import pytest

from noctuary.evaluate.metrics import dcg, graded_ndcg_at_k


def test_the_discount_starts_at_the_second_rank() -> None:
    assert dcg([1.0]) == 1.0
    assert dcg([0.0, 1.0]) == 1 / log2(3)
    assert dcg([3.0, 2.0, 0.0, 1.0]) == pytest.approx(3 + 2 / log2(3) + 1 / log2(5), abs=1e-15)


def test_no_gain_sums_to_zero() -> None:
    assert dcg([]) == 0.0
    assert dcg([0.0, 0.0]) == 0.0


def test_zeros_behind_the_gains_change_no_digit() -> None:
    gains = [1.0] * 30
    assert dcg(gains + [0.0] * 70) == dcg(gains)


def test_the_quotient_of_the_ideal_order_is_exactly_one() -> None:
    assert graded_ndcg_at_k(["a", "b", "c", "x", "y"], {"a": 3, "b": 2, "c": 1}, 5) == 1.0
    assert graded_ndcg_at_k(["x", "a"], {"a": 1}, 2) == 1 / log2(3)


def test_the_sum_is_rounded_once_so_every_python_gives_the_same_digits() -> None:
    for n in range(1, 60):
        exact = sum((Fraction(1 / log2(rank + 1)) for rank in range(1, n + 1)), Fraction(0))
        assert dcg([1.0] * n) == float(exact)
