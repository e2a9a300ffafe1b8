"""The graph as Arrow tables and Parquet files; as objects where it is small.

Build side; equal graphs give equal bytes. A million memories have some ten million rows: only
`to_graph` and `to_tables` make an object of each.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from noctuary.errors import StoreError
from noctuary.files import replace_with
from noctuary.graph.model import (
    Concept,
    ConceptEdge,
    Edge,
    Evidence,
    Graph,
    Mention,
    Merge,
    NameLink,
    Supersession,
)

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
