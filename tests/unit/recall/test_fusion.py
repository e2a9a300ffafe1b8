from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.recall.legs import add_graph, apply_importance, fuse_convex, fuse_rrf, pool_candidates


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def test_the_pool_is_the_sorted_union() -> None:
    assert pool_candidates([ints(5, 1), ints(), ints(1, 3)]).tolist() == [1, 3, 5]
    assert pool_candidates([ints(), ints()]).tolist() == []
    assert pool_candidates([]).tolist() == []
    assert pool_candidates([ints()]).dtype == np.int64


def test_rrf_closed_form() -> None:
    # Position 4 is first in both legs, 7 second in one, 9 second in the other.
    scores = fuse_rrf(ints(4, 7, 9), (ints(4, 7), ints(4, 9)), (1.0, 3.0), 60)
    best = 4 / 61
    assert scores.tolist() == pytest.approx([1.0, (1 / 62) / best, (3 / 62) / best])


def test_rrf_of_first_in_one_leg_and_second_in_the_other() -> None:
    scores = fuse_rrf(ints(1, 2), (ints(1, 2), ints(2, 1)), (1.0, 1.0), 1)
    # 1/2 + 1/3 over the best possible 1/2 + 1/2.
    assert scores.tolist() == pytest.approx([5 / 6, 5 / 6])


@pytest.mark.parametrize("off", [(0.0, "weight"), (1.0, "empty")])
def test_rrf_with_one_leg_off_is_the_other_leg(off: tuple[float, str]) -> None:
    weight, how = off
    second = ints() if how == "empty" else ints(2, 0)
    scores = fuse_rrf(ints(0, 2, 5), (ints(5, 0), second), (0.5, weight), 60)
    assert scores.tolist() == pytest.approx([61 / 62, 0.0, 1.0])


def test_rrf_k_flattens_the_head() -> None:
    def second(k: int) -> float:
        return float(fuse_rrf(ints(0, 1), (ints(0, 1),), (1.0,), k)[1])

    assert second(1) == pytest.approx(2 / 3)
    assert second(1) < second(60) < second(1000) < 1.0


def test_rrf_without_anything_is_zero() -> None:
    assert fuse_rrf(ints(), (ints(), ints()), (1.0, 1.0), 60).tolist() == []
    assert fuse_rrf(ints(3), (ints(), ints()), (1.0, 1.0), 60).tolist() == [0.0]
    assert fuse_rrf(ints(3), (ints(3),), (0.0,), 60).tolist() == [0.0]


def test_convex_closed_form() -> None:
    scores = fuse_convex([floats(10.0, 5.0, 0.0), floats(0.2, 0.8, 0.4)], (1.0, 3.0))
    # (1 * s/10 + 3 * t/0.8) / 4
    assert scores.tolist() == pytest.approx([1.75 / 4, 3.5 / 4, 1.5 / 4])


@pytest.mark.parametrize(
    ("second", "weight"), [(floats(0, 0), 1.0), (floats(-1, -0.5), 1.0), (floats(1, 2), 0.0)]
)
def test_convex_with_one_leg_silent_is_the_other_leg(
    second: NDArray[np.float64], weight: float
) -> None:
    assert fuse_convex([floats(4, 2), second], (0.5, weight)).tolist() == [1.0, 0.5]


def test_convex_counts_negative_and_missing_numbers_as_zero() -> None:
    scores = fuse_convex([floats(2.0, -9.0, np.nan)], (1.0,))
    assert scores.tolist() == [1.0, 0.0, 0.0]


def test_convex_without_anything_is_zero() -> None:
    assert fuse_convex([], ()).tolist() == []
    assert fuse_convex([floats()], (1.0,)).tolist() == []
    assert fuse_convex([floats(0, 0), floats(-1, 0)], (1.0, 1.0)).tolist() == [0.0, 0.0]


def test_graph_closed_form() -> None:
    assert add_graph(floats(1.0, 0.5, 0.0), floats(0.0, 0.5, 1.0), 1.0).tolist() == [0.5, 0.5, 0.5]
    assert add_graph(floats(0.2), floats(0.4), 0.5).tolist() == pytest.approx([0.4 / 1.5])


def test_graph_off_and_graph_empty_return_the_base_itself() -> None:
    base = floats(0.3, 0.7)
    assert add_graph(base, floats(0.5, 0.5), 0.0) is base
    assert add_graph(base, floats(0.0, 0.0), 1.0) is base


def test_importance_closed_form() -> None:
    scores, importance = floats(1.0, 1.0, 0.5), np.array([1.0, 0.0, 0.5], dtype=np.float32)
    assert apply_importance(scores, importance, 0.3).tolist() == pytest.approx([1.0, 0.7, 0.425])
    assert apply_importance(scores, importance, 0.0).tolist() == scores.tolist()
    assert apply_importance(scores, importance, 1.0).tolist() == [1.0, 0.0, 0.25]
