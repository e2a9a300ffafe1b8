"""One step from the best hits, and memories about what the query names."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from noctuary.graph import walk as walk_module
from noctuary.graph.walk import (
    NAMED_WEIGHT,
    OPEN_END_US,
    RELATIONS,
    ROLES,
    GraphArrays,
    Link,
    MentionArrays,
    name_subjects,
    subjects_of,
    walk,
)

SUBJECT, NEXT = RELATIONS.index("mentions_subject"), RELATIONS.index("next_turn")


def _arrays(n: int, *edges: tuple[int, int, float, int], ends: int = OPEN_END_US) -> GraphArrays:
    """Edges (source, target, weight, relation code), sorted by source; in-degrees by target."""
    sources = np.array([e[0] for e in edges], dtype=np.int64)
    targets = np.array([e[1] for e in edges], dtype=np.int32)
    return GraphArrays(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))]).astype(np.int64),
        targets=targets,
        weights=np.array([e[2] for e in edges], dtype=np.float32),
        relations=np.array([e[3] for e in edges], dtype=np.int8),
        concepts=np.arange(len(edges), dtype=np.int32),
        in_degrees=np.bincount(targets, minlength=n)[targets].astype(np.int32),
        valid_from_us=np.full(len(edges), 100, dtype=np.int64),
        valid_to_us=np.full(len(edges), ends, dtype=np.int64),
        recorded_at_us=np.full(len(edges), 100, dtype=np.int64),
        retracted_at_us=np.full(len(edges), ends, dtype=np.int64),
        evidence_starts=np.full(len(edges), -1, dtype=np.int32),
        evidence_ends=np.full(len(edges), -1, dtype=np.int32),
    )


def _seeds(*pairs: tuple[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([p for p, _ in pairs], dtype=np.int64), np.array([s for _, s in pairs])


def test_an_arrival_has_the_closed_form() -> None:
    arrays = _arrays(4, (0, 2, 1.0, SUBJECT), (1, 2, 0.5, SUBJECT), (1, 3, 0.5, NEXT))
    found = walk(*_seeds((1, 0.8), (0, 0.9)), arrays, {"mentions_subject": 1.0, "next_turn": 0.1})
    assert found.positions.tolist() == [2, 3]
    # Target 2 takes the better of 0.9 (rank 1, weight 1) and 0.8 / sqrt 2 * 0.5; in-degree 2.
    assert found.scores[0] == pytest.approx(0.9 / 3**0.25)
    assert found.scores[1] == pytest.approx(0.8 / 2**0.5 * 0.1 * 0.5 / 2**0.25)
    assert found.seeds.tolist() == [0, 1]
    assert found.relations.tolist() == [SUBJECT, NEXT]
    assert found.concepts.tolist() == [0, 2]


@pytest.mark.parametrize("row", [[0, 2**40, 2**40], [0, -5, 1], [-1, 1, 1], [0, 1, 2**62]])
def test_damaged_rows_are_refused_before_they_ask_for_memory(row: list[int]) -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT))._replace(indptr=np.array(row, dtype=np.int64))
    with pytest.raises(ValueError, match="damaged"):
        walk(*_seeds((0, 1.0), (1, 0.5)), arrays)


def test_eta_scales_every_arrival() -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT))
    full, half = (walk(*_seeds((0, 1.0)), arrays, eta=eta).scores[0] for eta in (1.0, 0.5))
    assert half == full / 2


def test_only_the_best_seeds_are_walked_from() -> None:
    arrays = _arrays(4, (0, 2, 1.0, SUBJECT), (1, 3, 1.0, SUBJECT))
    found = walk(*_seeds((1, 0.5), (0, 0.9)), arrays, seed_count=1)
    assert found.positions.tolist() == [2]


def test_masked_seeds_give_their_places_to_the_next() -> None:
    arrays = _arrays(4, (0, 2, 1.0, SUBJECT), (1, 3, 1.0, SUBJECT))
    mask = np.array([False, True, True, True])
    found = walk(*_seeds((0, 0.9), (1, 0.5)), arrays, mask=mask, seed_count=1)
    assert (found.positions.tolist(), found.seeds.tolist()) == ([3], [1])
    assert found.scores[0] == pytest.approx(0.5 / 2**0.25)


def test_masked_targets_are_not_reached() -> None:
    arrays = _arrays(3, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, SUBJECT))
    found = walk(*_seeds((0, 0.9)), arrays, mask=np.array([True, False, True]))
    assert found.positions.tolist() == [2]


def test_relations_left_out_or_at_zero_are_not_walked() -> None:
    arrays = _arrays(3, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, NEXT))
    assert walk(*_seeds((0, 1.0)), arrays, {"next_turn": 1.0}).positions.tolist() == [2]
    assert walk(*_seeds((0, 1.0)), arrays, {"next_turn": 0.0}).is_empty


def test_by_default_turns_are_not_walked() -> None:
    previous = RELATIONS.index("previous_turn")
    tag = RELATIONS.index("mentions_tag")
    arrays = _arrays(
        5, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, NEXT), (0, 3, 1.0, previous), (0, 4, 1.0, tag)
    )
    found = walk(*_seeds((0, 1.0)), arrays)
    assert found.positions.tolist() == [1, 4]
    assert found.scores.tolist() == pytest.approx([1 / 2**0.25, 0.5 / 2**0.25])


def test_a_closed_edge_gives_way_to_the_open_one_and_back() -> None:
    # Both lead to 2; the better one ended at 200, and only before that does it carry the arrival.
    arrays = _arrays(3, (0, 2, 1.0, SUBJECT), (1, 2, 0.5, SUBJECT))
    arrays = arrays._replace(valid_to_us=np.array([200, OPEN_END_US], dtype=np.int64))
    seeds = _seeds((0, 1.0), (1, 1.0))
    assert walk(*seeds, arrays, as_of_us=199).seeds.tolist() == [0]
    assert walk(*seeds, arrays, as_of_us=200).seeds.tolist() == [1]
    assert walk(*seeds, arrays).seeds.tolist() == [1]


def test_equal_arrivals_take_the_better_ranked_seed() -> None:
    arrays = _arrays(3, (0, 2, 1.0, SUBJECT), (1, 2, 1.0, SUBJECT))
    found = walk(*_seeds((0, 1.0), (1, 1.0)), arrays)
    assert (found.positions.tolist(), found.seeds.tolist()) == ([2], [0])


@pytest.mark.parametrize("score", [0.0, -1.0, float("nan"), float("inf")])
def test_the_walk_abstains_without_a_usable_seed(score: float) -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT))
    assert walk(*_seeds((0, score)), arrays).is_empty


def test_the_walk_abstains_without_seeds_or_edges() -> None:
    none = (np.array([], dtype=np.int64), np.array([]))
    assert walk(*none, _arrays(2, (0, 1, 1.0, SUBJECT))).is_empty
    assert walk(*_seeds((0, 1.0)), _arrays(2)).is_empty


@pytest.mark.parametrize(("as_of_us", "reached"), [(99, []), (100, [1]), (199, [1]), (200, [])])
def test_as_of_walks_the_edges_of_that_moment(as_of_us: int, reached: list[int]) -> None:
    arrays = _arrays(2, (0, 1, 1.0, SUBJECT), ends=200)
    assert walk(*_seeds((0, 1.0)), arrays, as_of_us=as_of_us).positions.tolist() == reached


def test_without_a_moment_closed_edges_are_not_walked() -> None:
    assert walk(*_seeds((0, 1.0)), _arrays(2, (0, 1, 1.0, SUBJECT), ends=200)).is_empty


@pytest.mark.parametrize(
    ("weights", "eta"),
    [({"hearsay": 1.0}, 1.0), ({"next_turn": -0.1}, 1.0), ({"next_turn": 1.0}, float("nan"))],
)
def test_unknown_relations_and_bad_weights_are_refused(
    weights: dict[str, float], eta: float
) -> None:
    with pytest.raises(ValueError, match="expected"):
        walk(*_seeds((0, 1.0)), _arrays(2, (0, 1, 1.0, SUBJECT)), weights, eta=eta)


def test_the_read_side_loads_neither_builders_nor_extractors() -> None:
    lib = Path(walk_module.__file__).parents[2]
    code = (
        "import sys, noctuary.graph.walk; print(sorted(m for m in sys.modules if 'noctuary' in m))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(lib)}, capture_output=True, check=True
    )
    assert shown.stdout.decode().strip() == str(
        [
            "noctuary",
            "noctuary.core",
            "noctuary.core.files",
            "noctuary.graph",
            "noctuary.graph.fold",
            "noctuary.graph.walk",
        ]
    )


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
