"""Personalised PageRank from the best hits and what the query names, over memories and concepts.

The alternative to `walk` (profile flag `graph_mode`): every way counts at once, and the longer ones
less. Belongs here: where the surfer starts, the power iteration, what of it arrives. Does not
belong here: the matrices (`transitions`), the base ranking.

Sources: HippoRAG 2 (damping, specificity) and SPRIG (bipartite, seeded by the hybrid's hits), in
research/peers.md section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.push import Neighbourhoods, push
from noctuary.graph.transitions import Surroundings, Transitions
from noctuary.graph.walk import NOWHERE, SEED_COUNT, Walk, choose_seeds

DAMPING = 0.5
"""Share that goes on at each step, in [0, 1); the rest starts anew. More reaches further and
forgets the query; HippoRAG 2 and LinearRAG both use 0.5."""

NAMED_SHARE = 0.3
"""Where the query names concepts, the share of the starts that is theirs; more trusts names in the
question over what was found with all of its words."""

MAX_ROUNDS = 60
"""Rounds at most. Each leaves DAMPING of the error of the one before, so 34 reach TOLERANCE."""

TOLERANCE = 1e-10
"""Sum of all changes of a round below which the scores stand; more is faster and less exact."""

ARRIVAL_COUNT = 100
"""Memories with the highest scores that arrive; more let long ways bring in what only has a
thousandth of the best score, and cost the phases behind."""


class Ranks(NamedTuple):
    """How often the surfer is where, all together summing to 1.

    Attributes:
        memories: float64 (V,), by place in `Transitions.positions`.
        concepts: float64 (K,), by place in `Transitions.ordinals`.
    """

    memories: NDArray[np.float64]
    concepts: NDArray[np.float64]


def personalised_pagerank(
    transitions: Transitions, restart: Ranks, damping: float = DAMPING
) -> Ranks:
    """Return the stationary distribution by power iteration, begun at the restart distribution.

    What arrives at a memory that leads nowhere starts anew.

    Args:
        transitions: The graph.
        restart: Where the surfer starts; >= 0, summing to 1.
        damping: Share that goes on at each step, in [0, 1).

    Raises:
        ValueError: The damping or the restart distribution is out of range.
    """
    total = float(restart.memories.sum() + restart.concepts.sum())
    if not 0.0 <= damping < 1.0 or not abs(total - 1.0) < 1e-6:
        raise ValueError(
            f"found damping {damping} and starts that sum to {total}, expected [0, 1) and 1"
        )
    memories, concepts = restart
    for _ in range(MAX_ROUNDS):
        anew = 1.0 - damping + damping * float(memories[transitions.is_end].sum())
        new_memories = anew * restart.memories + damping * (transitions.to_memories @ concepts)
        new_concepts = anew * restart.concepts + damping * (transitions.to_concepts @ memories)
        change = np.abs(new_memories - memories).sum() + np.abs(new_concepts - concepts).sum()
        memories, concepts = new_memories, new_concepts
        if change <= TOLERANCE:
            break
    return Ranks(memories, concepts)


def spread(
    seed_positions: NDArray[np.integer],
    seed_scores: NDArray[np.floating],
    named: Sequence[int],
    transitions: Transitions | Neighbourhoods,
    *,
    seed_count: int = SEED_COUNT,
) -> Walk:
    """Return what arrives by PageRank, at most ARRIVAL_COUNT memories, seeds among them.

    Over matrices by power iteration, over neighbourhoods by pushing, which leaves out what has a
    few hundred-thousandths of the starts (`push`).

    The scores are divided by the largest one. The path of a memory is the most specific concept
    that it shares with a seed other than itself; equal ones by rank of the seed, then by ordinal.
    Where it shares none, the most specific concept that the query names and that it holds, without
    a seed; else no concept, and itself where it is a seed, or the best seed.

    Args:
        seed_positions: Distinct positions of candidate seeds, any order.
        seed_scores: Their base scores; only finite positive ones are started from.
        named: Ordinals of the concepts that the query names.
        transitions: The graph of what may be seen; other memories are no seeds.
        seed_count: Seeds used; the best by score, then by position.
    """
    if isinstance(transitions, Neighbourhoods):
        return _spread_near(seed_positions, seed_scores, named, transitions, seed_count)
    seen = np.isin(seed_positions, transitions.positions)
    at = np.searchsorted(transitions.positions, seed_positions[seen])
    seeds, scores = choose_seeds(at, seed_scores[seen], None, seed_count)
    concepts = np.flatnonzero(np.isin(transitions.ordinals, np.asarray(named, dtype=np.int64)))
    if not concepts.size and bool(transitions.is_end[seeds].all()):
        return _nowhere()
    ranks = personalised_pagerank(transitions, _restart(transitions, seeds, scores, concepts))
    order = np.lexsort((np.arange(ranks.memories.size), -ranks.memories))[:ARRIVAL_COUNT]
    arrived = np.sort(order[ranks.memories[order] > 0.0])
    scores = ranks.memories[arrived] / ranks.memories.max()
    held = transitions.to_memories
    around = Surroundings(
        transitions.positions, transitions.ordinals, transitions.degrees, held.indptr, held.indices
    )
    return _arrive(around, arrived, scores, seeds, concepts)


def _spread_near(
    seed_positions: NDArray[np.integer],
    seed_scores: NDArray[np.floating],
    named: Sequence[int],
    graph: Neighbourhoods,
    seed_count: int,
) -> Walk:
    """Return the same over the part of the graph that the starts reach."""
    seeds, scores = choose_seeds(seed_positions, seed_scores, graph.mask, seed_count)
    asked = np.unique(np.asarray(named, dtype=np.int64))
    concepts = asked[graph.degrees(asked) > 0]
    if not concepts.size and not graph.concepts_of(seeds)[1].size:
        return _nowhere()
    at_seeds, at_concepts = _starts(scores, graph.degrees(concepts))
    pushed = push(graph, (seeds, at_seeds), (concepts, at_concepts), DAMPING)
    values = pushed.memories[pushed.touched]
    best = np.lexsort((pushed.touched, -values))[:ARRIVAL_COUNT]
    found = np.sort(pushed.touched[best])
    around = graph.around(np.union1d(found, seeds))
    return _arrive(
        around,
        np.searchsorted(around.positions, found),
        pushed.memories[found] / values.max(),
        np.searchsorted(around.positions, seeds),
        np.flatnonzero(np.isin(around.ordinals, concepts)),
    )


def _nowhere() -> Walk:
    return Walk(*(np.empty(0, kind) for kind in (np.int64, float, np.int64, np.int8, np.int32)))


def _arrive(
    around: Surroundings,
    arrived: NDArray[np.intp],
    scores: NDArray[np.float64],
    seeds: NDArray[np.int64],
    named: NDArray[np.intp],
) -> Walk:
    """Return arrivals, by place in what is around them, with their scores and their paths."""
    origins, shared = _paths(around, arrived, seeds, named)
    return Walk(
        positions=around.positions[arrived],
        scores=scores,
        seeds=origins,
        relations=np.full(arrived.size, NOWHERE, dtype=np.int8),
        concepts=shared,
    )


def _starts(
    scores: NDArray[np.float64], degrees: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of the seeds, by base score, and of named concepts, by specificity."""
    share = (NAMED_SHARE if scores.size else 1.0) if degrees.size else 0.0
    specificity = 1.0 / degrees
    at_seeds = (1.0 - share) * scores / scores.sum() if scores.size else scores
    at_concepts = share * specificity / specificity.sum() if degrees.size else specificity
    return at_seeds, at_concepts


def _restart(
    transitions: Transitions,
    seeds: NDArray[np.int64],
    scores: NDArray[np.float64],
    concepts: NDArray[np.intp],
) -> Ranks:
    """Return the starts: seeds by base score, named concepts by specificity."""
    memories = np.zeros(transitions.positions.size)
    at_concepts = np.zeros(transitions.ordinals.size)
    memories[seeds], at_concepts[concepts] = _starts(scores, transitions.degrees[concepts])
    return Ranks(memories, at_concepts)


def _paths(
    around: Surroundings,
    arrived: NDArray[np.intp],
    seeds: NDArray[np.int64],
    named: NDArray[np.intp],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return seed (a position) and concept (an ordinal) of every arrival's path."""
    starts, stops = around.indptr[arrived], around.indptr[arrived + 1]
    owners = np.repeat(np.arange(arrived.size), stops - starts)
    before = np.cumsum(stops - starts) - (stops - starts)
    concepts = around.indices[np.arange(owners.size) - before[owners] + starts[owners]]
    found: list[NDArray[np.int64]] = []
    for rank, seed in enumerate(seeds.tolist()):
        own = around.indices[around.indptr[seed] : around.indptr[seed + 1]]
        shared = np.isin(concepts, own) & (arrived[owners] != seed)
        found.append(_ways(owners[shared], rank, concepts[shared]))
    asked = np.isin(concepts, named)
    found.append(_ways(owners[asked], seeds.size, concepts[asked]))
    owner, rank, concept = np.concatenate(found, axis=1)
    from_query = rank == seeds.size
    order = np.lexsort((concept, rank, around.degrees[concept], from_query, owner))
    first = np.ones(order.size, dtype=bool)
    first[1:] = owner[order][1:] != owner[order][:-1]
    best = order[first]
    # Whatever shares nothing with another start is its own, or came over more than one memory.
    origins = np.where(np.isin(arrived, seeds), arrived, seeds[0] if seeds.size else NOWHERE)
    places = np.append(seeds, NOWHERE)
    origins[owner[best]] = places[rank[best]]
    ordinals = np.full(arrived.size, NOWHERE, dtype=np.int32)
    ordinals[owner[best]] = around.ordinals[concept[best]]
    positions = np.where(origins == NOWHERE, NOWHERE, around.positions[origins])
    return positions.astype(np.int64), ordinals


def _ways(owners: NDArray[np.intp], rank: int, concepts: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.array([owners, np.full(owners.size, rank), concepts], dtype=np.int64)
