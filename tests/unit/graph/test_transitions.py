from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph.transitions import Sparse, Transitions, build_transitions
from tests.support.mentions import Held, mention_arrays, random_mentions


def dense(matrix: Sparse) -> NDArray[np.float64]:
    stored: Any = matrix
    return stored.toarray()


def built(held: list[Held], memories: int, concepts: int, **more: Any) -> Transitions:
    return build_transitions(mention_arrays(held, concepts), memories, **more)


def test_a_rarer_concept_gets_more_and_passes_on_in_equal_parts() -> None:
    held = [(0, m, "mentions") for m in (0, 1, 2, 3)] + [(1, 0, "about"), (1, 1, "author")]
    found = built(held, 5, 2)
    assert found.ordinals.tolist() == [0, 1]
    assert found.degrees.tolist() == [4, 2]
    assert dense(found.to_concepts)[:, 0].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert dense(found.to_concepts)[:, 2].tolist() == [1.0, 0.0]
    assert dense(found.to_memories)[:, 0].tolist() == [0.25, 0.25, 0.25, 0.25, 0.0]
    assert dense(found.to_memories)[:, 1].tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]
    assert found.is_end.tolist() == [False, False, False, False, True]


def test_a_concept_counts_once_in_a_memory_whatever_its_roles() -> None:
    once = [(0, 0, "about"), (0, 1, "mentions"), (0, 2, "mentions")]
    often = [*once, (0, 0, "about"), (0, 0, "mentions"), (0, 1, "author")]
    assert built(often, 3, 1).degrees.tolist() == [3]
    assert (
        dense(built(often, 3, 1).to_memories).tolist()
        == dense(built(once, 3, 1).to_memories).tolist()
    )


def test_what_one_memory_alone_holds_joins_nothing() -> None:
    found = built([(0, 0, "about"), (0, 0, "mentions"), (2, 1, "mentions")], 2, 3)
    assert (found.ordinals.size, found.is_end.tolist()) == (0, [True, True])


def test_columns_sum_to_one_or_end() -> None:
    rng = np.random.default_rng(1)
    found = built(random_mentions(rng, 40, 30), 40, 30)
    assert dense(found.to_memories).sum(axis=0).tolist() == pytest.approx(
        [1.0] * found.ordinals.size
    )
    left = np.where(found.is_end, 0.0, 1.0)
    assert dense(found.to_concepts).sum(axis=0).tolist() == pytest.approx(left.tolist())
    assert 0 < found.is_end.sum() < 40


@pytest.mark.parametrize(
    ("role", "holders", "memories", "leads"),
    [
        ("mentions", 50, 60, True),
        ("mentions", 51, 60, False),
        ("mentions", 60, 3000, True),
        ("mentions", 61, 3000, False),
        ("about", 50, 3000, True),
        ("about", 51, 3000, False),
    ],
)
def test_a_hub_leads_nowhere(role: str, holders: int, memories: int, leads: bool) -> None:
    held = [(1, m, role) for m in range(holders)]
    assert built(held, memories, 3).ordinals.tolist() == ([1] if leads else [])


def test_the_share_of_a_hub_is_that_of_the_visible_memories() -> None:
    held = [(0, m, "mentions") for m in range(55)]
    some = np.arange(3000) < 2600
    assert built(held, 3000, 1).ordinals.tolist() == [0]
    assert built(held, 3000, 1, mask=some).ordinals.tolist() == []


@pytest.mark.parametrize("seed", range(5))
def test_what_is_hidden_is_as_good_as_absent(seed: int) -> None:
    """Not only unreached: it counts nowhere, to the bit. Some concepts are hubs only with it."""
    rng = np.random.default_rng(seed)
    held = random_mentions(rng, 90, 30) + [(29, m, "mentions") for m in range(60)]
    mask = rng.random(90) < 0.6
    new = np.cumsum(mask) - 1
    shown = [(c, int(new[m]), role) for c, m, role in held if mask[m]]
    masked, absent = built(held, 90, 30, mask=mask), built(shown, int(mask.sum()), 30)
    assert masked.positions.tolist() == np.flatnonzero(mask).tolist()
    assert masked.ordinals.tolist() == absent.ordinals.tolist()
    assert 29 in masked.ordinals.tolist()
    assert 29 not in built(held, 90, 30).ordinals.tolist()
    assert masked.degrees.tolist() == absent.degrees.tolist()
    assert masked.is_end.tolist() == absent.is_end.tolist()
    for name in ("to_memories", "to_concepts"):
        assert dense(getattr(masked, name)).tolist() == dense(getattr(absent, name)).tolist()


@pytest.mark.parametrize("memories", [0, 3])
def test_an_empty_graph_joins_nothing(memories: int) -> None:
    found = built([], memories, 0)
    assert (found.positions.size, found.ordinals.size) == (memories, 0)
    assert found.is_end.all()


def test_damaged_arrays_are_refused_before_anything_is_multiplied() -> None:
    good = mention_arrays([(0, 0, "about"), (0, 1, "mentions")], 1)
    for bad in (
        replace(good, positions=np.array([0, 9], dtype=np.int32)),
        replace(good, positions=np.array([-1, 1], dtype=np.int32)),
        replace(good, indptr=np.array([0, 3])),
        replace(good, indptr=np.array([1, 2])),
    ):
        with pytest.raises(ValueError, match="damaged"):
            build_transitions(bad, 2)
