"""Pushed PageRank against the power iteration over the same graph, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.graph import push as pushing
from noctuary.graph.arrays import MentionArrays
from noctuary.graph.ppr import DAMPING, Ranks, personalised_pagerank, spread
from noctuary.graph.push import Mentioned, Neighbourhoods, push
from noctuary.graph.transitions import build_transitions
from noctuary.graph.walk import Walk
from tests.support.mentions import mention_arrays, random_mentions

MEMORIES, CONCEPTS = 60, 40
EXACT = 1e-12


def made(seed: int) -> MentionArrays:
    rng = np.random.default_rng(seed)
    return mention_arrays(random_mentions(rng, MEMORIES, CONCEPTS), CONCEPTS)


def masked(seed: int, share: float) -> NDArray[np.bool_] | None:
    return None if share >= 1.0 else np.random.default_rng([seed, 1]).random(MEMORIES) < share


Starts = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


def starts_of(seed: int, near: Neighbourhoods) -> Starts:
    rng = np.random.default_rng([seed, 2])
    visible = np.arange(MEMORIES) if near.mask is None else np.flatnonzero(near.mask)
    seeds = np.sort(rng.choice(visible, size=min(4, visible.size), replace=False))
    usable = np.flatnonzero(near.degrees(np.arange(CONCEPTS)) > 0)
    named = usable[:2]
    shares = rng.random(seeds.size + named.size) + 0.1
    shares /= shares.sum()
    return seeds, shares[: seeds.size], named, shares[seeds.size :]


@given(
    seed=st.integers(0, 10_000),
    share=st.sampled_from([0.3, 0.7, 1.0]),
    epsilon=st.sampled_from([1e-2, 1e-3, 1e-5, EXACT]),
)
@settings(max_examples=60, deadline=None)
def test_the_estimate_is_below_the_truth_by_no_more_than_the_residual(
    seed: int, share: float, epsilon: float
) -> None:
    mentions, mask = made(seed), masked(seed, share)
    if mask is not None and not mask.any():
        return
    near = Neighbourhoods.of(Mentioned(mentions, MEMORIES), mask)
    seeds, at_seeds, named, at_named = starts_of(seed, near)
    pushed = push(near, (seeds, at_seeds), (named, at_named), DAMPING, epsilon)
    whole = build_transitions(mentions, MEMORIES, mask)
    memories, concepts = np.zeros(whole.positions.size), np.zeros(whole.ordinals.size)
    memories[np.searchsorted(whole.positions, seeds)] = at_seeds
    concepts[np.searchsorted(whole.ordinals, named)] = at_named
    truth_m, truth_c = memories.copy(), concepts.copy()
    for _ in range(80):
        memories, concepts = (
            DAMPING * (whole.to_memories @ concepts), DAMPING * (whole.to_concepts @ memories),
        )  # fmt: skip
        truth_m += memories
        truth_c += concepts
    below_m = truth_m - pushed.memories[whole.positions]
    below_c = truth_c - pushed.concepts[whole.ordinals]
    assert below_m.min(initial=0.0) > -1e-9
    assert below_c.min(initial=0.0) > -1e-9
    lacking = below_m.sum() + below_c.sum()
    assert lacking <= DAMPING * pushed.residual / (1.0 - DAMPING) + 1e-9
    if epsilon == EXACT:
        assert lacking < 1e-7
    hidden = np.setdiff1d(np.arange(MEMORIES), whole.positions)
    assert not pushed.memories[hidden].any()


def test_a_push_divided_by_its_total_is_pagerank() -> None:
    mentions = made(3)
    near = Neighbourhoods.of(Mentioned(mentions, MEMORIES), None)
    seeds, at_seeds, named, at_named = starts_of(3, near)
    pushed = push(near, (seeds, at_seeds), (named, at_named), DAMPING, EXACT)
    whole = build_transitions(mentions, MEMORIES)
    start = Ranks(np.zeros(MEMORIES), np.zeros(whole.ordinals.size))
    start.memories[seeds] = at_seeds
    start.concepts[np.searchsorted(whole.ordinals, named)] = at_named
    exact = personalised_pagerank(whole, start)
    total = pushed.memories.sum() + pushed.concepts.sum()
    assert np.abs(pushed.memories / total - exact.memories).max() < 1e-8
    assert np.abs(pushed.concepts[whole.ordinals] / total - exact.concepts).max() < 1e-8


def same(found: Walk, expected: Walk) -> None:
    assert found.positions.tolist() == expected.positions.tolist()
    assert found.seeds.tolist() == expected.seeds.tolist()
    assert found.concepts.tolist() == expected.concepts.tolist()
    assert found.relations.tolist() == expected.relations.tolist()
    assert found.scores == pytest.approx(expected.scores, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_arrivals_and_their_paths_are_those_of_the_matrices(
    seed: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing.push, "__defaults__", (EXACT,))
    mentions, mask = made(seed), masked(seed, share)
    rng = np.random.default_rng([seed, 3])
    pool = np.sort(rng.choice(MEMORIES, size=12, replace=False))
    scores = rng.random(pool.size)
    named = rng.choice(CONCEPTS, size=3, replace=False).tolist()
    for asked in (named, []):
        expected = spread(pool, scores, asked, build_transitions(mentions, MEMORIES, mask))
        near = Neighbourhoods.of(Mentioned(mentions, MEMORIES), mask)
        same(spread(pool, scores, asked, near), expected)
        # Degrees that an earlier query counted are those of the next one.
        same(spread(pool, scores, asked, near), expected)


def test_a_push_that_leaves_more_reads_less_and_keeps_the_starts_on_top() -> None:
    mentions = made(5)
    near = Neighbourhoods.of(Mentioned(mentions, MEMORIES), None)
    seeds, at_seeds, named, at_named = starts_of(5, near)
    rough = push(near, (seeds, at_seeds), (named, at_named), DAMPING, 0.05)
    fine = push(near, (seeds, at_seeds), (named, at_named), DAMPING, EXACT)
    assert rough.residual > fine.residual
    assert rough.touched.size < fine.touched.size
    assert set(seeds.tolist()) <= set(rough.touched.tolist())


def test_damaged_mentions_are_refused() -> None:
    mentions = made(1)
    with pytest.raises(ValueError, match="damaged"):
        Mentioned(mentions, 10)
