"""Group graph: concepts, where memories hold them, what joins them, and what is out of date."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg
import numpy as np

from assets.reporting import OWNERS, report_stage
from assets.workers import Workers
from noctuary.graph.build import sample_merges, top_concepts
from noctuary.graph.tables import FILES, GraphTables
from noctuary.night.context import GRAPH, Night
from noctuary.night.graph import CONCEPT_GRAPH, connect_memories, load_tables
from noctuary.work.fragments import arrow_compute

GROUP = "graph"

# By asset: its table, and the columns of the sample, none of which holds text.
_TABLES = {
    "concepts": ("concepts", ("concept_id", "kind", "df")),
    "memory_concepts": ("mentions", ("position", "concept_id", "role", "start", "end")),
    "concept_edges": ("concept_edges", ("src_concept", "relation", "dst_concept", "weight")),
    "edges": (
        "edges",
        ("src_position", "dst_position", "relation", "weight", "evidence_position"),
    ),
    "supersessions": (
        "supersessions",
        ("older_position", "newer_position", "reason", "confidence", "age_gap_days"),
    ),
}
_DESCRIPTIONS = {
    "concepts": "What memories are about or name, many names merged into one concept each.",
    "memory_concepts": "Where a memory holds a concept: role and evidence span.",
    "concept_edges": "What memories state between two concepts, every place counted and dated.",
    "edges": "Typed, directed, dated steps from memory to memory, each with its evidence.",
    "supersessions": "Memories that a newer one replaces, with the reason and the newest of all.",
}


def _spec(key: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=["memories", "memory_vectors"],
        group_name=GROUP,
        kinds={"parquet"},
        owners=OWNERS,
        description=_DESCRIPTIONS[key],
        code_version=CONCEPT_GRAPH.version,
    )


@dg.multi_asset(
    name="concept_graph",
    specs=[_spec(key) for key in _TABLES],
    check_specs=[
        dg.AssetCheckSpec("every_edge_names_its_evidence", asset="edges"),
        dg.AssetCheckSpec("every_statement_joins_two_concepts", asset="concept_edges"),
        dg.AssetCheckSpec("every_successor_chain_ends", asset="supersessions"),
    ],
)
def concept_graph(night: dg.ResourceParam[Night], workers: Workers) -> Iterator[Any]:
    """Extract and connect, deterministically and without a model."""
    result = connect_memories(night)
    # Mentions, ten million rows at a million memories, are only counted here.
    tables = load_tables(night, set(FILES) - {"mentions"})
    for key, (table, columns) in _TABLES.items():
        yield report_stage(
            night,
            result,
            asset_key=key,
            rows=result.facts[table],
            table=f"{GRAPH}/{FILES[table]}",
            columns=columns,
            pages=_at_a_glance(tables) if key == "concepts" else None,
        )
    yield from _checks(tables)


def _at_a_glance(tables: GraphTables) -> dict[str, str]:
    return {"top_concepts": top_concepts(tables), "merge_decisions": sample_merges(tables)}


def _checks(tables: GraphTables) -> Iterator[dg.AssetCheckResult]:
    edges, stated, chains = tables.edges, tables.concept_edges, tables.supersessions
    unknown = _unknown(tables, edges["concept_id"])
    without = unknown | (edges["evidence_position"].to_numpy() < 0)
    yield _check("edges", "every_edge_names_its_evidence", without, "without_evidence")
    ends = _unknown(tables, stated["src_concept"]) | _unknown(tables, stated["dst_concept"])
    yield _check("concept_edges", "every_statement_joins_two_concepts", ends, "dangling")
    older = set(chains["older_position"].to_pylist())
    open_ended = np.isin(chains["head_position"].to_numpy(), sorted(older))
    yield _check("supersessions", "every_successor_chain_ends", open_ended, "without_head")


def _unknown(tables: GraphTables, ids: Any) -> Any:
    """Say of every id whether no concept has it."""
    known = tables.concepts["concept_id"].combine_chunks()
    return arrow_compute().index_in(ids, value_set=known).is_null().to_numpy()


def _check(asset: str, name: str, faulty: Any, fault: str) -> dg.AssetCheckResult:
    wrong = int(faulty.sum())
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=wrong == 0,
        metadata={asset: len(faulty), fault: wrong},
    )
