"""One step from the best hits, and memories about what the query names."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph import walk as walk_module
from noctuary.graph.fold import ROLES, Link
from noctuary.graph.walk import (
    NAMED_WEIGHT,
    OPEN_END_US,
    RELATIONS,
    GraphArrays,
    MentionArrays,
    asked_share,
    name_subjects,
    subjects_of,
    undamped,
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


def test_by_default_turns_are_not_walked() -> None:
    previous = RELATIONS.index("previous_turn")
    tag = RELATIONS.index("mentions_tag")
    arrays = _arrays(
        5, (0, 1, 1.0, SUBJECT), (0, 2, 1.0, NEXT), (0, 3, 1.0, previous), (0, 4, 1.0, tag)
    )
    found = walk(*_seeds((0, 1.0)), arrays)
    assert found.positions.tolist() == [1, 4]
    assert found.scores.tolist() == pytest.approx([1 / 2**0.25, 0.5 / 2**0.25])


SAME = _arrays(3, (0, 2, 1.0, SUBJECT), (1, 2, 1.0, SUBJECT))

ONE = _arrays(2, (0, 1, 1.0, SUBJECT))


@pytest.mark.parametrize(
    ("seeds", "arrays"),
    [
        *(([(0, score)], ONE) for score in (0.0, -1.0, float("nan"), float("inf"))),
        ([], ONE),
        ([(0, 1.0)], _arrays(2)),
        ([(0, 1.0)], _arrays(2, (0, 1, 1.0, SUBJECT), ends=200)),
    ],
    ids=["nothing", "negative", "nan", "inf", "no-seeds", "no-edges", "closed"],
)
def test_the_walk_abstains_without_a_usable_seed_or_an_open_edge(
    seeds: list[tuple[int, float]], arrays: GraphArrays
) -> None:
    found = walk(*_seeds(*seeds), arrays)
    assert (found.positions.tolist(), found.is_empty) == ([], True)


@pytest.mark.parametrize(("as_of_us", "reached"), [(99, []), (100, [1]), (199, [1]), (200, [])])
def test_as_of_walks_the_edges_of_that_moment(as_of_us: int, reached: list[int]) -> None:
    ended = _arrays(2, (0, 1, 1.0, SUBJECT), ends=200)
    assert walk(*_seeds((0, 1.0)), ended, as_of_us=as_of_us).positions.tolist() == reached


def test_equal_arrivals_take_the_better_ranked_seed_and_eta_scales_them() -> None:
    seeds = _seeds((0, 1.0), (1, 1.0))
    full, half = (walk(*seeds, SAME, eta=eta) for eta in (1.0, 0.5))
    assert (full.positions.tolist(), full.seeds.tolist()) == ([2], [0])
    assert half.scores[0] == full.scores[0] / 2


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
    loaded = ["", ".core", ".core.files", ".graph", ".graph.fold", ".graph.walk"]
    assert shown.stdout.decode().strip() == str([f"noctuary{name}" for name in loaded])


def _mentions(*concepts: list[tuple[int, str]]) -> MentionArrays:
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


# Mentions, links (concept, weight), and per position: the gain over NAMED_WEIGHT and what is named.
GAINS: dict[str, tuple[MentionArrays, list[tuple[int, float]], dict[int, tuple[float, int]]]] = {
    "every memory about a concept gains the link's share": (
        _mentions([(9, "about")], [(2, "about"), (4, "mentions"), (5, "about")]),
        [(1, 0.5)], {2: (0.5, 1), 5: (0.5, 1)},
    ),
    "only subjects count": (
        _mentions([(1, "mentions"), (2, "author"), (3, "speaker")]), [(0, 1.0)], {},
    ),
    "links add up and the strongest is named": (
        _mentions([(3, "about")], [(3, "about"), (7, "about")], [(3, "about")]),
        [(0, 0.2), (1, 0.6), (2, 0.4)], {3: (1.2, 1), 7: (0.6, 1)},
    ),
    "equal gains name the concept that the query names first": (
        _mentions([(3, "about")], [(3, "about")]), [(1, 0.5), (0, 0.5)], {3: (1.0, 1)},
    ),
    "a repeated name counts once": (
        _mentions([(3, "about"), (3, "about"), (4, "about")]), [(0, 0.5), (0, 0.5)],
        {3: (0.5, 0), 4: (0.5, 0)},
    ),
    "a name without weight links nothing": (_mentions([(3, "about")]), [(0, 0.0)], {}),
    # Of several names of one concept the most specific counts, in any order.
    **{
        f"{one} and {other}": (
            _mentions([(3, "about")], [(3, "about"), (4, "about")]),
            [(0, one), (0, other), (1, 0.5)], {3: (1.1, 0), 4: (0.5, 1)},
        )
        for one, other in ((0.2, 0.6), (0.6, 0.2), (0.6, 0.0), (0.0, 0.6))
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("mentions", "links", "gains"), GAINS.values(), ids=[name.replace(" ", "-") for name in GAINS]
)
def test_memories_about_what_is_named_gain(
    mentions: MentionArrays, links: list[tuple[int, float]], gains: dict[int, tuple[float, int]]
) -> None:
    found = name_subjects([Link(*link, at, at + 1) for at, link in enumerate(links)], mentions)
    assert found.positions.tolist() == list(gains)
    wanted = [NAMED_WEIGHT * gain for gain, _ in gains.values()]
    assert found.scores.tolist() == pytest.approx(wanted)
    assert found.concepts.tolist() == [concept for _, concept in gains.values()]


def test_the_order_of_links_does_not_matter() -> None:
    mentions = _mentions([(1, "about"), (3, "about")], [(3, "about")], [(2, "about"), (3, "about")])
    links = [_link(0, 0.25), _link(2, 0.125), _link(1, 0.5), _link(0, 0.5), _link(2, 0.75)]
    for order in permutations(links):
        found = name_subjects(order, mentions)
        assert found.positions.tolist() == [1, 2, 3]
        assert found.scores.tolist() == pytest.approx([NAMED_WEIGHT * w for w in (0.5, 0.75, 1.75)])
        assert found.concepts.tolist() == [0, 2, 2]


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


def test_an_edge_that_is_asked_for_is_pushed_as_from_the_best_seed_and_sets_others_back() -> None:
    arrays = _arrays(6, (0, 2, 1.0, SUBJECT), (1, 3, 1.0, SUBJECT), (1, 4, 1.0, SUBJECT))
    asked_for = {3: 1.0}

    def asked(positions: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        assert starts.shape == ends.shape == positions.shape
        return np.array([asked_for.get(t, 0.0) for t in arrays.targets.tolist()])

    plain = walk(*_seeds((0, 1.0), (1, 0.8)), arrays)
    found = walk(*_seeds((0, 1.0), (1, 0.8)), arrays, asked=asked)
    assert found.asked.tolist() == [0.0, 1.0, 0.0]
    assert found.scores / plain.scores == pytest.approx([1.0, 2**0.5, 1 / 3])


@given(
    edges=st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 1.0)), min_size=1, max_size=12).map(
        sorted
    )
)
def test_no_edge_is_pushed_more_than_the_best_seed_pushes(edges: list[tuple[int, float]]) -> None:
    owners = np.array([owner for owner, _ in edges])
    beside = np.array([share for _, share in edges])
    discounted = (owners + 1.0) ** -0.5
    shares = asked_share(owners, beside)
    assert (shares > 0.0).all()
    assert (shares * discounted <= 1.0 + 1e-12).all()
    # The edge that is asked for most loses nothing.
    best = beside == np.array([beside[owners == owner].max() for owner in owners])
    assert (shares[best] >= 1.0 - 1e-12).all()
    assert (asked_share(owners, np.zeros(owners.size)) == 1.0).all()


@given(
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.1, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 2)),
        min_size=1,
        max_size=8,
    )
)
def test_an_edge_loses_nothing_by_being_asked_for_and_gains_as_far_as_there_is_room(
    edges: list[tuple[float, float, float, float]],
) -> None:
    arrivals, damping, beside, room = np.array(edges).T
    found = undamped(arrivals, damping, beside, room)
    assert (found >= arrivals).all()
    assert (found <= np.maximum(arrivals, room)).all()
    assert (found <= arrivals / damping * (1 + 1e-12)).all()
    assert (undamped(arrivals, damping, np.zeros_like(beside), room) == arrivals).all()
    assert (undamped(arrivals, damping, beside, np.zeros_like(room)) == arrivals).all()
    free = undamped(arrivals, damping, np.ones_like(beside), np.full_like(room, np.inf))
    np.testing.assert_allclose(free, arrivals / damping)
