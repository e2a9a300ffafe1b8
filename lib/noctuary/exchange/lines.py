"""A snapshot as JSON lines: memories as a source reads them, the graph as nodes and edges.

What belongs here: the four files. What does not: the exact form that an import reads (`columns`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noctuary.exchange.export_format import EDGES, MEMORIES, NODES, SUMMARIES
from noctuary.sql import snapshot_rows
from noctuary.sql.schema import find_table
from noctuary.sql.view import Rows, SnapshotView

_IN_EDGES: Mapping[str, Callable[[SnapshotView], Rows]] = {
    "mentions": snapshot_rows.mentions,
    "edges": snapshot_rows.edges,
    "concept_edges": snapshot_rows.concept_edges,
    "supersessions": snapshot_rows.supersessions,
    "summary_sources": snapshot_rows.summary_sources,
}
KINDS = ("mention", "edge", "concept_edge", "supersession", "summary_source")
"""In edges.jsonl, by table."""

Line = Mapping[str, Any]


def write_lines(view: SnapshotView, directory: Path) -> None:
    """Write the four files of JSON lines below a directory."""
    _write(directory / MEMORIES, memory_lines(view))
    _write(directory / NODES, _objects("concepts", snapshot_rows.concepts(view)))
    _write(directory / EDGES, _edge_lines(view))
    _write(directory / SUMMARIES, _objects("summaries", snapshot_rows.summaries(view)))


def memory_lines(view: SnapshotView) -> Iterator[Line]:
    """Yield the memories as a JSON lines source has them (docs/formats.md); null is left out."""
    is_number = view.manifest.id_kind == "int"
    for memory in _objects("memories", snapshot_rows.memories(view)):
        values = {k: v for k, v in memory.items() if v is not None and k != "position"}
        memory_id = values.pop("memory_id")
        yield {"id": int(memory_id) if is_number else memory_id, **values}


def _edge_lines(view: SnapshotView) -> Iterator[Line]:
    for kind, (table, rows) in zip(KINDS, _IN_EDGES.items(), strict=True):
        for values in _objects(table, rows(view)):
            yield {"kind": kind, **values}


def _objects(table: str, rows: Rows) -> Iterator[dict[str, Any]]:
    names = [column.name for column in find_table(table).columns]
    for batch in rows:
        for row in batch:
            yield dict(zip(names, row, strict=True))


def _write(path: Path, lines: Iterable[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        for line in lines:
            handle.write(json.dumps(line, ensure_ascii=False, default=_moment) + "\n")


def _moment(value: object) -> str:
    assert isinstance(value, datetime)
    return value.replace(tzinfo=UTC).isoformat()
