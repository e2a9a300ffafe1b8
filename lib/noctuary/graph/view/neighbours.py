"""Concepts that the same memories hold, and memories that a concept leads to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.view.source import GraphSource

SPECIFICITY_POWER = 0.5
"""Power of the number of memories that hold a neighbour, by which shared memories are divided. 1
puts whatever a single memory names first, 0 what every memory names."""


class Neighbours(NamedTuple):
    """Concepts beside one, best first; all int64 but scores, (m,).

    Attributes:
        ordinals: The concepts.
        shared: Memories that hold both.
        held: Memories that hold the neighbour.
        scores: shared / held ** SPECIFICITY_POWER, float64.
    """

    ordinals: NDArray[np.int64]
    shared: NDArray[np.int64]
    held: NDArray[np.int64]
    scores: NDArray[np.float64]


class Targets(NamedTuple):
    """Memories that steps over one concept reach, most sources first; (m,).

    Attributes:
        positions: int64, the memories.
        sources: int64, how many memories lead there.
        weights: float64, of the strongest step.
        relations: int64, its type's code.
    """

    positions: NDArray[np.int64]
    sources: NDArray[np.int64]
    weights: NDArray[np.float64]
    relations: NDArray[np.int64]


def neighbours_of(source: GraphSource, ordinal: int) -> Neighbours:
    """Return the concepts that share memories with one; equal scores: most shared, then ordinal."""
    member = np.zeros(source.sight.seen.size, dtype=np.bool_)
    member[source.holders(ordinal)] = True
    beside = source.held.concepts[member[source.held.positions]]
    counts = np.bincount(beside, minlength=source.concept_count)
    counts[ordinal] = 0
    ordinals = np.flatnonzero(counts)
    shared, held = counts[ordinals], source.frequencies[ordinals]
    scores = shared / held**SPECIFICITY_POWER
    order = np.lexsort((ordinals, -shared, -scores))
    return Neighbours(ordinals[order], shared[order], held[order], scores[order])


def targets_of(source: GraphSource, ordinal: int) -> Targets:
    """Return the memories that steps over a concept reach, of those that hold."""
    chosen = source.steps_that_hold
    chosen = chosen[source.steps["concepts"][chosen] == ordinal]
    targets = source.steps["targets"][chosen].astype(np.int64)
    weights = source.steps["weights"][chosen].astype(np.float64)
    relations = source.steps["relations"][chosen].astype(np.int64)
    order = np.lexsort((chosen, relations, -weights, targets))
    positions, first = np.unique(targets[order], return_index=True)
    pairs = np.unique(np.stack([targets, source.step_sources[chosen]]), axis=1)
    sources = np.searchsorted(pairs[0], positions, "right") - np.searchsorted(pairs[0], positions)
    best = order[first]
    ranked = np.lexsort((positions, -weights[best], -sources))
    return Targets(
        positions[ranked], sources[ranked], weights[best][ranked], relations[best][ranked]
    )
