"""The reference's concept co-occurrence graph, without writing its edges down.

Source: hybrid-recall-design B.4. Two memories are joined if they share a concept; the edge weighs
as many concepts as they share. Concepts of document frequency 1 link nothing, those above 2 % of
the corpus are hubs: both are left out. The reference keeps 2,095,624 edges between 5,452 memories
in networkx; here the concepts of each memory and the memories of each concept are kept as two
sparse arrays, and a memory's edges are computed through its concepts when they are asked for. The
result is the same as that of the memory-memory graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.arms.seed_concepts import list_concepts

MIN_CONCEPT_MEMORIES = 2
"""A concept of one memory joins nothing (df >= 2 in the reference)."""

MAX_CONCEPT_SHARE = 0.02
"""Concepts in more than this share of the memories are hubs that tell nothing apart."""

NEIGHBOURS_PER_SEED = 25
"""The reference's cap: more reach further and bring more chance neighbours."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CooccurrenceGraph:
    """Memories joined by shared concepts, as two compressed sparse row structures.

    Attributes:
        n_memories: Rows of the corpus.
        n_extracted: Distinct concepts before pruning.
        concepts_indptr: Shape (n_memories + 1,); the concepts of memory m are
            concepts[concepts_indptr[m]:concepts_indptr[m + 1]].
        concepts: Ordinals of kept concepts.
        members_indptr: Shape (n_concepts + 1,), the same for the memories of a concept.
        members: Rows.
    """

    n_memories: int
    n_extracted: int
    concepts_indptr: Ints
    concepts: Ints
    members_indptr: Ints
    members: Ints

    @staticmethod
    def build(
        rows: Sequence[dict[str, Any]], max_share: float = MAX_CONCEPT_SHARE
    ) -> CooccurrenceGraph:
        """Extract the concepts of every row and join the rows that share some.

        Args:
            rows: A corpus.
            max_share: Largest share of the rows that a kept concept may occur in.
        """
        return CooccurrenceGraph.of_concepts([list_concepts(row) for row in rows], max_share)

    @staticmethod
    def of_concepts(
        per_memory: Sequence[Sequence[str]], max_share: float = MAX_CONCEPT_SHARE
    ) -> CooccurrenceGraph:
        """Build the graph of the distinct concepts of each memory."""
        n = len(per_memory)
        ordinals: dict[str, int] = {}
        for concept in chain.from_iterable(per_memory):
            ordinals.setdefault(concept, len(ordinals))
        owners = np.repeat(np.arange(n), [len(concepts) for concepts in per_memory])
        held = np.array([ordinals[c] for c in chain.from_iterable(per_memory)], dtype=np.int64)
        frequency = np.bincount(held, minlength=len(ordinals))
        useful = (frequency >= MIN_CONCEPT_MEMORIES) & (frequency <= int(max_share * n))
        renumbered = np.cumsum(useful) - 1
        kept = useful[held]
        owners, held = owners[kept].astype(np.int64), renumbered[held[kept]].astype(np.int64)
        by_concept = np.argsort(held, kind="stable")
        return CooccurrenceGraph(
            n_memories=n,
            n_extracted=len(ordinals),
            concepts_indptr=_indptr(owners, n),
            concepts=held,
            members_indptr=_indptr(held, int(useful.sum())),
            members=owners[by_concept],
        )

    @property
    def n_concepts(self) -> int:
        """Concepts that join at least two memories."""
        return self.members_indptr.size - 1

    @property
    def size_bytes(self) -> int:
        """Bytes of the four arrays."""
        arrays = (self.concepts_indptr, self.concepts, self.members_indptr, self.members)
        return sum(int(array.nbytes) for array in arrays)

    def neighbours(self, row: int) -> tuple[Ints, Ints]:
        """Return the rows joined to a memory, ascending, and how many concepts each shares."""
        start, stop = self.concepts_indptr[row : row + 2]
        met = [
            self.members[self.members_indptr[c] : self.members_indptr[c + 1]]
            for c in self.concepts[start:stop]
        ]
        if not met:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        shared = np.bincount(np.concatenate(met), minlength=self.n_memories)
        shared[row] = 0
        rows = np.flatnonzero(shared)
        return rows, shared[rows].astype(np.int64)

    def strongest(self, row: int, count: int = NEIGHBOURS_PER_SEED) -> tuple[Ints, Ints]:
        """Return up to `count` neighbours, heaviest edge first, ties by row, with the weights."""
        rows, weights = self.neighbours(row)
        if rows.size > count:
            # Every tie of the last place stays in, so that the stable sort decides by row.
            least = np.partition(weights, rows.size - count)[rows.size - count]
            rows, weights = rows[weights >= least], weights[weights >= least]
        order = np.argsort(-weights, kind="stable")[:count]
        return rows[order], weights[order]

    def expand(self, seeds: Sequence[tuple[int, float]]) -> list[int]:
        """Return the rows one hop from the seeds, best first, ties by row.

        Each seed passes its score to its strongest neighbours, times the edge's weight; a row that
        several seeds reach adds these up. A seed may be reached from another.

        Args:
            seeds: (row, score), scores positive.
        """
        arrived: dict[int, float] = {}
        for row, score in seeds:
            rows, weights = self.strongest(row)
            for neighbour, weight in zip(rows.tolist(), weights.tolist(), strict=True):
                arrived[neighbour] = arrived.get(neighbour, 0.0) + score * weight
        return sorted(arrived, key=lambda row: (-arrived[row], row))


def _indptr(owners: Ints, count: int) -> Ints:
    counts = np.bincount(owners, minlength=count)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
