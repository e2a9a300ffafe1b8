"""Group graph: concepts, where they are mentioned, and the edges between memories that follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from mnemon.night.context import CONCEPTS, EDGES, MENTIONS, Night
from mnemon.night.graph import CONCEPT_GRAPH, connect_memories, load_graph

GROUP = "graph"


def _spec(key: str, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=["memories"],
        group_name=GROUP,
        kinds={"parquet"},
        owners=OWNERS,
        description=description,
        code_version=CONCEPT_GRAPH.version,
    )


@dg.multi_asset(
    name="concept_graph",
    specs=[
        _spec("concepts", "What memories are about or name, folded to one canonical name each."),
        _spec("mentions", "Where a memory holds a concept: role and evidence span."),
        _spec(
            "edges", "Typed, directed, dated steps from memory to memory, each with its evidence."
        ),
    ],
    check_specs=[dg.AssetCheckSpec("every_edge_names_its_evidence", asset="edges")],
)
def concept_graph(night: dg.ResourceParam[Night]) -> Iterator[Any]:
    """Extract and connect, deterministically and without a model."""
    result = connect_memories(night)
    facts = result.facts
    tables = (
        ("concepts", CONCEPTS, ("concept_id", "kind", "df")),
        ("mentions", MENTIONS, ("position", "concept_id", "role", "start", "end")),
        (
            "edges",
            EDGES,
            ("src_position", "dst_position", "relation", "weight", "evidence_position"),
        ),
    )
    for key, table, columns in tables:
        yield report_stage(
            night, result, asset_key=key, rows=facts[key], table=table, columns=columns
        )
    graph = load_graph(night)
    known = {c.concept_id for c in graph.concepts}
    without = sum(e.concept_id not in known or e.evidence_position < 0 for e in graph.edges)
    yield dg.AssetCheckResult(
        asset_key="edges",
        check_name="every_edge_names_its_evidence",
        passed=without == 0,
        metadata={"edges": len(graph.edges), "without_evidence": without},
    )
