from __future__ import annotations

import numpy as np
import pytest

from mnemon.compact.extractive import (
    METHOD_AGGRESSIVE,
    METHOD_PRIMARY,
    central_turns,
    extract,
    source_tokens,
)


def around(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_the_most_central_turns_are_kept_in_their_order() -> None:
    vectors = around(80, 10, -80, -10, 0)
    assert central_turns(vectors, 0.4) == [1, 4]
    assert central_turns(vectors, 0.6) == [1, 3, 4]
    assert central_turns(vectors, 1.0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("turns", "kept"), [(1, 1), (2, 1), (5, 2), (6, 3), (20, 8), (35, 14)])
def test_the_number_kept_is_the_rounded_up_share(turns: int, kept: int) -> None:
    assert len(central_turns(np.ones((turns, 3)), 0.4)) == kept


def test_ties_go_to_the_earlier_turn() -> None:
    assert central_turns(np.ones((10, 3)), 0.25) == [0, 1, 2]


def test_zero_vectors_are_least_central_and_break_nothing() -> None:
    vectors = np.vstack([np.zeros((2, 2)), around(5, 0, -5)])
    assert central_turns(vectors, 0.2) == [3]
    assert central_turns(np.zeros((4, 2)), 0.25) == [0]
    assert central_turns(np.zeros((0, 2)), 0.4) == []


def test_whole_turns_are_joined_so_speakers_stay() -> None:
    contents = ["Ann: we moved to Lyon", "Bob: nice\nreally", "Ann: the cat is fine", "Bob: ok"]
    cut = extract(contents, around(0, 90, 1, -90))
    assert cut is not None
    assert cut.text == "Ann: we moved to Lyon Ann: the cat is fine"
    assert cut.kept == (0, 2)
    assert cut.method == METHOD_PRIMARY
    assert cut.summary_tokens < source_tokens(contents)


def test_the_aggressive_cut_is_tried_where_the_primary_is_not_smaller() -> None:
    contents = ["aaaa", "b", "c", "d"]
    vectors = around(1, -2, 90, -90)
    cut = extract(contents, vectors, density=1.0)
    assert cut is not None
    assert cut.method == METHOD_AGGRESSIVE
    assert cut.text == "aaaa"


def test_nothing_smaller_is_declined() -> None:
    assert extract(["abc"], np.ones((1, 2))) is None
    assert extract([], np.zeros((0, 2))) is None
    assert extract(["a", ""], around(0, 1)) is None


def test_one_vector_per_turn_is_required() -> None:
    with pytest.raises(ValueError, match="2 turns"):
        extract(["a", "b"], np.ones((3, 2)))
