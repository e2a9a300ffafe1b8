"""Stage concept_graph.

Findings kept per memory, their sum kept up to date in the state, one graph out of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from noctuary.corpus.record_file import RecordFile
from noctuary.files import read_array, write_text
from noctuary.graph.build import Built, build_graph
from noctuary.graph.canonical import MergeRules
from noctuary.graph.extraction import EXTRACTOR_VERSION
from noctuary.graph.state.schema import STATE_VERSION
from noctuary.graph.state.state import GraphState
from noctuary.graph.state.sync import SyncReport
from noctuary.graph.tables import FILES, GraphTables, read_tables, write_tables
from noctuary.hashing import hash_file
from noctuary.night.concept_vectors import (
    CONCEPT_VECTORS,
    NameVectors,
    encoder_failed,
    write_concept_vectors,
)
from noctuary.night.context import GRAPH, GRAPH_STATE, MEMORIES, NEAR_MEMO, VECTORS, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.extractions import open_extractions
from noctuary.night.llm_triples import llm_inputs
from noctuary.night.name_search import NightSearch
from noctuary.night.told import told_inputs
from noctuary.night.vectors import MEMORY_VECTORS
from noctuary.work.stage import Stage, StageResult, load_result

CONCEPT_GRAPH = Stage(
    "concept_graph", "7", (*(f"{GRAPH}/{file}" for file in FILES.values()), CONCEPT_VECTORS)
)


class _Tonight(NamedTuple):
    """What was done for a graph, and what a language model told."""

    built: Built
    synced: SyncReport
    extracted: int
    names: NameVectors
    llm_facts: Mapping[str, Any]
    llm_notes: Mapping[str, Any]


def connect_memories(night: Night) -> StageResult:
    """Extract what each memory is about, names and states, and connect memories and concepts."""
    merges = night.paths.merges
    of_model = llm_inputs(night)
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "extractor": str(EXTRACTOR_VERSION),
        "state": STATE_VERSION,
        "merges": hash_file(merges) if merges.is_file() else "none",
        **of_model,
        **told_inputs(night),
    }
    notes: dict[str, Any] = {"memories_extracted": 0, "memories_touched": 0}

    def body() -> tuple[int, dict[str, Any]]:
        tonight = _build(night)
        write_tables(tonight.built.tables, night.work(GRAPH))
        write_concept_vectors(night, tonight.built.concept_vectors)
        notes.update(
            memories_extracted=tonight.extracted,
            memories_touched=tonight.synced.touched,
            memories_rematched=tonight.synced.rematched,
            names_changed=tonight.synced.changed_names,
            names_embedded=tonight.names.computed,
            **tonight.llm_notes,
        )
        facts = {**_facts(tonight.built), **tonight.names.to_facts(), **tonight.llm_facts}
        return tonight.built.tables.edges.num_rows, facts

    places = (night.work(GRAPH_STATE),)
    # With a model the stage runs every night: its endpoint may be back.
    failed = encoder_failed(load_result(night.paths.work, CONCEPT_GRAPH))
    again = bool(of_model) or failed
    result = night.run(CONCEPT_GRAPH, inputs, body, always=again, places=places)
    return night.finish(result.with_notes(**notes))


def load_tables(night: Night, names: Collection[str] = tuple(FILES)) -> GraphTables:
    """Read the graph that the stage wrote, or some tables of it, see `read_tables`."""
    return read_tables(night.work(GRAPH), names)


def linked_pairs(night: Night) -> list[tuple[int, int]]:
    """Return source and target of every edge of the graph that the stage wrote."""
    edges = load_tables(night, ["edges"]).edges
    return list(
        zip(edges["src_position"].to_pylist(), edges["dst_position"].to_pylist(), strict=True)
    )


def _build(night: Night) -> _Tonight:
    rules = MergeRules.read(night.paths.merges)
    records = RecordFile(night.work(MEMORIES))
    source = open_extractions(night, records)
    name_vectors = NameVectors(night)
    with GraphState.open(night.work(GRAPH_STATE), night.settings.runner.memory_mb) as state:
        synced = state.sync(records, source.keys, source.load, NightSearch(night))
        built = build_graph(
            state,
            records,
            rules=rules,
            vectors=read_array(night.work(VECTORS)),
            embed_names=name_vectors.embed,
            memo=name_vectors.read_memo(),
            near_memo=_read_near(night),
        )
    name_vectors.write_memo(built.memo)
    write_text(night.work(NEAR_MEMO), json.dumps(built.near_memo, sort_keys=True) + "\n")
    return _Tonight(built, synced, source.extracted, name_vectors, source.facts, source.notes)


def _read_near(night: Night) -> dict[str, list[str]] | None:
    """Return what is known of near duplicates; a file that is damaged is only a slower night."""
    try:
        known = json.loads(night.work(NEAR_MEMO).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) else None


def _facts(built: Built) -> dict[str, Any]:
    tables = built.tables
    return {
        **{name: getattr(tables, name).num_rows for name in FILES},
        "concepts_by_kind": _counts(tables, "concepts", "kind"),
        "mentions_by_role": _counts(tables, "mentions", "role"),
        "edges_by_relation": _counts(tables, "edges", "relation"),
        "concept_edges_by_relation": _counts(tables, "concept_edges", "relation"),
        "merges_by_reason": _counts(tables, "merges", "reason"),
        "merges_refused": dict(built.unmerged),
        "unknown_names_in_rules": len(built.unknown_names),
        "supersessions_by_reason": _counts(tables, "supersessions", "reason"),
        "supersessions_rejected": dict(built.rejected),
        "closed_edges": _closed(tables, "edges"),
        "closed_concept_edges": _closed(tables, "concept_edges"),
        "skipped_subjects": dict(tables.skipped_subjects),
        "declined_runs": dict(tables.declined_runs),
        "concept_vectors": len(built.concept_vectors),
    }


def _counts(tables: GraphTables, table: str, column: str) -> dict[str, int]:
    counted = Counter[str]()
    for item in getattr(tables, table)[column].value_counts().to_pylist():
        counted[item["values"]] += item["counts"]
    return dict(sorted(counted.items()))


def _closed(tables: GraphTables, table: str) -> int:
    column = getattr(tables, table)["valid_to_us"]
    return int(len(column) - column.null_count)
