"""How a random walk moves between memories and concepts: sparse matrices of the bipartite graph.

Read side, and only where a profile asks for it: scipy is imported on first use. Belongs here: which
memory and which concept are joined, and by what weight. Does not belong here: the walk (`ppr`).

Weights are those of HippoRAG 2 and SPRIG (research/peers.md section 3): a concept counts 1 over the
memories that hold it, and what leaves a node sums to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import ROLES, MentionArrays
from noctuary.graph.hubs import Hubs
from noctuary.values import dataclass

LEAST_HELD = 2
"""Memories that a concept has to join; with 1, most of what leaves a memory would go to names that
lead back to it alone, and the matrices would be twice as large."""

_ABOUT = ROLES.index("about")


class Sparse(Protocol):
    """What is used of scipy's csr_array."""

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]

    def __matmul__(self, vector: NDArray[np.float64], /) -> NDArray[np.float64]: ...


@dataclass(frozen=True, slots=True)
class Transitions:
    """The graph of V memories and K concepts, both numbered anew by place in these arrays.

    Attributes:
        positions: int64 (V,), ascending: the memories that may be seen.
        ordinals: int64 (K,), ascending: concepts that some of them hold and that are no hubs.
        degrees: int64 (K,), >= LEAST_HELD, how many of them hold it.
        to_memories: (V, K), columns sum to 1: what a concept passes to memories.
        to_concepts: (K, V), columns sum to 1, or to 0 where `is_end`.
        is_end: bool (V,), memories that pass nothing on.
    """

    positions: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    degrees: NDArray[np.int64]
    to_memories: Sparse
    to_concepts: Sparse
    is_end: NDArray[np.bool_]


class Surroundings(NamedTuple):
    """Memories and the concepts that they hold: what a path is read from.

    Attributes:
        positions: int64 (V,), ascending.
        ordinals: int64 (K,), ascending.
        degrees: int64 (K,), memories that may be seen and hold it.
        indptr: (V + 1,), rows of `indices` by memory.
        indices: Places in `ordinals`, ascending per memory.
    """

    positions: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    degrees: NDArray[np.int64]
    indptr: NDArray[np.integer]
    indices: NDArray[np.integer]


class _Pairs(NamedTuple):
    """Which memory holds which concept: P pairs, each once, by concept, then by memory."""

    concepts: NDArray[np.int64]
    memories: NDArray[np.int64]


def build_transitions(
    mentions: MentionArrays, memories: int, mask: NDArray[np.bool_] | None = None
) -> Transitions:
    """Return the matrices over the memories that may be seen; linear in the mentions.

    What is hidden is taken out before anything is counted: it neither passes on nor weighs.

    Args:
        mentions: Where concepts stand.
        memories: Number of memories of the snapshot.
        mask: (n,) True where a memory may be seen; None for everything.

    Raises:
        ImportError: scipy is not installed.
        ValueError: A mention lies outside the memories: the arrays are damaged.
    """
    visible = np.arange(memories) if mask is None else np.flatnonzero(mask)
    concepts, where, roles = _visible_mentions(mentions, memories, mask)
    first = np.ones(concepts.size, dtype=bool)
    first[1:] = (concepts[1:] != concepts[:-1]) | (where[1:] != where[:-1])
    starts = np.flatnonzero(first)
    # Held in two roles, or twice in one, counts once; about and mentioned, as about.
    about = np.add.reduceat(roles == _ABOUT, starts) > 0 if starts.size else first
    pairs = _Pairs(concepts[first], where[first])
    size = mentions.indptr.size - 1
    held = np.bincount(pairs.concepts, minlength=size)
    subjects = np.bincount(pairs.concepts[about], minlength=size)
    hubs = Hubs.of(visible.size)
    usable = (held >= LEAST_HELD) & (held <= hubs.mentions) & (subjects <= hubs.subjects)
    kept = usable[pairs.concepts]
    places = (np.cumsum(usable) - 1)[pairs.concepts[kept]]
    joined = _Pairs(places, pairs.memories[kept])
    return _transitions(visible, np.flatnonzero(usable), held[usable], joined)


def _visible_mentions(
    mentions: MentionArrays, memories: int, mask: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Return concept, memory (numbered among the visible ones) and role of every mention."""
    require_sound(mentions, memories)
    where = mentions.positions.astype(np.int64)
    counts = np.diff(mentions.indptr)
    concepts = np.repeat(np.arange(counts.size, dtype=np.int64), counts)
    roles = np.asarray(mentions.roles)
    if mask is None:
        return concepts, where, roles
    seen = mask[where]
    return concepts[seen], (np.cumsum(mask) - 1)[where[seen]], roles[seen]


def require_sound(mentions: MentionArrays, memories: int) -> None:
    """Refuse arrays that a search would leave: scipy multiplies without looking.

    Raises:
        ValueError: A mention lies outside the memories, or the rows outside the mentions.
    """
    counts = np.diff(mentions.indptr)
    sound = bool((counts >= 0).all()) and int(mentions.indptr[0]) == 0
    if (
        not sound
        or int(counts.sum()) != mentions.positions.size
        or _outside(mentions.positions, memories)
    ):
        raise ValueError(
            f"found mentions outside of {memories} memories or of their rows: the arrays are "
            "damaged"
        )


def _outside(where: NDArray[np.integer], memories: int) -> bool:
    return bool(where.size) and (int(where.min()) < 0 or int(where.max()) >= memories)


def _transitions(
    positions: NDArray[np.intp],
    ordinals: NDArray[np.intp],
    degrees: NDArray[np.intp],
    pairs: _Pairs,
) -> Transitions:
    concepts, memories = pairs
    specificity = 1.0 / degrees[concepts]
    left = np.bincount(memories, specificity, minlength=positions.size)
    shape = (positions.size, ordinals.size)
    return Transitions(
        positions=positions.astype(np.int64),
        ordinals=ordinals.astype(np.int64),
        degrees=degrees.astype(np.int64),
        to_memories=_sparse(specificity, (memories, concepts), shape),
        to_concepts=_sparse(specificity / left[memories], (concepts, memories), shape[::-1]),
        is_end=left == 0.0,
    )


def _sparse(
    values: NDArray[np.float64],
    places: Sequence[NDArray[np.int64]],
    shape: tuple[int, ...],
) -> Sparse:
    # Here and not above: nobody else on the read side needs scipy, whose import takes 0.2 s.
    from scipy import sparse

    matrix: Any = sparse.csr_array((values, tuple(places)), shape=shape)
    matrix.sort_indices()
    return matrix
