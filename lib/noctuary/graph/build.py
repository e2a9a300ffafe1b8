"""From a state in step with the corpus to one graph: names, sums, supersessions.

Belongs here: the order of the steps, each of which lives elsewhere. Does not belong here: reading a
text (`extract`), keeping contributions (`state`), files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from noctuary.arrow import arrow_compute
from noctuary.graph.canonical import Canonical, Memo, MergeRules, NameStats, canonicalise, keep_runs
from noctuary.graph.fold import concept_id
from noctuary.graph.model import Graph, Supersession
from noctuary.graph.state.state import GraphState
from noctuary.graph.supersession.corpus import Corpus
from noctuary.graph.supersession.find import find_supersessions
from noctuary.graph.supersession.intervals import close_intervals
from noctuary.graph.supersession.memo import NearMemo
from noctuary.graph.tables import ArrowTable, GraphTables, rows_of, to_table
from noctuary.types import MemoryRecord

_NO_RULES = MergeRules()


NameEmbedder = Callable[[Sequence[NameStats]], Mapping[str, NDArray[np.float32]] | None]
"""Gives vectors, shape (dimension,), by folded name, best rank first; None without an encoder."""


@dataclass(frozen=True, slots=True)
class Built:
    """A graph and what was decided on the way.

    Attributes:
        tables: The graph.
        unmerged: Pairs of names that were not merged, by the guard that bit.
        rejected: Statements and links that superseded nothing, by reason.
        unknown_names: Names in merge rules that no memory holds.
        memo: For the next canonicalisation.
        near_memo: For the next search for near duplicates.
        concept_vectors: By concept_id, the vector of its canonical name, or of its best ranked name
            that has one.
    """

    tables: GraphTables
    unmerged: Mapping[str, int]
    rejected: Mapping[str, int]
    unknown_names: tuple[str, ...]
    memo: Memo
    near_memo: NearMemo
    concept_vectors: Mapping[str, NDArray[np.float32]]


def build_graph(
    state: GraphState,
    records: Sequence[MemoryRecord],
    *,
    rules: MergeRules = _NO_RULES,
    vectors: NDArray[np.float32] | None = None,
    embed_names: NameEmbedder | None = None,
    memo: Memo | None = None,
    near_memo: NearMemo | None = None,
) -> Built:
    """Build the graph of the records that the state was last brought in step with.

    Args:
        state: In step with the records.
        records: The memories, by position.
        rules: What people forced or forbade.
        vectors: Unit rows by position, shape (n, d); None finds no near duplicates.
        embed_names: Gives vectors of names; None leaves merging by embedding out.
        memo: Of the last canonicalisation with vectors of the same encoder; makes this one quicker,
            never another.
        near_memo: Likewise for near duplicates, with vectors of the same encoder.
    """
    state.place(records, keep_runs(state.runs(), len(records)))
    merged, vectors_of = _merge_names(state, rules, embed_names, memo)
    tables = state.fold(merged.canonical_of, merged.merges)
    corpus = Corpus.read(records, state.iter_outlines)
    replaced = find_supersessions(corpus, merged.canonical_of, vectors, near_memo)
    return Built(
        tables=close(tables, replaced.found, replaced.others),
        unmerged=merged.refused,
        rejected=replaced.rejected,
        unknown_names=merged.unknown_names,
        memo=merged.memo,
        concept_vectors=_by_concept(vectors_of, merged.canonical_of),
        near_memo=replaced.near_memo,
    )


def _merge_names(
    state: GraphState, rules: MergeRules, embed_names: NameEmbedder | None, memo: Memo | None
) -> tuple[Canonical, Mapping[str, NDArray[np.float32]]]:
    """Return which names stand for which, and the vectors of names; no list of names is kept."""
    names = list(state.names())
    vectors_of = embed_names(names) if embed_names is not None else None
    merged = canonicalise(names, state.aliases(), rules, vectors_of, memo)
    return merged, vectors_of or {}


def close(
    tables: GraphTables, found: Sequence[Supersession], others: Sequence[Supersession] = ()
) -> GraphTables:
    """Return the tables with the supersessions, and the intervals closed that they end.

    Only edges of memories on either side of a supersession are looked at as objects: no other can
    end, and there are some millions of them.

    Args:
        tables: A graph without supersessions.
        found: The supersession of every memory that is superseded.
        others: Further contradictions of the same memories.
    """
    chosen = replace(tables, supersessions=to_table("supersessions", found))
    items = (*found, *others)
    sides = {p for item in items for p in (item.older_position, item.newer_position)}
    edges = _rows_with(tables.edges["src_position"].to_numpy(), sides)
    concept_edges = _concept_edges_of(tables.concept_edges, sides)
    part = Graph(
        concepts=(),
        mentions=(),
        edges=tuple(rows_of("edges", tables.edges.take(edges))),
        skipped_subjects={},
        declined_runs={},
        concept_edges=tuple(rows_of("concept_edges", tables.concept_edges.take(concept_edges))),
    )
    closed = close_intervals(part, items)
    return replace(
        chosen,
        edges=_with_ends(tables.edges, edges, closed.edges),
        concept_edges=_with_ends(tables.concept_edges, concept_edges, closed.concept_edges),
    )


def _by_concept(
    vectors: Mapping[str, NDArray[np.float32]], canonical_of: Mapping[str, str]
) -> dict[str, NDArray[np.float32]]:
    found: dict[str, NDArray[np.float32]] = {}
    for name, vector in vectors.items():
        key = concept_id(canonical_of.get(name, name))
        if name not in canonical_of or key not in found:
            found[key] = vector
    return found


def _rows_with(positions: NDArray[np.int64], wanted: Iterable[int]) -> NDArray[np.int64]:
    return np.flatnonzero(np.isin(positions, np.array(sorted(wanted), dtype=np.int64)))


def _concept_edges_of(table: ArrowTable, sides: Iterable[int]) -> NDArray[np.int64]:
    """Return the rows of which any evidence stands in one of the memories."""
    pc = arrow_compute()

    evidence = table["evidence"].combine_chunks()
    owners = pc.list_parent_indices(evidence).to_numpy()
    positions = evidence.flatten().field("position").to_numpy()
    return np.unique(owners[_rows_with(positions, sides)]).astype(np.int64)


def _with_ends(table: ArrowTable, rows: NDArray[np.int64], edges: Sequence[object]) -> ArrowTable:
    """Return the table with the ends of some rows replaced by those of their objects."""
    import pyarrow as pa

    for name in ("valid_to_us", "retracted_at_us"):
        is_open, ends = np.ones(table.num_rows, dtype=np.bool_), np.zeros(table.num_rows, np.int64)
        for row, edge in zip(rows.tolist(), edges, strict=True):
            end: int | None = getattr(edge, name)
            is_open[row], ends[row] = end is None, end or 0
        column = pa.array(ends, pa.int64(), mask=is_open)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
