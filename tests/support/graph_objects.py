"""A whole graph as objects, for graphs small enough to be written down and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from noctuary.graph.supersession import close_intervals
from noctuary.graph.tables import (
    FILES,
    ArrowTable,
    Evidence,
    GraphTables,
    Merge,
    Role,
    StatedRelation,
    Supersession,
    to_table,
)


@dataclass(frozen=True, slots=True)
class Concept:
    """Something that memories are about or name."""

    concept_id: str
    canonical_name: str
    kind: str
    aliases: tuple[str, ...]
    df: int


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a memory holds a concept: the evidence."""

    position: int
    concept_id: str
    role: Role
    start: int
    end: int
    surface: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed, typed, dated step from one memory to another."""

    src_position: int
    dst_position: int
    relation: str

    weight: float

    concept_id: str
    evidence_position: int
    evidence_start: int
    evidence_end: int
    valid_from_us: int
    valid_to_us: int | None

    recorded_at_us: int
    retracted_at_us: int | None = None

    def holds_at(self, as_of_us: int) -> bool:
        """Say whether the edge is valid at a moment (from inclusive, to exclusive)."""
        if as_of_us < self.valid_from_us:
            return False
        return self.valid_to_us is None or as_of_us < self.valid_to_us


@dataclass(frozen=True, slots=True)
class ConceptEdge:
    """A relation between two concepts that memories state, contribution counted."""

    src_concept: str
    dst_concept: str
    relation: StatedRelation
    weight: float

    evidence: tuple[Evidence, ...]
    valid_from_us: int
    valid_to_us: int | None
    recorded_at_us: int
    retracted_at_us: int | None


@dataclass(frozen=True, slots=True)
class NameLink:
    """A name by which a query may mean a concept."""

    name: str
    concept_id: str
    weight: float
    cased: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole graph, every tuple in a canonical order."""

    concepts: tuple[Concept, ...]
    mentions: tuple[Mention, ...]
    edges: tuple[Edge, ...]
    concept_edges: tuple[ConceptEdge, ...] = ()
    merges: tuple[Merge, ...] = ()
    supersessions: tuple[Supersession, ...] = ()
    links: tuple[NameLink, ...] = ()


_NOUNS: Mapping[str, type] = {
    "concepts": Concept,
    "mentions": Mention,
    "concept_edges": ConceptEdge,
    "edges": Edge,
    "merges": Merge,
    "supersessions": Supersession,
    "links": NameLink,
}


def to_graph(tables: GraphTables) -> Graph:
    """Return the graph as objects."""
    rows: dict[str, Any] = {name: tuple(rows_of(name, getattr(tables, name))) for name in FILES}
    return Graph(
        **rows,
    )


def rows_of(name: str, table: ArrowTable) -> list[Any]:
    """Return the rows of one table, a field of GraphTables, as objects."""
    noun = _NOUNS[name]
    return [noun(**_thaw(row)) for row in table.to_pylist()]


def to_tables(graph: Graph) -> GraphTables:
    """Return the tables of a graph of objects."""
    return GraphTables(
        **{name: to_table(name, getattr(graph, name)) for name in FILES},
    )


def _thaw(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of plain values with its nested nouns in place."""
    if "aliases" in row:
        return {**row, "aliases": tuple(row["aliases"])}
    evidence = row.get("evidence")
    if isinstance(evidence, list):
        return {**row, "evidence": tuple(Evidence(**item) for item in evidence)}
    return row if evidence is None else {**row, "evidence": Evidence(**evidence)}


def close_graph(graph: Graph, found: Iterable[Supersession]) -> Graph:
    """Return the graph with the intervals closed that the supersessions end."""
    return to_graph(close_intervals(to_tables(graph), tuple(found)))
