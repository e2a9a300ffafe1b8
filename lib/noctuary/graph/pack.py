"""The graph's edges and mentions as arrays. Build side: knows the tables; recall knows `arrays`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.arrow import arrow_compute
from noctuary.graph.arrays import (
    NO_CONCEPT,
    OPEN_END_US,
    RELATIONS,
    ROLES,
    GraphArrays,
    MentionArrays,
)
from noctuary.graph.tables import ArrowColumn, ArrowTable, GraphTables


def to_arrays(tables: GraphTables, n: int) -> GraphArrays:
    """Return the edges in compressed sparse rows over n positions; equal graphs give equal bytes.

    Raises:
        ValueError: An edge leaves or reaches a position outside 0..n-1, or names no concept.
    """
    edges = tables.edges
    sources, targets = _integers(edges, "src_position"), _integers(edges, "dst_position")
    _check_range("source", sources, n)
    _check_range("target", targets, n)
    relations = _codes(edges["relation"], RELATIONS)
    concepts = _evidence_ordinals(tables)
    order = np.lexsort((concepts, targets, relations, sources))

    # One column at a time is as wide as the table has it: there are some millions of edges.
    def read(name: str, kind: type[np.generic]) -> NDArray[Any]:
        return _integers(edges, name)[order].astype(kind)

    return GraphArrays(
        indptr=_indptr(sources, n),
        targets=targets[order].astype(np.int32),
        weights=read("weight", np.float32),
        relations=relations[order].astype(np.int8),
        concepts=concepts[order].astype(np.int32),
        in_degrees=_in_degrees(targets, relations, n)[order].astype(np.int32),
        valid_from_us=read("valid_from_us", np.int64),
        valid_to_us=_ends(edges, "valid_to_us")[order],
        recorded_at_us=read("recorded_at_us", np.int64),
        retracted_at_us=_ends(edges, "retracted_at_us")[order],
        evidence_starts=read("evidence_start", np.int32),
        evidence_ends=read("evidence_end", np.int32),
    )


def to_mention_arrays(tables: GraphTables) -> MentionArrays:
    """Return the mentions in compressed sparse rows over the concepts' ordinals.

    Raises:
        ValueError: A mention names no concept.
    """
    mentions = tables.mentions
    concepts = concept_ordinals(tables.concepts, mentions["concept_id"])
    positions = _integers(mentions, "position").astype(np.int32)
    starts = _integers(mentions, "start").astype(np.int32)
    ends = _integers(mentions, "end").astype(np.int32)
    roles = _codes(mentions["role"], ROLES).astype(np.int8)
    order = np.lexsort((roles, ends, starts, positions, concepts))
    return MentionArrays(
        indptr=_indptr(concepts, tables.concepts.num_rows),
        positions=positions[order],
        roles=roles[order],
        starts=starts[order],
        ends=ends[order],
    )


def speaking_concepts(mentions: MentionArrays) -> dict[int, int]:
    """Return, by position, the ordinal of the concept that speaks; the smallest, where several."""
    owners = np.repeat(np.arange(mentions.indptr.size - 1), np.diff(mentions.indptr))
    speaking = np.flatnonzero(mentions.roles == ROLES.index("speaker"))[::-1]
    positions, ordinals = mentions.positions[speaking], owners[speaking]
    return dict(zip(positions.tolist(), ordinals.tolist(), strict=True))


def concept_ordinals(concepts: ArrowTable, ids: ArrowColumn) -> NDArray[np.int64]:
    """Return the ordinals of concepts by id.

    Raises:
        ValueError: An id is no concept's.
    """
    pc = arrow_compute()

    found = pc.index_in(ids, value_set=concepts["concept_id"].combine_chunks())
    if found.null_count:
        raise ValueError(
            f"found {found.null_count} ids of no concept: the tables are of different graphs"
        )
    return found.to_numpy().astype(np.int64)


def _evidence_ordinals(tables: GraphTables) -> NDArray[np.int64]:
    """Return the concept of every edge, NO_CONCEPT for those of links."""
    pc = arrow_compute()

    ids = tables.edges["concept_id"]
    is_link: NDArray[np.bool_] = pc.equal(ids, "").to_numpy()
    ordinals = np.full(len(ids), NO_CONCEPT, dtype=np.int64)
    rows = np.flatnonzero(~is_link)
    ordinals[rows] = concept_ordinals(tables.concepts, ids.take(rows))
    return ordinals


def _integers(table: ArrowTable, name: str) -> NDArray[np.int64]:
    values: NDArray[np.int64] = table[name].to_numpy()
    return values


def _ends(table: ArrowTable, name: str) -> NDArray[np.int64]:
    pc = arrow_compute()

    values: NDArray[np.int64] = pc.fill_null(table[name], OPEN_END_US).to_numpy()
    return values


def _codes(names: ArrowColumn, known: Sequence[str]) -> NDArray[np.int64]:
    import pyarrow as pa

    pc = arrow_compute()

    found = pc.index_in(names, value_set=pa.array(known, pa.string()))
    return found.to_numpy().astype(np.int64)


def _indptr(rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=indptr[1:])
    return indptr


def _check_range(name: str, ends: NDArray[np.int64], n: int) -> None:
    if ends.size and (int(ends.min()) < 0 or int(ends.max()) >= n):
        raise ValueError(
            f"found an edge with {name} {int(ends.min())}..{int(ends.max())}, expected "
            f"positions in 0..{n - 1}: the graph belongs to another corpus"
        )


def _in_degrees(
    targets: NDArray[np.int64], relations: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    degrees = np.zeros(targets.size, dtype=np.int64)
    for code in range(len(RELATIONS)):
        chosen = relations == code
        degrees[chosen] = np.bincount(targets[chosen], minlength=n)[targets[chosen]]
    return degrees
