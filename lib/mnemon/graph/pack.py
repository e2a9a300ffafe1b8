"""The graph's edges as arrays. Build side: knows `model` and `arrays`; the walk knows only one."""

from __future__ import annotations

import numpy as np

from mnemon.graph.arrays import OPEN_END_US, RELATIONS, GraphArrays
from mnemon.graph.model import Edge, Graph


def to_arrays(graph: Graph, n: int) -> GraphArrays:
    """Return the edges in compressed sparse rows over n positions; equal graphs give equal bytes.

    Raises:
        ValueError: An edge leaves or reaches a position outside 0..n-1.
    """
    ordered = sorted(graph.edges, key=_row_order)
    sources = np.array([edge.src_position for edge in ordered], dtype=np.int64)
    targets = np.array([edge.dst_position for edge in ordered], dtype=np.int32)
    _check_range(sources, targets, n)
    relations = np.array([RELATIONS.index(edge.relation) for edge in ordered], dtype=np.int8)
    ordinals = {concept.concept_id: i for i, concept in enumerate(graph.concepts)}
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources, minlength=n), out=indptr[1:])
    ends = [OPEN_END_US if edge.valid_to_us is None else edge.valid_to_us for edge in ordered]
    return GraphArrays(
        indptr=indptr,
        targets=targets,
        weights=np.array([edge.weight for edge in ordered], dtype=np.float32),
        relations=relations,
        concepts=np.array([ordinals[edge.concept_id] for edge in ordered], dtype=np.int32),
        in_degrees=_in_degrees(targets, relations, n),
        valid_from_us=np.array([edge.valid_from_us for edge in ordered], dtype=np.int64),
        valid_to_us=np.array(ends, dtype=np.int64),
    )


def _row_order(edge: Edge) -> tuple[int, int, int, str]:
    code = RELATIONS.index(edge.relation)
    return (edge.src_position, code, edge.dst_position, edge.concept_id)


def _check_range(sources: np.ndarray, targets: np.ndarray, n: int) -> None:
    for name, ends in (("source", sources), ("target", targets)):
        if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= n):
            raise ValueError(
                f"found an edge with {name} {int(ends.min())}..{int(ends.max())}, expected "
                f"positions in 0..{n - 1}: the graph belongs to another corpus"
            )


def _in_degrees(targets: np.ndarray, relations: np.ndarray, n: int) -> np.ndarray:
    degrees = np.zeros(targets.size, dtype=np.int32)
    for code in range(len(RELATIONS)):
        chosen = relations == code
        degrees[chosen] = np.bincount(targets[chosen], minlength=n)[targets[chosen]]
    return degrees
