from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.recall import selection
from noctuary.recall.selection import (
    MOST_PICKS,
    mmr_score,
    penalized,
    select,
    wing_codes,
    wing_saturation,
)

# Products and sums of these are exact, so that the two implementations agree to the last bit.
UNIT = (
    (1.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 0.0, 0.0),
    (0.5, 0.5, 0.5, 0.5),
    (0.5, -0.5, 0.5, -0.5),
    (-0.5, -0.5, 0.5, 0.5),
    (-1.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0),
)


def naive(
    relevance: Sequence[float],
    k: int,
    share: float,
    vectors: Sequence[Sequence[float]],
    wings: Sequence[str | None],
    gamma: float,
) -> tuple[list[int], list[float]]:
    """The formulas word for word, O(m k^2)."""
    chosen: list[int] = []
    reached: list[float] = []

    def value(d: int) -> float:
        cosines = [sum(a * b for a, b in zip(vectors[d], vectors[s], strict=True)) for s in chosen]
        crowd = sum(wings[s] == wings[d] for s in chosen) / len(chosen) if chosen else 0.0
        return share * relevance[d] - (1 - share) * max([0.0, *cosines]) - gamma * crowd

    while len(chosen) < min(k, len(relevance)):
        waiting = [d for d in range(len(relevance)) if d not in chosen]
        best = max(waiting, key=value)
        reached.append(value(best))
        chosen.append(best)
    rest = sorted((d for d in range(len(relevance)) if d not in chosen), key=lambda d: -value(d))
    scores: list[float] = []
    for v in reached + [value(d) for d in rest]:
        scores.append(min([max(v, 0.0), *scores[-1:]]))
    return chosen + rest, scores


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[float], list[tuple[float, ...]], list[str | None]]:
    size = draw(st.integers(0, 12))
    sixteenths = draw(st.lists(st.integers(0, 16), min_size=size, max_size=size))
    vectors = draw(st.lists(st.sampled_from(UNIT), min_size=size, max_size=size))
    wings = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=size, max_size=size))
    return sorted((n / 16 for n in sixteenths), reverse=True), vectors, wings


def as_rows(
    vectors: Sequence[Sequence[float]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array(vectors, dtype=np.float32).reshape(len(vectors), 4)


@given(
    pools(),
    st.integers(0, 14),
    st.sampled_from([0.0, 0.25, 0.75, 1.0]),
    st.sampled_from([0.0, 0.5]),
)
def test_equals_the_formulas_word_for_word(
    pool: tuple[list[float], list[tuple[float, ...]], list[str | None]],
    k: int,
    share: float,
    gamma: float,
) -> None:
    relevance, vectors, wings = pool
    order, scores = naive(relevance, k, share, vectors, wings, gamma)
    found = select(
        np.array(relevance, dtype=np.float64),
        k,
        share,
        vectors=as_rows(vectors),
        codes=wing_codes(wings),
        gamma=gamma,
    )
    assert found.order.tolist() == order
    assert found.scores.tolist() == pytest.approx(scores, abs=1e-12)


def test_the_numbers_of_the_rfc() -> None:
    reached = penalized(np.array([0.71]), np.array([0.80]), 0.3)
    assert reached[0] == pytest.approx(0.47, abs=1e-12)
    counts = np.array([4, 1])
    assert wing_saturation(np.array([0, 1]), counts).tolist() == [0.8, 0.2]


def test_mmr_score_weighs_relevance_against_similarity() -> None:
    scores = mmr_score(np.array([0.9, 0.9]), np.array([0.0, 1.0]), 0.7)
    assert scores.tolist() == pytest.approx([0.63, 0.33])


def test_a_copy_goes_behind_what_is_less_relevant_but_new() -> None:
    vectors = as_rows([UNIT[0], UNIT[0], UNIT[1]])
    found = select(np.array([0.9, 0.88, 0.7]), 2, 0.7, vectors=vectors)
    assert found.order.tolist() == [0, 2, 1]
    assert found.nearest.tolist() == [-1, -1, 0]
    assert found.max_internal_similarity == 0.0


def test_opposite_vectors_are_not_more_different_than_unrelated_ones() -> None:
    vectors = as_rows([UNIT[0], UNIT[5]])
    assert select(np.array([0.9, 0.8]), 2, 0.5, vectors=vectors).similarity.tolist() == [0.0, 0.0]


def test_saturation_is_zero_at_the_first_pick_and_a_share_later() -> None:
    codes = wing_codes(["work", "work", "flights", "work"])
    found = select(np.array([0.9, 0.8, 0.1, 0.05]), 3, 1.0, codes=codes, gamma=0.1)
    assert found.order.tolist() == [0, 1, 2, 3]
    assert found.saturation.tolist() == [0.0, 1.0, 0.0, pytest.approx(2 / 3)]


def test_memories_without_a_wing_crowd_each_other() -> None:
    assert wing_codes([None, "a", None, "b", "a"]).tolist() == [0, 1, 0, 2, 1]


def test_equal_values_are_selected_in_the_order_given() -> None:
    found = select(np.array([0.5, 0.5, 0.5]), 3, 0.7, vectors=as_rows([UNIT[0]] * 3))
    assert found.order.tolist() == [0, 1, 2]


def test_a_memory_without_a_vector_is_similar_to_nobody() -> None:
    vectors = as_rows([UNIT[6], UNIT[6]])
    assert select(np.array([0.5, 0.5]), 2, 0.7, vectors=vectors).nearest.tolist() == [-1, -1]


def test_a_very_long_list_is_selected_one_by_one_only_at_its_head() -> None:
    size = MOST_PICKS + 10
    found = select(np.linspace(1, 0.5, size), size, 0.7, codes=wing_codes(["a"] * size), gamma=0.3)
    assert found.picked == selection.MOST_PICKS
    assert sorted(found.order.tolist()) == list(range(size))
    assert (np.diff(found.scores) <= 0).all()
