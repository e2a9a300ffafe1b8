from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from noctuary.graph.walk import NAMED_WEIGHT, ROLES, Link, MentionArrays, name_subjects, subjects_of

Hold = tuple[int, str]


def _mentions(*concepts: list[Hold]) -> MentionArrays:
    """By concept, its (position, role) pairs, ascending."""
    held = [hold for holds in concepts for hold in holds]
    return MentionArrays(
        indptr=np.cumsum([0, *(len(holds) for holds in concepts)], dtype=np.int64),
        positions=np.array([p for p, _ in held], dtype=np.int32),
        roles=np.array([ROLES.index(role) for _, role in held], dtype=np.int8),
        starts=np.full(len(held), -1, dtype=np.int32),
        ends=np.full(len(held), -1, dtype=np.int32),
    )


def _link(ordinal: int, weight: float) -> Link:
    return Link(ordinal, weight, 0, 1)


def test_every_memory_about_a_concept_gains_the_links_share() -> None:
    mentions = _mentions([(9, "about")], [(2, "about"), (4, "mentions"), (5, "about")])
    found = name_subjects([_link(1, 0.5)], mentions)
    assert found.positions.tolist() == [2, 5]
    assert found.scores.tolist() == [NAMED_WEIGHT * 0.5] * 2
    assert found.concepts.tolist() == [1, 1]


def test_only_subjects_count() -> None:
    mentions = _mentions([(1, "mentions"), (2, "author"), (3, "speaker")])
    assert name_subjects([_link(0, 1.0)], mentions).positions.size == 0


def test_links_add_up_and_the_strongest_is_named() -> None:
    mentions = _mentions([(3, "about")], [(3, "about"), (7, "about")], [(3, "about")])
    found = name_subjects([_link(0, 0.2), _link(1, 0.6), _link(2, 0.4)], mentions)
    assert found.positions.tolist() == [3, 7]
    assert found.scores.tolist() == pytest.approx([NAMED_WEIGHT * 1.2, NAMED_WEIGHT * 0.6])
    assert found.concepts.tolist() == [1, 1]


def test_equal_gains_name_the_concept_that_the_query_names_first() -> None:
    mentions = _mentions([(3, "about")], [(3, "about")])
    assert name_subjects([_link(1, 0.5), _link(0, 0.5)], mentions).concepts.tolist() == [1]


def test_a_repeated_name_counts_once() -> None:
    mentions = _mentions([(3, "about"), (3, "about"), (4, "about")])
    found = name_subjects([Link(0, 0.5, 0, 4), Link(0, 0.5, 9, 13)], mentions)
    assert found.positions.tolist() == [3, 4]
    assert found.scores.tolist() == [NAMED_WEIGHT * 0.5] * 2


@pytest.mark.parametrize("weights", [(0.2, 0.6), (0.6, 0.2), (0.6, 0.0), (0.0, 0.6)])
def test_of_several_names_of_one_concept_the_most_specific_counts_in_any_order(
    weights: tuple[float, float],
) -> None:
    mentions = _mentions([(3, "about")], [(3, "about"), (4, "about")])
    aliases = [Link(0, weight, at, at + 4) for at, weight in enumerate(weights)]
    found = name_subjects([*aliases, _link(1, 0.5)], mentions)
    assert found.scores.tolist() == pytest.approx([NAMED_WEIGHT * 1.1, NAMED_WEIGHT * 0.5])
    assert found.concepts.tolist() == [0, 1]


def test_the_order_of_links_does_not_matter() -> None:
    mentions = _mentions([(1, "about"), (3, "about")], [(3, "about")], [(2, "about"), (3, "about")])
    links = [_link(0, 0.25), _link(2, 0.125), _link(1, 0.5), _link(0, 0.5), _link(2, 0.75)]
    for order in permutations(links):
        found = name_subjects(order, mentions)
        assert found.positions.tolist() == [1, 2, 3]
        assert found.scores.tolist() == pytest.approx([NAMED_WEIGHT * w for w in (0.5, 0.75, 1.75)])
        assert found.concepts.tolist() == [0, 2, 2]


def test_a_name_without_weight_links_nothing() -> None:
    mentions = _mentions([(3, "about")])
    assert name_subjects([_link(0, 0.0)], mentions).positions.size == 0


def test_hidden_memories_gain_nothing() -> None:
    mentions = _mentions([(0, "about"), (1, "about"), (2, "about")])
    mask = np.array([True, False, True])
    assert name_subjects([_link(0, 1.0)], mentions, mask).positions.tolist() == [0, 2]
    assert name_subjects([_link(0, 1.0)], mentions, np.zeros(3, dtype=bool)).positions.size == 0


def test_without_links_there_is_nothing_of_the_right_types() -> None:
    found = name_subjects([], _mentions([(0, "about")]))
    assert [array.dtype for array in found] == [np.int64, np.float64, np.int64]
    assert [array.size for array in found] == [0, 0, 0]


def test_subjects_are_distinct_and_ascending() -> None:
    mentions = _mentions([(0, "about")], [(6, "about"), (2, "about"), (6, "about")])
    assert subjects_of(1, mentions).tolist() == [2, 6]
    assert subjects_of(1, mentions).dtype == np.int64
