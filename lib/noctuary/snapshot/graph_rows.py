"""The graph's tables as rows of the serving pack's SQLite file. No schema, no writing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.pack import concept_ordinals
from noctuary.graph.tables import ArrowTable, GraphTables

_BATCH_ROWS = 20_000
"""Rows that are Python objects at once."""

Rows = Sequence[tuple[Any, ...]]


def graph_rows(graph: GraphTables) -> Iterator[tuple[str, Rows]]:
    """Yield batches of rows by table, each table's in primary-key order."""
    for first, batch in _batches(graph.concepts):
        yield "concepts", [_concept_row(first + i, row) for i, row in enumerate(batch)]
    yield "concept_names", concept_names(graph)
    yield from _concept_edges(graph)
    yield "supersessions", _supersessions(graph)
    links = _links(graph)
    yield "links", links
    yield "link_starts", _link_starts(links)
    yield "merges", [tuple(row.values()) for row in graph.merges.to_pylist()]


def concept_names(graph: GraphTables) -> list[tuple[str, int]]:
    """Return (folded name, ordinal) of every name of every concept, sorted."""
    names: set[tuple[str, int]] = set()
    for first, batch in _batches(graph.concepts.select(["canonical_name", "aliases"])):
        for ordinal, row in enumerate(batch, start=first):
            for surface in (row["canonical_name"], *row["aliases"]):
                names.add((fold_name(surface), ordinal))
    merges = graph.merges.to_pylist()
    known = dict(_ids(graph, [row["canonical"] for row in merges]))
    for row in merges:
        names.update((name, known[row["canonical"]]) for name in (row["name"], row["canonical"]))
    return sorted(names)


def _links(graph: GraphTables) -> list[tuple[Any, ...]]:
    ordinals = concept_ordinals(graph.concepts, graph.links["concept_id"]).tolist()
    return [
        (row["name"], ordinal, row["weight"], int(row["cased"]))
        for row, ordinal in zip(graph.links.to_pylist(), ordinals, strict=True)
    ]


def _link_starts(links: Rows) -> list[tuple[str, int]]:
    """Return, by first word, the words of the longest name that begins with it."""
    longest: dict[str, int] = {}
    for name, *_ in links:
        words = name.split(" ")
        longest[words[0]] = max(longest.get(words[0], 0), len(words))
    return sorted(longest.items())


def _ids(graph: GraphTables, canonical: Sequence[str]) -> Iterator[tuple[str, int]]:
    import pyarrow as pa

    ids = pa.chunked_array([pa.array([concept_id(name) for name in canonical], pa.string())])
    yield from zip(canonical, concept_ordinals(graph.concepts, ids).tolist(), strict=True)


def _concept_row(ordinal: int, row: dict[str, Any]) -> tuple[Any, ...]:
    aliases = json.dumps(row["aliases"], ensure_ascii=False)
    return (ordinal, row["concept_id"], row["canonical_name"], row["kind"], aliases, row["df"])


def _concept_edges(graph: GraphTables) -> Iterator[tuple[str, Rows]]:
    ends = [
        concept_ordinals(graph.concepts, graph.concept_edges[end]).tolist()
        for end in ("src_concept", "dst_concept")
    ]
    for first, batch in _batches(graph.concept_edges):
        yield (
            "concept_edges",
            [(ends[0][i], ends[1][i], *_stated(row)) for i, row in enumerate(batch, start=first)],
        )


def _stated(row: dict[str, Any]) -> tuple[Any, ...]:
    evidence = [[item["position"], item["start"], item["end"]] for item in row["evidence"]]
    dates = ("valid_from_us", "valid_to_us", "recorded_at_us", "retracted_at_us")
    text = json.dumps(evidence, separators=(",", ":"))
    return (row["relation"], row["weight"], text, *(row[name] for name in dates))


def _supersessions(graph: GraphTables) -> Rows:
    import pyarrow as pa

    rows = graph.supersessions.to_pylist()
    ids = sorted({row["concept_id"] for row in rows} - {""})
    column = pa.chunked_array([pa.array(ids, pa.string())])
    known = dict(zip(ids, concept_ordinals(graph.concepts, column).tolist(), strict=True))
    return [
        (
            row["older_position"], row["newer_position"], row["head_position"], row["reason"],
            row["confidence"], row["similarity"], row["age_gap_days"], known.get(row["concept_id"]),
            *row["evidence"].values(), row["valid_to_us"], row["recorded_at_us"],
        )
        for row in rows
    ]  # fmt: skip


def _batches(table: ArrowTable) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    for first in range(0, table.num_rows, _BATCH_ROWS):
        yield first, table.slice(first, _BATCH_ROWS).to_pylist()
