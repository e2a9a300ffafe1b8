"""Personalised PageRank by pushing: only the part of the graph that the starts reach is read.

What belongs here: the neighbourhoods of a large graph, the push, the part of the matrices around
what arrived. What does not: where the surfer starts and which arrivals count (`ppr`), the matrices
of a whole graph (`transitions`).

The power iteration reads every mention in every round: a second at a million memories. Pushing
keeps, beside the estimate, what has not been passed on yet (the residual), and passes on only where
that is more than EPSILON per neighbour. R. Andersen, F. Chung, K. Lang: Local Graph Partitioning
using PageRank Vectors (2006).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import ROLES, MentionArrays
from noctuary.graph.hubs import Hubs
from noctuary.graph.transitions import LEAST_HELD, Surroundings, require_sound
from noctuary.values import dataclass

EPSILON = 1e-5
"""Residual per neighbour that is not passed on any more, of starts that sum to 1: smaller is more
exact and reads more. No push reads more than 1 / (EPSILON * (1 - damping)) neighbours in all."""

MAX_ROUNDS = 200
"""Rounds at most; the bound on neighbours ends it sooner. Only damaged arrays get there."""

_ABOUT = ROLES.index("about")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Pairs(NamedTuple):
    """Which memory holds which concept, each pair once.

    Attributes:
        owners: int64 (P,), index into what was asked for, ascending.
        others: int64 (P,), concepts of memories or memories of concepts, ascending per owner.
    """

    owners: Ints
    others: Ints


class Pushed(NamedTuple):
    """What a push came to; dense over the graph, zero where nothing was reached.

    Attributes:
        memories: float64 (V,), sum over all walks of the damped chance to be there; not normalised.
        concepts: float64 (K,), likewise.
        residual: What was not passed on, in all; the estimates together are below the truth by at
            most damping * residual / (1 - damping).
        touched: int64, ascending: memories with an estimate above 0.
    """

    memories: Floats
    concepts: Floats
    residual: float
    touched: Ints


class Mentioned:
    """Who mentions what, readable from both sides; holds 4 bytes per mention and nothing else."""

    def __init__(self, mentions: MentionArrays, memories: int) -> None:
        """Take the arrays of a snapshot with so many memories.

        Raises:
            ValueError: A mention lies outside the memories: the arrays are damaged.
        """
        require_sound(mentions, memories)
        self.mentions = mentions
        self.memories = memories
        self.concepts = int(mentions.indptr.size - 1)

    def holders(self, concepts: Ints, mask: Mask | None) -> tuple[Pairs, Ints]:
        """Return the visible memories that hold each concept, and how many it is about.

        Args:
            concepts: Distinct ordinals.
            mask: (n,) True where a memory may be seen; None for everything.
        """
        owners, places = _rows(self.mentions.indptr, concepts)
        where = self.mentions.positions[places].astype(np.int64)
        about = self.mentions.roles[places] == _ABOUT
        if mask is not None:
            seen = mask[where]
            owners, where, about = owners[seen], where[seen], about[seen]
        first = np.ones(owners.size, dtype=np.bool_)
        first[1:] = (owners[1:] != owners[:-1]) | (where[1:] != where[:-1])
        starts = np.flatnonzero(first)
        # Held in two roles, or twice in one, counts once; about and mentioned, as about.
        is_about = np.add.reduceat(about, starts, dtype=np.int64) > 0 if starts.size else first
        subjects = np.bincount(owners[first][is_about], minlength=concepts.size)
        return Pairs(owners[first], where[first]), subjects.astype(np.int64)

    def concept_counts(self, memories: Ints) -> Ints:
        """Return how many concepts each memory holds, hubs and rare ones included."""
        indptr, _ = self._by_memory
        return indptr[memories + 1] - indptr[memories]

    def held(self, memories: Ints) -> Pairs:
        """Return the concepts that each memory holds, hubs and rare ones included."""
        indptr, concepts = self._by_memory
        owners, places = _rows(indptr, memories)
        return Pairs(owners, concepts[places].astype(np.int64))

    @cached_property
    def _by_memory(self) -> tuple[Ints, NDArray[np.int32]]:
        """Return the same pairs by memory; made once, in a second for millions of mentions."""
        where = np.asarray(self.mentions.positions)
        counts = np.diff(self.mentions.indptr)
        concepts = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
        first = np.ones(where.size, dtype=np.bool_)
        first[1:] = (concepts[1:] != concepts[:-1]) | (where[1:] != where[:-1])
        where, concepts = where[first], concepts[first]
        order = np.argsort(where, kind="stable")
        indptr = np.zeros(self.memories + 1, dtype=np.int64)
        np.cumsum(np.bincount(where, minlength=self.memories), out=indptr[1:])
        return indptr, concepts[order]


@dataclass(slots=True, eq=False)
class Neighbourhoods:
    """What of a graph may be seen, read where it is touched.

    Degrees are those of `transitions`: visible memories that hold a concept, 0 for hubs and for
    what fewer than LEAST_HELD hold.

    Attributes:
        mentioned: The whole graph.
        mask: (n,) True where a memory may be seen; None for everything.
        hubs: The limits of what may be seen.
    """

    mentioned: Mentioned
    mask: Mask | None
    hubs: Hubs
    _degrees: NDArray[np.int32]

    @staticmethod
    def of(mentioned: Mentioned, mask: Mask | None) -> Neighbourhoods:
        """Return the visible part of a graph; nothing of it is read yet."""
        visible = mentioned.memories if mask is None else int(np.count_nonzero(mask))
        unknown = np.zeros(mentioned.concepts, dtype=np.int32)
        return Neighbourhoods(mentioned, mask, Hubs.of(visible), unknown)

    def degrees(self, concepts: Ints) -> Ints:
        """Return the degree of every concept, which may repeat; each is counted once per object."""
        known = self._degrees[concepts]
        fresh = np.unique(concepts[known == 0])
        if fresh.size:
            pairs, subjects = self.mentioned.holders(fresh, self.mask)
            held = np.bincount(pairs.owners, minlength=fresh.size)
            usable = (held >= LEAST_HELD) & (held <= self.hubs.mentions)
            usable &= subjects <= self.hubs.subjects
            # One more than the degree: 0 is what was not counted.
            self._degrees[fresh] = np.where(usable, held, 0) + 1
            known = self._degrees[concepts]
        return known.astype(np.int64) - 1

    def concepts_of(self, memories: Ints) -> tuple[Pairs, Ints]:
        """Return the usable concepts of each memory and their degrees."""
        pairs = self.mentioned.held(memories)
        degrees = self.degrees(pairs.others)
        usable = degrees > 0
        return Pairs(pairs.owners[usable], pairs.others[usable]), degrees[usable]

    def around(self, memories: Ints) -> Surroundings:
        """Return the memories with the usable concepts that they hold.

        Args:
            memories: Distinct visible positions, ascending; numbered by place as elsewhere.
        """
        pairs, degrees = self.concepts_of(memories)
        ordinals, first, places = np.unique(pairs.others, return_index=True, return_inverse=True)
        counts = np.bincount(pairs.owners, minlength=memories.size)
        indptr = np.concatenate(([0], np.cumsum(counts)))
        return Surroundings(memories, ordinals, degrees[first], indptr, places.astype(np.int64))


def push(
    graph: Neighbourhoods,
    memories: tuple[Ints, Floats],
    concepts: tuple[Ints, Floats],
    damping: float,
    epsilon: float = EPSILON,
) -> Pushed:
    """Return where a surfer from the given starts is, without those who end where nothing leads on.

    With T of `transitions` the estimates approach the sum over t of (damping T)^t starts, from
    below; PageRank is that sum divided by its total, because who ends starts anew like everybody.

    Args:
        graph: What may be seen.
        memories: Distinct visible positions, and what starts there.
        concepts: Distinct usable ordinals, and what starts there.
        damping: Share that goes on at each step, in [0, 1).
        epsilon: Residual per neighbour that stays, above 0.
    """
    at_memories, at_concepts = (
        np.zeros(graph.mentioned.memories),
        np.zeros(graph.mentioned.concepts),
    )
    open_memories, open_concepts = np.zeros_like(at_memories), np.zeros_like(at_concepts)
    open_memories[memories[0]] = memories[1]
    open_concepts[concepts[0]] = concepts[1]
    next_memories, next_concepts = memories[0], concepts[0]
    reached, passed = [memories[0]], [concepts[0]]
    for _ in range(MAX_ROUNDS):
        if not next_memories.size and not next_concepts.size:
            break
        given = _take(next_memories, open_memories, at_memories)
        fresh = _push_memories(graph, next_memories, damping * given, open_concepts)
        passed.append(fresh)
        due = np.unique(np.concatenate([next_concepts, fresh]))
        due = due[open_concepts[due] > epsilon * graph.degrees(due)]
        given = _take(due, open_concepts, at_concepts)
        fresh = _push_concepts(graph, due, damping * given, open_memories)
        reached.append(fresh)
        next_memories = fresh[
            open_memories[fresh] > epsilon * graph.mentioned.concept_counts(fresh)
        ]
        next_concepts = due[:0]
    touched = np.unique(np.concatenate(reached))
    through = np.unique(np.concatenate(passed))
    left = float(open_memories[touched].sum() + open_concepts[through].sum())
    # Whoever waits to be passed on is there already: nearer to the truth, and still below it.
    at_memories[touched] += open_memories[touched]
    at_concepts[through] += open_concepts[through]
    return Pushed(at_memories, at_concepts, left, touched[at_memories[touched] > 0.0])


def _take(places: Ints, residual: Floats, estimate: Floats) -> Floats:
    """Move the residual of some distinct places to their estimate, and return it."""
    given = residual[places]
    estimate[places] += given
    residual[places] = 0.0
    return given


def _push_memories(graph: Neighbourhoods, memories: Ints, given: Floats, open_: Floats) -> Ints:
    """Share out what leaves memories by specificity; return the concepts that got some."""
    pairs, degrees = graph.concepts_of(memories)
    specificity = 1.0 / degrees
    total = np.bincount(pairs.owners, specificity, minlength=memories.size)
    np.add.at(open_, pairs.others, given[pairs.owners] * specificity / total[pairs.owners])
    return np.unique(pairs.others)


def _push_concepts(graph: Neighbourhoods, concepts: Ints, given: Floats, open_: Floats) -> Ints:
    """Share out evenly what leaves concepts; return the memories that got some."""
    pairs, _ = graph.mentioned.holders(concepts, graph.mask)
    np.add.at(open_, pairs.others, (given / graph.degrees(concepts))[pairs.owners])
    return np.unique(pairs.others)


def _rows(indptr: NDArray[np.integer], rows: Ints) -> tuple[Ints, Ints]:
    """Return for all entries of some rows the index of their row among these, and their places."""
    starts = indptr[rows].astype(np.int64)
    counts = indptr[rows + 1].astype(np.int64) - starts
    owners = np.repeat(np.arange(rows.size, dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return owners, np.arange(owners.size, dtype=np.int64) - before[owners] + starts[owners]
