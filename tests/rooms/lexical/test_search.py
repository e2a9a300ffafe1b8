from __future__ import annotations

import numpy as np
import pytest

from noctuary.lexical.build import build_postings
from noctuary.lexical.search import score, top_positions

POSTINGS = build_postings([b"cat\ndog", b"dog\ndog", b"bird", b""])


def scores_of(*tokens: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    found = score(tokens, POSTINGS.ranges, POSTINGS.positions, POSTINGS.scores, 4)
    assert found.shape == (4,)
    assert found.dtype == np.float32
    return found


def test_score_adds_the_postings_of_every_token() -> None:
    both = scores_of("cat", "dog")
    assert both.tolist() == pytest.approx((scores_of("cat") + scores_of("dog")).tolist())
    assert both[0] > both[1] > both[2] == both[3] == 0


def test_a_repeated_query_token_counts_once() -> None:
    assert scores_of("dog", "dog", "cat").tolist() == scores_of("cat", "dog").tolist()


def test_unknown_tokens_may_be_zero_ranges_or_left_out() -> None:
    def only_known(terms: list[str]) -> list[tuple[int, int]]:
        return [pair for pair in POSTINGS.ranges(terms) if pair[1]]

    left_out = score(["ant", "dog"], only_known, POSTINGS.positions, POSTINGS.scores, 4)
    assert left_out.tolist() == scores_of("ant", "dog").tolist() == scores_of("dog").tolist()
    assert not scores_of().any()


def test_terms_are_looked_up_once_sorted_and_distinct() -> None:
    asked: list[list[str]] = []

    def lookup(terms: list[str]) -> list[tuple[int, int]]:
        asked.append(terms)
        return []

    score(["dog", "cat", "dog"], lookup, POSTINGS.positions, POSTINGS.scores, 4)
    assert asked == [["cat", "dog"]]


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
