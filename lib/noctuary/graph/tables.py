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
    """Something that memories are about or name."""

    concept_id: str  # 16 hex digits, a hash of the folded name (`noctuary.graph.fold.concept_id`)
    canonical_name: str  # the most frequent surface form (ties: the smallest in code-point order)
    kind: str  # the strongest kind that any memory gave it (`noctuary.graph.extract.KINDS`)
    aliases: tuple[str, ...]  # the other surface forms, sorted
    df: int


@dataclass(frozen=True, slots=True)
class Mention:
    """One place where a memory holds a concept: the evidence."""

    position: int
    concept_id: str
    role: Role
    start: int  # first character of the evidence in the content, or NO_SPAN for an author field
    end: int  # one past the last character, or NO_SPAN
    surface: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed, typed, dated step from one memory to another."""

    src_position: int
    dst_position: int  # the memory it leads to, never the source itself
    relation: Relation
    # in (0, 1]; worth of the concept as a link / (number of memories with the subject), 1 for
    # adjacent turns and for links of the store
    weight: float
    # the concept that the edge rests on (the session, for adjacent turns), "" for a link of the
    # store
    concept_id: str
    evidence_position: int
    evidence_start: int  # first character of the evidence there, or NO_SPAN (session field, link)
    evidence_end: int  # one past its last character, or NO_SPAN
    valid_from_us: int  # microseconds; when the later of the two memories was created
    valid_to_us: int | None  # exclusive end in microseconds, None while it holds
    # microseconds; when the store last wrote the evidence memory. Taken from the data and not from
    # the clock, so that a rebuild gives the same graph
    recorded_at_us: int
    retracted_at_us: int | None = None  # when the store wrote what ended it, None while it holds

    def holds_at(self, as_of_us: int) -> bool:
        """Say whether the edge is valid at a moment (from inclusive, to exclusive)."""
        if as_of_us < self.valid_from_us:
            return False
        return self.valid_to_us is None or as_of_us < self.valid_to_us


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a memory states something."""

    position: int
    start: int  # first character in its content, or NO_SPAN
    end: int  # one past the last character, or NO_SPAN


@dataclass(frozen=True, slots=True)
class ConceptEdge:
    """A relation between two concepts that memories state, contribution counted."""

    src_concept: str
    dst_concept: str  # the object's concept_id, never the subject's
    relation: StatedRelation
    weight: float  # in (0, 1]: 1 - 1 / (1 + number of memories that state it)
    # every place that states it, by position and span, never empty; NO_SPAN where the memory's
    # store says so and not its text
    evidence: tuple[Evidence, ...]
    valid_from_us: int
    valid_to_us: int | None  # exclusive end, None while it holds
    recorded_at_us: int
    retracted_at_us: int | None  # when the store wrote what ended it, None while it holds


@dataclass(frozen=True, slots=True)
class NameLink:
    """A name by which a query may mean a concept."""

    name: str  # folded
    concept_id: str
    weight: float  # in [0, 1], what naming it gives each memory about it; 0 where it only speaks
    cased: bool


@dataclass(frozen=True, slots=True)
class Merge:
    """Two names that are one concept, and why."""

    name: str  # folded name that was merged away
    canonical: str  # folded name that stands for it
    reason: str  # "alias", "minhash", "embedding" or "rule"
    score: float  # jaccard or cosine in [0, 1]; 1 for aliases and rules
    detail: str


@dataclass(frozen=True, slots=True)
class Supersession:
    """A memory that a newer one replaces."""

    older_position: int
    newer_position: int
    head_position: int
    reason: str  # "explicit", "is_now", "newer_value" or "near_duplicate"
    confidence: int
    similarity: float | None  # cosine of the two memories, or None where none was needed
    age_gap_days: int
    concept_id: str  # the subject on which both speak, or "" for near duplicates and explicit links
    evidence: Evidence
    valid_to_us: int
    recorded_at_us: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole graph, every tuple in a canonical order."""

    concepts: tuple[Concept, ...]  # sorted by concept_id; the index is the concept's ordinal
    mentions: tuple[Mention, ...]  # sorted by position, start, end, role, concept_id
    edges: tuple[Edge, ...]  # sorted by source, relation code, target
    # names that were not matched in contents, counted by reason
    skipped_subjects: Mapping[str, int]
    # runs of text in scripts without spaces that were not segmented, by script
    declined_runs: Mapping[str, int]
    # sorted by source concept, relation, target concept
    concept_edges: tuple[ConceptEdge, ...] = ()
    merges: tuple[Merge, ...] = ()  # sorted by merged name
    supersessions: tuple[Supersession, ...] = ()  # sorted by older position, newer position
    links: tuple[NameLink, ...] = ()  # sorted by name


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
    """A whole graph by columns, every table in the canonical order of `Graph`."""

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
