"""What the query names outright: memories about those concepts.

Read side: standard library and numpy only. Belongs here: from linked concepts to arrivals. Does
not belong here: finding the names (`linking`), walking from hits (`walk`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import ROLES, MentionArrays
from noctuary.graph.linking import Link

NAMED_WEIGHT = 0.9
"""What a memory about a named concept gains, against a base score of at most 1, for a name that is
specific and has one such memory; more lifts titles over what the query asks about them."""

_ABOUT = ROLES.index("about")


class Named(NamedTuple):
    """Memories about what the query names, ordered by position; all arrays have length m.

    Attributes:
        positions: int64, distinct.
        scores: float64, > 0.
        concepts: int64, ordinal of the concept that gave the most.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]
    concepts: NDArray[np.int64]


def name_subjects(
    links: Sequence[Link], mentions: MentionArrays, mask: NDArray[np.bool_] | None = None
) -> Named:
    """Return the memories about the linked concepts: NAMED_WEIGHT * weight, added up per memory.

    A link's weight is already shared out over the memories about its concept.

    Args:
        links: What the query names.
        mentions: Where concepts stand.
        mask: (n,) True where a memory may be seen.
    """
    found: dict[int, tuple[float, float, int]] = {}
    weights: dict[int, float] = {}
    for link in links:
        weights[link.ordinal] = max(weights.get(link.ordinal, 0.0), link.weight)
    for ordinal, weight in weights.items():
        gain = NAMED_WEIGHT * weight
        if gain <= 0.0:
            continue
        for position in subjects_of(ordinal, mentions, mask).tolist():
            total, best, concept = found.get(position, (0.0, 0.0, ordinal))
            found[position] = (
                total + gain, max(best, gain), ordinal if gain > best else concept
            )  # fmt: skip
    positions = sorted(found)
    return Named(
        np.array(positions, dtype=np.int64),
        np.array([found[p][0] for p in positions], dtype=np.float64),
        np.array([found[p][2] for p in positions], dtype=np.int64),
    )


def subjects_of(
    ordinal: int, mentions: MentionArrays, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the visible memories about a concept, ascending."""
    rows = slice(int(mentions.indptr[ordinal]), int(mentions.indptr[ordinal + 1]))
    held = mentions.positions[rows][mentions.roles[rows] == _ABOUT].astype(np.int64)
    found = np.array(sorted(set(held.tolist())), dtype=np.int64)
    return found if mask is None else found[mask[found]]


def mention_span(ordinal: int, position: int, mentions: MentionArrays) -> tuple[int, int] | None:
    """Return where a memory's text first names a concept; None where only a field does."""
    rows = slice(int(mentions.indptr[ordinal]), int(mentions.indptr[ordinal + 1]))
    here = (mentions.positions[rows] == position) & (mentions.starts[rows] >= 0)
    places = np.flatnonzero(here)
    if not places.size:
        return None
    first = rows.start + int(places[0])
    return int(mentions.starts[first]), int(mentions.ends[first])
