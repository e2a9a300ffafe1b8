from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph.ppr import (
    ARRIVAL_COUNT,
    DAMPING,
    NAMED_SHARE,
    Ranks,
    personalised_pagerank,
    spread,
)
from noctuary.graph.transitions import Transitions, build_transitions
from noctuary.graph.walk import NOWHERE, Walk
from tests.support.mentions import Held, mention_arrays, random_mentions

RARE, COMMON, OTHER, ALONE = range(4)
# 0 and 1 share two concepts, 2 and 3 the more common one, 4 is two steps away, 5 is isolated.
SMALL: list[Held] = [
    (RARE, 0, "mentions"), (RARE, 1, "about"),
    (COMMON, 0, "mentions"), (COMMON, 1, "mentions"), (COMMON, 2, "about"), (COMMON, 3, "author"),
    (OTHER, 3, "mentions"), (OTHER, 4, "about"),
    (ALONE, 5, "about"),
]  # fmt: skip


def made(held: list[Held] = SMALL, memories: int = 6, concepts: int = 4) -> Transitions:
    return build_transitions(mention_arrays(held, concepts), memories)


def spread_from(
    seeds: dict[int, float], *named: int, transitions: Transitions | None = None
) -> Walk:
    positions, scores = np.array([*seeds], dtype=np.int64), np.array([*seeds.values()], dtype=float)
    return spread(positions, scores, named, transitions or made())


def row(found: Walk, position: int) -> tuple[float, int, int]:
    (at,) = np.flatnonzero(found.positions == position).tolist()
    return float(found.scores[at]), int(found.seeds[at]), int(found.concepts[at])


def naive(held: list[Held], memories: int, starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """PageRank over memories and concepts together, one node at a time, from the definition."""
    holders: dict[int, set[int]] = defaultdict(set)
    for concept, memory, _ in held:
        holders[concept].add(memory)
    holders = {c: of for c, of in sorted(holders.items()) if len(of) > 1}
    node = {c: memories + i for i, c in enumerate(holders)}
    chance = np.zeros((starts.size, starts.size))
    for concept, of in holders.items():
        for memory in of:
            chance[node[concept], memory] = 1 / len(of)
            chance[memory, node[concept]] = 1 / len(of)
    sums = chance.sum(axis=1)
    for i, total in enumerate(sums.tolist()):
        chance[i] = chance[i] / total if total else starts
    found = np.linalg.solve(np.eye(starts.size) - DAMPING * chance.T, (1 - DAMPING) * starts)
    return found.astype(np.float64)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_stationary_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    memories, concepts = 40, 25
    held = random_mentions(rng, memories, concepts)
    transitions = made(held, memories, concepts)
    size = memories + transitions.ordinals.size
    starts = rng.random(size) * (rng.random(size) < 0.2)
    starts /= starts.sum()
    found = personalised_pagerank(transitions, Ranks(starts[:memories], starts[memories:]))
    together = np.concatenate(found)
    assert together.sum() == pytest.approx(1.0, abs=1e-9)
    assert np.abs(together - naive(held, memories, starts)).max() < 1e-9


@pytest.mark.parametrize(
    ("starts", "damping"), [([0.5, 0.0], 0.5), ([1.0, 1.0], 0.5), ([1.0, 0.0], 1.0)]
)
def test_what_is_no_distribution_is_refused(starts: list[float], damping: float) -> None:
    transitions = made([], 2, 0)
    with pytest.raises(ValueError, match="expected"):
        personalised_pagerank(transitions, Ranks(np.array(starts), np.empty(0)), damping)


def test_all_that_is_connected_arrives_the_best_with_1() -> None:
    found = spread_from({0: 0.8})
    assert found.positions.tolist() == [0, 1, 2, 3, 4]
    assert found.scores.max() == found.scores[0] == 1.0
    assert (found.scores > 0).all()
    assert (found.relations == NOWHERE).all()
    assert row(found, 1) > row(found, 2), "a rare concept leads further than a common one"
    assert row(found, 3) > row(found, 4), "a longer way counts less"


def test_the_scores_are_those_of_the_definition() -> None:
    starts = np.zeros(6 + 3)
    starts[[0, 3, 6 + OTHER]] = [0.6 * (1 - NAMED_SHARE), 0.4 * (1 - NAMED_SHARE), NAMED_SHARE]
    expected = naive(SMALL, 6, starts)[:6]
    found = spread_from({3: 0.4, 0: 0.6}, OTHER)
    assert found.positions.tolist() == [0, 1, 2, 3, 4]
    wanted = (expected / expected.max())[:5].tolist()
    assert found.scores.tolist() == pytest.approx(wanted, abs=1e-9)


def test_of_two_named_concepts_the_more_specific_starts_more_often() -> None:
    plain, both = spread_from({4: 0.5}), spread_from({4: 0.5}, RARE, COMMON)
    assert row(both, 1)[0] > row(both, 2)[0] > row(plain, 2)[0]


def test_the_path_is_the_most_specific_concept_shared_with_a_seed() -> None:
    found = spread_from({0: 0.8, 3: 0.5})
    assert row(found, 1)[1:] == (0, RARE)
    assert row(found, 2)[1:] == (0, COMMON), "both seeds share it: the better one"
    assert row(found, 4)[1:] == (3, OTHER)
    assert row(found, 0)[1:] == (3, COMMON), "a seed is not its own"
    assert row(spread_from({3: 0.8, 0: 0.5}), 2)[1:] == (3, COMMON)


def test_a_more_specific_concept_goes_before_a_better_seed_and_a_smaller_ordinal() -> None:
    held = [(0, m, "mentions") for m in (0, 1, 2, 3)] + [(1, m, "about") for m in (1, 2)]
    transitions = made(held, 4, 2)
    assert row(spread_from({0: 0.9, 1: 0.1}, transitions=transitions), 2)[1:] == (1, 1)
    assert row(spread_from({0: 0.9, 1: 0.1}, transitions=transitions), 3)[1:] == (0, 0)


def test_without_a_shared_concept_the_path_begins_at_the_query_or_names_the_best_seed() -> None:
    assert row(spread_from({0: 0.8}, OTHER), 4)[1:] == (NOWHERE, OTHER)
    assert row(spread_from({0: 0.8, 2: 0.9}), 4)[1:] == (2, NOWHERE)
    assert row(spread_from({}, OTHER), 2)[1:] == (NOWHERE, NOWHERE)


def test_an_isolated_seed_gives_to_nobody_and_keeps_its_own() -> None:
    found = spread_from({0: 0.8, 5: 0.8})
    assert row(found, 5)[1:] == (5, NOWHERE)
    assert row(found, 5)[0] < row(found, 0)[0], "some of what 0 passes on comes back to it"
    ratio = [row(found, p)[0] / row(found, 0)[0] for p in (1, 2, 3, 4)]
    alone = spread_from({0: 0.8})
    assert ratio == pytest.approx([row(alone, p)[0] for p in (1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("seeds", "named"),
    [({}, ()), ({5: 0.9}, ()), ({5: 0.9}, (ALONE, 99)), ({0: 0.0, 1: -1.0}, ())],
)
def test_it_abstains_where_nothing_leads_anywhere(
    seeds: dict[int, float], named: tuple[int, ...]
) -> None:
    found = spread_from(seeds, *named)
    assert found.is_empty
    assert all(column.size == 0 for column in found)


@pytest.mark.parametrize("memories", [0, 3])
def test_an_empty_graph_abstains(memories: int) -> None:
    seeds = {m: 0.5 for m in range(memories)}
    assert spread_from(seeds, 0, transitions=made([], memories, 0)).is_empty


def test_only_the_best_seeds_are_started_from_in_any_order() -> None:
    rng = np.random.default_rng(5)
    transitions = made(random_mentions(rng, 60, 40), 60, 40)
    scores = rng.permutation(60) / 60
    order = rng.permutation(60)
    found = spread(order, scores[order], (), transitions)
    best = np.argsort(-scores)[:5]
    again = spread(best, scores[best], (), transitions)
    for column, other in zip(found, again, strict=True):
        assert column.tobytes() == other.tobytes()
    one = spread(order, scores[order], (), transitions, seed_count=1)
    assert one.scores.tolist() != found.scores.tolist()


def test_no_more_arrive_than_the_constant_says_and_those_are_the_best() -> None:
    # Four groups around one seed; those of 30 and 20 share a more specific concept with it.
    seed, sizes = 160, (40, 30, 40, 20)
    held: list[Held] = [(group, seed, "mentions") for group in range(4)]
    held += [
        (group, 40 * group + member, "about")
        for group, size in enumerate(sizes)
        for member in range(size)
    ]
    found = spread_from({seed: 1.0}, transitions=made(held, 161, 4))
    whole = [*range(40, 70), *range(120, 140), seed]
    rest = ARRIVAL_COUNT - len(whole)  # of equal ones the first positions
    first = [*range(40), *range(80, 120)][:rest]
    assert found.positions.tolist() == sorted([*first, *whole])


@pytest.mark.parametrize("seed", range(8))
def test_a_hidden_memory_is_no_seed_gives_nothing_and_is_not_reached(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = random_mentions(rng, 60, 40)
    mask = rng.random(60) < 0.7
    base, named = rng.random(60), (3, 7)
    shown = np.flatnonzero(mask)
    new = np.cumsum(mask) - 1
    masked = spread(
        np.arange(60), base, named, build_transitions(mention_arrays(held, 40), 60, mask)
    )
    rest = [(c, int(new[m]), role) for c, m, role in held if mask[m]]
    absent = spread(np.arange(shown.size), base[shown], named, made(rest, shown.size, 40))
    assert masked.positions.size > 10
    assert mask[masked.positions].all()
    assert masked.positions.tolist() == shown[absent.positions].tolist()
    assert masked.scores.tolist() == absent.scores.tolist()
    assert masked.concepts.tolist() == absent.concepts.tolist()
    from_seed = absent.seeds != NOWHERE
    assert masked.seeds[from_seed].tolist() == shown[absent.seeds[from_seed]].tolist()
