from __future__ import annotations

import pytest

from noctuary.evaluate.metrics import average_precision


def test_precision_is_averaged_over_the_relevant_ranks() -> None:
    ranking = ["a", "x", "b", "y", "c"]
    assert average_precision(ranking, {"a", "b", "c"}, 10) == pytest.approx(
        (1 / 1 + 2 / 3 + 3 / 5) / 3, abs=1e-15
    )
    assert average_precision(["a", "b", "c"], {"a", "b", "c"}, 3) == 1.0
    assert average_precision(["x", "a"], {"a"}, 10) == 1 / 2


def test_what_is_not_found_adds_nothing_but_is_counted() -> None:
    assert average_precision(["a"], {"a", "b"}, 10) == 1 / 2
    assert average_precision(["x"], {"a"}, 10) == 0.0
    assert average_precision([], {"a"}, 10) == 0.0


def test_the_denominator_is_not_capped_at_the_depth() -> None:
    assert average_precision(["a", "b", "c"], {"a", "b", "c"}, 1) == 1 / 3


def test_a_duplicate_earns_nothing_and_pushes_the_rest_down() -> None:
    assert average_precision(["a", "a"], {"a", "b"}, 10) == 1 / 2
    assert average_precision(["a", "a", "b"], {"a", "b"}, 10) == pytest.approx(
        (1 / 1 + 2 / 3) / 2, abs=1e-15
    )


def test_no_label_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="unanswerable"):
        average_precision(["a"], set(), 5)


def test_a_depth_starts_at_one() -> None:
    with pytest.raises(ValueError, match="starts at 1, got 0"):
        average_precision(["a"], {"a"}, 0)
