from __future__ import annotations

import numpy as np
import pytest

from noctuary.lexical.build import build_postings
from noctuary.lexical.search import add_scores, top_positions

POSTINGS = build_postings([b"cat\ndog", b"dog\ndog", b"bird", b""])


def scores_of(*tokens: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    found = np.zeros(4, dtype=np.float32)
    add_scores(found, POSTINGS.ranges(tokens), POSTINGS.positions, POSTINGS.scores)
    return found


def test_scores_add_the_postings_of_every_token() -> None:
    both = scores_of("cat", "dog")
    assert both.tolist() == pytest.approx((scores_of("cat") + scores_of("dog")).tolist())
    assert both[0] > both[1] > both[2] == both[3] == 0
    assert scores_of("ant", "dog").tolist() == scores_of("dog").tolist(), "an unknown one adds 0"
    assert not scores_of().any()


def top(values: list[float], depth: int, mask: list[bool] | None = None) -> list[int]:
    allowed = None if mask is None else np.array(mask)
    found = top_positions(np.array(values, dtype=np.float32), depth, allowed)
    assert found.dtype == np.int64
    return found.tolist()


def test_top_positions_breaks_ties_by_position() -> None:
    assert top([1, 3, 1, 3, 1, 1], 4) == [1, 3, 0, 2]
    assert top([1] * 10, 3) == [0, 1, 2]


def test_only_positive_scores_are_returned() -> None:
    assert top([0, -1, float("nan"), 2], 10) == [3]
    assert top([0, 0], 1) == []


def test_the_mask_is_applied_before_the_cut() -> None:
    assert top([5, 4, 3, 2], 2, [False, True, False, True]) == [1, 3]
    assert top([5, 4], 2, [False, False]) == []


@pytest.mark.parametrize("depth", [0, -1])
def test_no_depth_no_positions(depth: int) -> None:
    assert top([1, 2], depth) == []
    assert top([], 5) == []
