"""The graph as Parquet tables: concepts, mentions, edges.

Build side; equal graphs give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from mnemon.errors import StoreError
from mnemon.files import replace_with
from mnemon.graph.model import Concept, Edge, Graph, Mention

_SKIPPED = b"mnemon.skipped_subjects"
_DECLINED = b"mnemon.declined_runs"


def write_graph(graph: Graph, concepts: Path, mentions: Path, edges: Path) -> None:
    """Replace the three tables; rows keep the graph's canonical order."""
    notes = {
        _SKIPPED: json.dumps(dict(graph.skipped_subjects), sort_keys=True).encode(),
        _DECLINED: json.dumps(dict(graph.declined_runs), sort_keys=True).encode(),
    }
    _write(concepts, Concept, graph.concepts, notes)
    _write(mentions, Mention, graph.mentions, {})
    _write(edges, Edge, graph.edges, {})


def read_graph(concepts: Path, mentions: Path, edges: Path) -> Graph:
    """Read the three tables.

    Raises:
        StoreError: If one is missing or damaged.
    """
    table = _read(concepts)
    notes = table.schema.metadata or {}
    return Graph(
        concepts=tuple(Concept(**_with_tuple(r)) for r in table.to_pylist()),
        mentions=tuple(Mention(**row) for row in _read(mentions).to_pylist()),
        edges=tuple(Edge(**row) for row in _read(edges).to_pylist()),
        skipped_subjects=json.loads(notes.get(_SKIPPED, b"{}")),
        declined_runs=json.loads(notes.get(_DECLINED, b"{}")),
    )


def _with_tuple(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "aliases": tuple(row["aliases"])}


def _schema(noun: type) -> Any:
    import pyarrow as pa

    by_annotation = {
        "int": pa.int64(),
        "int | None": pa.int64(),
        "float": pa.float64(),
        "tuple[str, ...]": pa.list_(pa.string()),
    }
    return pa.schema([(f.name, by_annotation.get(str(f.type), pa.string())) for f in fields(noun)])


def _write(path: Path, noun: type, rows: Sequence[Any], notes: dict[bytes, bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(noun)
    columns = list(zip(*(astuple(r) for r in rows), strict=True)) or [[] for _ in schema]
    arrays = [
        pa.array(list(values), type=field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=schema.with_metadata(notes or None))
    replace_with(path, lambda tmp: pq.write_table(table, tmp, compression="zstd"))


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({type(error).__name__}): run the nightly job to rebuild it"
        ) from error
