"""The graph as arrays: what a snapshot stores and the walk reads. Numpy only, no building."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mnemon.values import dataclass

RELATIONS = ("mentions_subject", "mentions_tag", "next_turn", "previous_turn")
"""Relation names by code. Append only: published snapshots store the codes."""

OPEN_END_US = 2**63 - 1
"""`valid_to_us` of an edge that still holds (the largest int64)."""


@dataclass(frozen=True, slots=True)
class GraphArrays:
    """Out-edges of every memory in compressed sparse rows, E edges over n positions.

    Attributes:
        indptr: int64 (n+1,); the edges of position p are indptr[p]:indptr[p+1].
        targets: int32 (E,), positions.
        weights: float32 (E,), in (0, 1].
        relations: int8 (E,), index into RELATIONS.
        concepts: int32 (E,), ordinal of the evidence concept.
        in_degrees: int32 (E,), number of edges of the same relation that arrive at the target.
        valid_from_us: int64 (E,), inclusive.
        valid_to_us: int64 (E,), exclusive; OPEN_END_US while the edge holds.
    """

    indptr: NDArray[np.int64]
    targets: NDArray[np.int32]
    weights: NDArray[np.float32]
    relations: NDArray[np.int8]
    concepts: NDArray[np.int32]
    in_degrees: NDArray[np.int32]
    valid_from_us: NDArray[np.int64]
    valid_to_us: NDArray[np.int64]
