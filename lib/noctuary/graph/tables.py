"""The nouns of the concept graph, and the graph as Arrow tables and Parquet files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import StoreError
from noctuary.core.files import replace_with

# The nouns of the concept graph. Frozen dataclasses only; no extraction, no matching, no files.


Role = Literal["about", "mentions", "author", "speaker"]
Relation = Literal[
    "mentions_subject", "mentions_tag", "next_turn", "previous_turn", "part_of", "see_also",
    "resolved_by",
]  # fmt: skip

StatedRelation = Literal[
    "supersedes", "depends_on", "part_of", "is_a", "is_now", "prefers", "works_at", "lives_in",
    "has", "owned_by", "resolved_by", "related_to",
]  # fmt: skip
"""What a text may state between two concepts: `subject relation object`. Only a store's own edges
(`noctuary.graph.llm`) are `related_to`: their relation has no word here."""

NO_SPAN = -1
"""`start` and `end` of what stands in no content: a mention in an author field, what a store tells
of its memories."""


@dataclass(frozen=True, slots=True)
class Concept:
    """Something that memories are about or name.

    Attributes:
        concept_id: 16 hex digits, a hash of the folded name (`noctuary.graph.fold.concept_id`).
        canonical_name: The most frequent surface form (ties: the smallest in code-point order).
        kind: The strongest kind that any memory gave it (`noctuary.graph.extract.KINDS`).
        aliases: The other surface forms, sorted.
        df: Number of memories in which it has any role, at least 1.
    """

    concept_id: str
    canonical_name: str
    kind: str
    aliases: tuple[str, ...]
    df: int


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a memory holds a concept: the evidence.

    Attributes:
        position: Position of the memory.
        concept_id: The concept.
        role: How the memory holds it.
        start: First character of the evidence in the content, or NO_SPAN for an author field.
        end: One past the last character, or NO_SPAN.
        surface: The text as it stands there; for an author field, the field's value.
    """

    position: int
    concept_id: str
    role: Role
    start: int
    end: int
    surface: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed, typed, dated step from one memory to another.

    Attributes:
        src_position: The memory the step starts from.
        dst_position: The memory it leads to, never the source itself.
        relation: Its type.
        weight: In (0, 1]; worth of the concept as a link / (number of memories with the subject),
            1 for adjacent turns and for links of the store.
        concept_id: The concept that the edge rests on (the session, for adjacent turns), "" for a
            link of the store.
        evidence_position: The memory that holds the evidence.
        evidence_start: First character of the evidence there, or NO_SPAN (session field, link).
        evidence_end: One past its last character, or NO_SPAN.
        valid_from_us: Microseconds; when the later of the two memories was created.
        valid_to_us: Exclusive end in microseconds, None while it holds.
        recorded_at_us: Microseconds; when the store last wrote the evidence memory. Taken from the
            data and not from the clock, so that a rebuild gives the same graph.
        retracted_at_us: When the store wrote what ended it, None while it holds.
    """

    src_position: int
    dst_position: int
    relation: Relation
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
class Evidence:
    """Where a memory states something.

    Attributes:
        position: The memory.
        start: First character in its content, or NO_SPAN.
        end: One past the last character, or NO_SPAN.
    """

    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ConceptEdge:
    """A relation between two concepts that memories state, contribution counted.

    Attributes:
        src_concept: The subject's concept_id.
        dst_concept: The object's concept_id, never the subject's.
        relation: Its type.
        weight: In (0, 1]: 1 - 1 / (1 + number of memories that state it).
        evidence: Every place that states it, by position and span, never empty; NO_SPAN where the
            memory's store says so and not its text.
        valid_from_us: When the earliest memory that states it was created.
        valid_to_us: Exclusive end, None while it holds.
        recorded_at_us: When the store last wrote the earliest memory that states it.
        retracted_at_us: When the store wrote what ended it, None while it holds.
    """

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
    """A name by which a query may mean a concept.

    Attributes:
        name: Folded.
        concept_id: The concept.
        weight: In [0, 1], what naming it gives each memory about it; 0 where it only speaks.
        cased: Whether the query must show a capital or a digit.
    """

    name: str
    concept_id: str
    weight: float
    cased: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """Two names that are one concept, and why.

    Attributes:
        name: Folded name that was merged away.
        canonical: Folded name that stands for it.
        reason: "alias", "minhash", "embedding" or "rule".
        score: Jaccard or cosine in [0, 1]; 1 for aliases and rules.
        detail: One short phrase for people: what was compared or which rule.
    """

    name: str
    canonical: str
    reason: str
    score: float
    detail: str


@dataclass(frozen=True, slots=True)
class Supersession:
    """A memory that a newer one replaces.

    Attributes:
        older_position: The memory that is out of date.
        newer_position: The direct successor.
        head_position: The newest of the chain; the successor itself where nothing replaced it.
        reason: "explicit", "is_now", "newer_value" or "near_duplicate".
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine of the two memories, or None where none was needed.
        age_gap_days: Whole days between the two, or 0 where a date is missing.
        concept_id: The subject on which both speak, or "" for near duplicates and explicit links.
        evidence: Where the newer memory says so.
        valid_to_us: When the older one stopped holding: creation of the newer.
        recorded_at_us: When the store wrote the newer.
    """

    older_position: int
    newer_position: int
    head_position: int
    reason: str
    confidence: int
    similarity: float | None
    age_gap_days: int
    concept_id: str
    evidence: Evidence
    valid_to_us: int
    recorded_at_us: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole graph, every tuple in a canonical order.

    Attributes:
        concepts: Sorted by concept_id; the index is the concept's ordinal.
        mentions: Sorted by position, start, end, role, concept_id.
        edges: Sorted by source, relation code, target.
        skipped_subjects: Names that were not matched in contents, counted by reason.
        declined_runs: Runs of text in scripts without spaces that were not segmented, by script.
        concept_edges: Sorted by source concept, relation, target concept.
        merges: Sorted by merged name.
        supersessions: Sorted by older position, newer position.
        links: Sorted by name.
    """

    concepts: tuple[Concept, ...]
    mentions: tuple[Mention, ...]
    edges: tuple[Edge, ...]
    skipped_subjects: Mapping[str, int]
    declined_runs: Mapping[str, int]
    concept_edges: tuple[ConceptEdge, ...] = ()
    merges: tuple[Merge, ...] = ()
    supersessions: tuple[Supersession, ...] = ()
    links: tuple[NameLink, ...] = ()


# The graph as Arrow tables and Parquet files; as objects where it is small.
#
# Build side; equal graphs give equal bytes. A million memories have some ten million rows: only
# `to_graph` and `to_tables` make an object of each.


FILES = {
    "concepts": "concepts.parquet",
    "mentions": "memory_concepts.parquet",
    "concept_edges": "concept_edges.parquet",
    "edges": "edges.parquet",
    "merges": "merges.parquet",
    "supersessions": "supersessions.parquet",
    "links": "links.parquet",
}
"""File of each table, by its field in GraphTables."""

NOUNS: Mapping[str, type] = {
    "concepts": Concept,
    "mentions": Mention,
    "concept_edges": ConceptEdge,
    "edges": Edge,
    "merges": Merge,
    "supersessions": Supersession,
    "links": NameLink,
}
"""What a row of each table is: its columns are the fields."""

ArrowTable = Any
"""A `pyarrow.Table`; pyarrow has no type information."""

ArrowColumn = Any
"""A `pyarrow.Array` or `pyarrow.ChunkedArray`."""

_SKIPPED = b"noctuary.skipped_subjects"
_DECLINED = b"noctuary.declined_runs"


@dataclass(frozen=True, slots=True)
class GraphTables:
    """A whole graph by columns, every table in the canonical order of `Graph`.

    Attributes:
        concepts: A row per Concept; the row is the concept's ordinal.
        mentions: A row per Mention.
        concept_edges: A row per ConceptEdge.
        edges: A row per Edge.
        merges: A row per Merge.
        supersessions: A row per Supersession.
        links: A row per NameLink.
        skipped_subjects: As in Graph.
        declined_runs: As in Graph.
    """

    concepts: ArrowTable
    mentions: ArrowTable
    concept_edges: ArrowTable
    edges: ArrowTable
    merges: ArrowTable
    supersessions: ArrowTable
    links: ArrowTable
    skipped_subjects: Mapping[str, int] = field(default_factory=dict[str, int])
    declined_runs: Mapping[str, int] = field(default_factory=dict[str, int])


def write_tables(tables: GraphTables, directory: Path) -> None:
    """Replace the files of a graph."""
    notes = {
        _SKIPPED: json.dumps(dict(tables.skipped_subjects), sort_keys=True).encode(),
        _DECLINED: json.dumps(dict(tables.declined_runs), sort_keys=True).encode(),
    }
    for name, file in FILES.items():
        table: ArrowTable = getattr(tables, name)
        told = notes if name == "concepts" else None
        _write(directory / file, table.replace_schema_metadata(told))


def read_tables(directory: Path, names: Collection[str] = tuple(FILES)) -> GraphTables:
    """Read the files of a graph.

    Args:
        directory: Where they are.
        names: Tables, fields of GraphTables; the others stay empty. At a million memories the edges
            and the mentions are half a gigabyte each.

    Raises:
        StoreError: If one is missing or damaged.
    """
    read = {
        name: _read(directory / file) if name in names else schema_of(name).empty_table()
        for name, file in FILES.items()
    }
    notes = read["concepts"].schema.metadata or {}
    return GraphTables(
        **{name: table.replace_schema_metadata(None) for name, table in read.items()},
        skipped_subjects=json.loads(notes.get(_SKIPPED, b"{}")),
        declined_runs=json.loads(notes.get(_DECLINED, b"{}")),
    )


def write_concept_vectors(path: Path, vectors: Mapping[str, NDArray[np.float32]]) -> None:
    """Replace the table of concept ids and their unit vectors, sorted; without any, remove it."""
    import pyarrow as pa

    if not vectors:
        path.unlink(missing_ok=True)
        return
    ids = sorted(vectors)
    columns = {
        "concept_id": pa.array(ids, pa.string()),
        "vector": pa.array([vectors[key] for key in ids], pa.list_(pa.float32())),
    }
    _write(path, pa.table(columns))


def to_graph(tables: GraphTables) -> Graph:
    """Return the graph as objects."""
    rows: dict[str, Any] = {name: tuple(rows_of(name, getattr(tables, name))) for name in FILES}
    return Graph(
        **rows,
        skipped_subjects=dict(tables.skipped_subjects),
        declined_runs=dict(tables.declined_runs),
    )


def rows_of(name: str, table: ArrowTable) -> list[Any]:
    """Return the rows of one table, a field of GraphTables, as objects."""
    noun = NOUNS[name]
    return [noun(**_thaw(row)) for row in table.to_pylist()]


def to_tables(graph: Graph) -> GraphTables:
    """Return the tables of a graph of objects."""
    return GraphTables(
        **{name: to_table(name, getattr(graph, name)) for name in FILES},
        skipped_subjects=dict(graph.skipped_subjects),
        declined_runs=dict(graph.declined_runs),
    )


def to_table(name: str, rows: Sequence[Any]) -> ArrowTable:
    """Return the objects of one table, a field of GraphTables, as its rows."""
    import pyarrow as pa

    return pa.Table.from_pylist([asdict(row) for row in rows], schema=schema_of(name))


def schema_of(name: str) -> Any:
    """Return the columns of one table, a field of GraphTables."""
    import pyarrow as pa

    evidence = pa.struct([(f.name, pa.int64()) for f in fields(Evidence)])
    by_annotation: dict[str, Any] = {
        "int": pa.int64(),
        "int | None": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "float | None": pa.float64(),
        "tuple[str, ...]": pa.list_(pa.string()),
        "Evidence": evidence,
        "tuple[Evidence, ...]": pa.list_(evidence),
    }
    return pa.schema(
        [(f.name, by_annotation.get(str(f.type), pa.string())) for f in fields(NOUNS[name])]
    )


def _thaw(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of plain values with its nested nouns in place."""
    if "aliases" in row:
        return {**row, "aliases": tuple(row["aliases"])}
    evidence = row.get("evidence")
    if isinstance(evidence, list):
        return {**row, "evidence": tuple(Evidence(**item) for item in evidence)}
    return row if evidence is None else {**row, "evidence": Evidence(**evidence)}


def _write(path: Path, table: ArrowTable) -> None:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_with(path, lambda tmp: pq.write_table(table, tmp, compression="zstd"))


def _read(path: Path) -> ArrowTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({type(error).__name__}): run the nightly job to rebuild it"
        ) from error
