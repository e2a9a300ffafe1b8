"""Mentions written by hand, and the same by chance."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.walk import ROLES, MentionArrays

Held = tuple[int, int, str]
"""A concept, a memory, and in which role the one stands in the other."""


def mention_arrays(held: Iterable[Held], concepts: int) -> MentionArrays:
    """Return the arrays as a snapshot has them: by concept, then by memory."""
    rows = sorted(held)
    nowhere = np.full(len(rows), -1, dtype=np.int32)
    return MentionArrays(
        indptr=np.searchsorted([c for c, _, _ in rows], np.arange(concepts + 1)),
        positions=np.array([m for _, m, _ in rows], dtype=np.int32),
        roles=np.array([ROLES.index(role) for _, _, role in rows], dtype=np.int8),
        starts=nowhere,
        ends=nowhere,
    )


def random_mentions(rng: np.random.Generator, memories: int, concepts: int) -> list[Held]:
    """Return mentions of which some repeat in other roles, and some memories hold nothing."""
    size = 3 * memories
    drawn: NDArray[np.int64] = rng.integers(0, (concepts, memories, len(ROLES)), (size, 3))
    return [(c, m, ROLES[role]) for c, m, role in drawn.tolist() if m % 7]
