"""The graph as arrays: what a snapshot stores and the walk reads. Numpy only, no building."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.values import dataclass

LINK_RELATIONS = ("part_of", "see_also", "resolved_by")
"""Relations of edges that a store's links make; they rest on no concept (NO_CONCEPT)."""

FOUND_RELATIONS = ("mentions_subject", "mentions_tag", "next_turn", "previous_turn")
"""Relations of edges that rest on what memories say."""

RELATIONS = (*FOUND_RELATIONS, *LINK_RELATIONS)
"""Relation names by code. Append only: published snapshots store the codes."""

NO_CONCEPT = -1
"""`concepts` of an edge that a link makes."""

OPEN_END_US = 2**63 - 1
"""`valid_to_us` of an edge that still holds (the largest int64)."""


ROLES = ("about", "mentions", "author", "speaker")
"""How a memory holds a concept, by code. Append only, as above."""


@dataclass(frozen=True, slots=True)
class GraphArrays:
    """Out-edges of every memory in compressed sparse rows, E edges over n positions.

    Attributes:
        indptr: int64 (n+1,); the edges of position p are indptr[p]:indptr[p+1].
        targets: int32 (E,), positions.
        weights: float32 (E,), in (0, 1].
        relations: int8 (E,), index into RELATIONS.
        concepts: int32 (E,), ordinal of the evidence concept; NO_CONCEPT for LINK_RELATIONS.
        in_degrees: int32 (E,), number of edges of the same relation that arrive at the target.
        valid_from_us: int64 (E,), inclusive.
        valid_to_us: int64 (E,), exclusive; OPEN_END_US while the edge holds.
        recorded_at_us: int64 (E,), when the store last wrote the evidence.
        retracted_at_us: int64 (E,), when the store wrote what ended it; OPEN_END_US before that.
        evidence_starts: int32 (E,), first character of the evidence in the source's content, or -1.
        evidence_ends: int32 (E,), one past its last character, or -1.
    """

    indptr: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float32]
    relations: NDArray[np.int8]
    concepts: NDArray[np.int32]
    in_degrees: NDArray[np.int32]
    valid_from_us: NDArray[np.int64]
    valid_to_us: NDArray[np.int64]
    recorded_at_us: NDArray[np.int64]
    retracted_at_us: NDArray[np.int64]
    evidence_starts: NDArray[np.int32]
    evidence_ends: NDArray[np.int32]


def relations_in_use(relations: NDArray[np.int8]) -> tuple[str, ...]:
    """Return the names by code as far as edges need them, those of no link at the least.

    A snapshot whose store has no links names its relations as one did before there were any.
    """
    last = int(relations.max(initial=-1))
    return RELATIONS[: max(len(FOUND_RELATIONS), last + 1)]


@dataclass(frozen=True, slots=True)
class MentionArrays:
    """Where C concepts stand, in compressed sparse rows by concept ordinal: M mentions.

    Attributes:
        indptr: int64 (C+1,); the mentions of concept c are indptr[c]:indptr[c+1].
        positions: int32 (M,), memories, ascending within a concept.
        roles: int8 (M,), index into ROLES.
        starts: int32 (M,), first character in the content, or -1 for an author field.
        ends: int32 (M,), one past the last character, or -1.
    """

    indptr: NDArray[np.int64]
    positions: NDArray[np.int32]
    roles: NDArray[np.int8]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
