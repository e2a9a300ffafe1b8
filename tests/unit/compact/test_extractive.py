from __future__ import annotations

import numpy as np
import pytest

from noctuary.compact.summaries import source_tokens
from noctuary.compact.summarizers import (
    EXTRACTIVE,
    Draft,
    Outcome,
    Refusal,
    Request,
    central_turns,
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


def request(texts: list[str], vectors: np.ndarray) -> Request:
    return Request("c", texts, vectors)


def test_a_draft_joins_the_kept_turns() -> None:
    contents = ["first turn", "second", "third turn", "fourth"]
    asked = request(contents, around(0, 90, 1, -90))
    assert EXTRACTIVE.write(asked, 0.4) == Draft("first turn third turn")
    assert EXTRACTIVE.write(asked, 0.25) == Draft("first turn")


def test_turns_without_text_are_refused_and_each_request_is_answered() -> None:
    asked = [request(["", " "], np.ones((2, 2))), request(["a", "b"], np.ones((2, 2)))]
    empty, kept = (EXTRACTIVE.write(one, 0.5) for one in asked)
    assert isinstance(empty, Refusal)
    assert empty.outcome is Outcome.UNUSABLE
    assert kept == Draft("a")


def test_turns_and_vectors_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match="2 turns came with 3 vectors"):
        EXTRACTIVE.write(request(["a", "b"], np.ones((3, 2))), 0.4)


def test_the_tokens_of_sources_are_those_of_their_joined_text() -> None:
    assert source_tokens(["abcd", "efg"]) == 2
    assert source_tokens([]) == 0
