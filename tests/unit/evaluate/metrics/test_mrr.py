from __future__ import annotations

import pytest

from noctuary.evaluate.metrics import reciprocal_rank


def test_reciprocal_rank_is_one_over_the_first_hit() -> None:
    assert reciprocal_rank(["a", "b"], {"a", "b"}) == 1.0
    assert reciprocal_rank(["x", "y", "a", "b"], {"a", "b"}) == 1 / 3
    assert reciprocal_rank(["x"], {"a"}) == 0.0
    assert reciprocal_rank([], {"a"}) == 0.0


def test_the_depth_bounds_the_search() -> None:
    ranking = [f"x{i}" for i in range(100)] + ["a"]
    assert reciprocal_rank(ranking, {"a"}) == 0.0
    assert reciprocal_rank(ranking, {"a"}, depth=101) == 1 / 101


def test_a_duplicate_before_the_hit_does_not_promote_it() -> None:
    assert reciprocal_rank(["x", "x", "a"], {"a"}) == 1 / 3


def test_no_label_is_an_error() -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        reciprocal_rank(["a"], set())
