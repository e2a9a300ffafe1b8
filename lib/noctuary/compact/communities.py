"""Turns of one session grouped by what they are about: Leiden communities of a similarity graph.

What belongs here: the graph, the communities and the rules that keep their sizes in bounds. What
does not: Leiden itself (`leiden`), eligibility, ids, reading vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import TARGET_CLUSTER_TURNS, cut_evenly
from noctuary.compact.eligibility import SessionTurn
from noctuary.compact.leiden import leiden_labels
from noctuary.compact.strategies import COMMUNITIES

VectorsOf = Callable[[Sequence[int]], NDArray[Any]]

WINDOW_TURNS = 1_000
"""Turns that are compared with each other; longer sessions are cut into windows first, so that
time grows with the number of turns. Larger finds topics that recur later, and costs its square."""

NEIGHBOURS = 10
"""Nearest turns that a turn is linked to. Larger joins topics, smaller splits them."""

ADJACENCY_WEIGHT = 0.5
"""Weight of the link between one turn and the next, beside their similarity: a short reply ("Yes, I
would love to!") says by its place what it is about. Larger makes communities more chronological."""

LARGEST_SHARE = 2
"""A community of more than this many times the target is cut into parts of about the target."""

SMALLEST_COMMUNITY = 3
"""A smaller community joins the most similar one that has room: two turns hardly compress."""

_DECIMALS = 6
# Cosines are rounded here, so that the last bits of another BLAS do not move a turn.


@dataclass(frozen=True, slots=True)
class Communities:
    """Groups of similar turns, of any places in the session.

    Attributes:
        vectors_of: Document vectors of corpus positions, shape (n, d), in the given order.
        target: Turns per cluster to aim at; non-positive means TARGET_CLUSTER_TURNS.
    """

    vectors_of: VectorsOf
    target: int = TARGET_CLUSTER_TURNS
    name: str = COMMUNITIES

    def group(self, turns: Sequence[SessionTurn]) -> list[Sequence[SessionTurn]]:
        """Return the communities of each window, none larger than LARGEST_SHARE * target."""
        groups: list[Sequence[SessionTurn]] = []
        for start, end in windows(len(turns)):
            part = turns[start:end]
            groups += self._window(part)
        return groups

    def _window(self, turns: Sequence[SessionTurn]) -> list[Sequence[SessionTurn]]:
        size = self.target if self.target > 0 else TARGET_CLUSTER_TURNS
        if len(turns) < 2 * SMALLEST_COMMUNITY:
            return cut_evenly(turns, size)
        cosines = similarities(self.vectors_of([turn.position for turn in turns]))
        labels = join_small(find_communities(cosines), cosines, LARGEST_SHARE * size)
        groups: list[Sequence[SessionTurn]] = []
        for members in members_of(labels):
            whole = [turns[i] for i in members]
            groups += [whole] if len(whole) <= LARGEST_SHARE * size else cut_evenly(whole, size)
        return sorted(groups, key=lambda group: (group[0].created_at_us, group[0].position))


def windows(turns: int) -> list[tuple[int, int]]:
    """Return (start, end) of the windows of a session: WINDOW_TURNS each, a short rest joined.

    The starts do not depend on how many turns follow, so that a growing session keeps the clusters
    of its full windows. The last window has up to 1.5 * WINDOW_TURNS turns.
    """
    starts = list(range(0, turns, WINDOW_TURNS))
    if len(starts) > 1 and turns - starts[-1] < WINDOW_TURNS // 2:
        starts.pop()
    ends = [*starts[1:], turns][: len(starts)]
    return list(zip(starts, ends, strict=True))


def similarities(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """Return positive cosines, shape (n, n), in [0, 1], rounded, diagonal 0; zero vectors give 0.

    Args:
        vectors: Shape (n, d); a row with a component that is not finite counts as zero.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0.0)
    cosines = np.round(np.clip(unit @ unit.T, 0.0, 1.0), _DECIMALS)
    np.fill_diagonal(cosines, 0.0)
    # The upper half is the truth: a product may round (i, j) and (j, i) apart.
    upper = np.triu(cosines)
    return np.asarray(upper + upper.T, dtype=np.float64)


def find_communities(cosines: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a community label per turn, shape (n,), by Leiden.

    Every turn is linked to its NEIGHBOURS most similar turns (ties to the earlier one) with their
    cosine as weight, and to the turns before and after it.

    Args:
        cosines: As `similarities` returns them, rows chronological.
    """
    return leiden_labels(_weights(cosines))


def join_small(
    labels: NDArray[np.int64], cosines: NDArray[np.float64], largest: int
) -> NDArray[np.int64]:
    """Let every community below SMALLEST_COMMUNITY join the one it is most similar to on average.

    Smallest first, then by first turn. One that no community with room is similar to stays as it
    is: as a trivial cluster where it is one turn.

    Args:
        labels: Shape (n,).
        cosines: Shape (n, n).
        largest: Most turns of a community that another joined.
    """
    labels = labels.copy()
    small = [group for group in members_of(labels) if len(group) < SMALLEST_COMMUNITY]
    for group in sorted(small, key=lambda members: (len(members), members[0])):
        own = labels[group[0]]
        size = int((labels == own).sum())
        if size >= SMALLEST_COMMUNITY:
            continue
        members = np.flatnonzero(labels == own)
        best, closest = own, 0.0
        for other in np.unique(labels):
            others = np.flatnonzero(labels == other)
            if other == own or size + len(others) > largest:
                continue
            mean = round(float(cosines[np.ix_(members, others)].mean()), _DECIMALS)
            if mean > closest:
                best, closest = other, mean
        labels[members] = best
    return labels


def members_of(labels: NDArray[np.int64]) -> list[list[int]]:
    """Return the turns of every community, ascending, by first turn."""
    groups: dict[int, list[int]] = {}
    for turn, label in enumerate(labels.tolist()):
        groups.setdefault(label, []).append(turn)
    return list(groups.values())


def _weights(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    turns = len(cosines)
    kept = np.zeros_like(cosines)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :NEIGHBOURS]
    np.put_along_axis(kept, nearest, np.take_along_axis(cosines, nearest, axis=1), axis=1)
    weights = np.maximum(kept, kept.T)
    following = np.arange(turns - 1)
    weights[following, following + 1] += ADJACENCY_WEIGHT
    weights[following + 1, following] += ADJACENCY_WEIGHT
    return weights
