"""Group graph: concepts, where memories hold them, what joins them, and what is out of date."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from noctuary.core.files import hash_file, read_array
from noctuary.core.types import MemoryRecord
from noctuary.embed.documents import Backend, text_key, vector_kind
from noctuary.graph.build import (
    Built,
    Extractions,
    Extractor,
    build_graph,
)
from noctuary.graph.canonical import MergeRules
from noctuary.graph.extract import EXTRACTION_KIND, EXTRACTOR_VERSION, ExtractMemories
from noctuary.graph.llm import TRIPLES_KIND, extend_extractions, llm_inputs
from noctuary.graph.state import STATE_VERSION, GraphState
from noctuary.graph.tables import FILES, ArrowTable, GraphTables, read_tables, write_tables
from noctuary.sources.corpus import RecordFile
from noctuary.work.stage import Stage, StageOutput, StageResult, load_result
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import CORPUS, read_told, told_inputs
from noctuary_assets.night import GRAPH, GRAPH_STATE, MEMORIES, VECTORS, Night
from noctuary_assets.reporting import Workers, judge, report_stage

if TYPE_CHECKING:
    import polars as pl

# Findings kept per memory, their sum kept up to date in the state, one graph out of it.

CONCEPT_GRAPH = Stage("concept_graph", "8", tuple(f"{GRAPH}/{file}" for file in FILES.values()))


_NO_ENCODER = "names_not_embedded"  # fact of a graph whose names another night may embed


def connect_memories(night: Night) -> StageResult:
    """Extract what each memory is about, names and states, and connect memories and concepts."""
    merges = night.paths.merges
    of_model = llm_inputs(night.settings.graph)
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "extractor": str(EXTRACTOR_VERSION),
        "state": STATE_VERSION,
        "merges": hash_file(merges) if merges.is_file() else "none",
        **of_model,
        **told_inputs(night),
    }
    places = (night.work(GRAPH_STATE),)
    # With a model the stage runs every night: its endpoint may be back.
    last = load_result(night.paths.work, CONCEPT_GRAPH)
    again = bool(of_model) or (last is not None and _NO_ENCODER in last.facts)
    body = partial(_build, night)
    return night.finish(night.run(CONCEPT_GRAPH, inputs, body, always=again, places=places))


def _build(night: Night) -> StageOutput:
    rules = MergeRules.read(night.paths.merges)
    records = RecordFile(night.work(MEMORIES))
    found = open_extractions(night, records)
    backend = _backend(night)
    encode = (
        None if backend is None else partial(night.encoder.embed, backend, task="concept_vectors")
    )
    with GraphState.open(night.work(GRAPH_STATE), night.settings.runner.memory_mb) as state:
        synced = state.sync(records, found.keys, found.load)
        built = build_graph(
            state,
            records,
            rules=rules,
            vectors=read_array(night.work(VECTORS)),
            encode=encode,
        )
    keys = list(map(text_key, built.embedded_names))
    night.content(names_kind(night)).replace(keys, [b""] * len(keys))
    write_tables(built.tables, night.work(GRAPH))
    notes = {
        "memories_extracted": found.extracted,
        "memories_touched": synced.touched,
        "memories_rematched": synced.rematched,
        "names_changed": synced.changed_names,
        "names_embedded": built.names_computed,
        **found.notes,
    }
    facts = {**_graph_facts(built), **found.facts}
    return StageOutput(built.tables.edges.num_rows, facts, notes)


def _graph_facts(built: Built) -> dict[str, Any]:
    """Return the rows of each table, and what they are of."""
    tables = built.tables
    counted = {
        "concepts_by_kind": (tables.concepts, "kind"),
        "mentions_by_role": (tables.mentions, "role"),
        "edges_by_relation": (tables.edges, "relation"),
        "concept_edges_by_relation": (tables.concept_edges, "relation"),
        "merges_by_reason": (tables.merges, "reason"),
        "supersessions_by_reason": (tables.supersessions, "reason"),
    }
    counts = {
        name: dict(_columns(table, column).group_by(column).len().sort(column).iter_rows())
        for name, (table, column) in counted.items()
    }
    closed = {
        f"closed_{name}": table.num_rows - int(table["valid_to_us"].null_count)
        for name, table in (("edges", tables.edges), ("concept_edges", tables.concept_edges))
    }
    return {
        **{name: getattr(tables, name).num_rows for name in FILES},
        **counts,
        **closed,
        "merges_refused": dict(built.unmerged),
        "unknown_names_in_rules": len(built.unknown_names),
        "supersessions_rejected": dict(built.rejected),
        **({_NO_ENCODER: built.encoder_failure} if built.encoder_failure else {}),
    }


def open_extractor(night: Night) -> Extractor:
    """Return who extracts tonight."""
    store, shards = night.content(EXTRACTION_KIND), night.shards(ExtractMemories().name)
    return Extractor(store, night.runner, shards, night.progress)


def open_extractions(night: Night, records: Sequence[MemoryRecord]) -> Extractions:
    """Return the extractions of tonight's memories, with a model's where one is configured."""
    extractor, told, settings = open_extractor(night), read_told(night), night.settings.graph
    answers = night.content(TRIPLES_KIND)
    extend = partial(extend_extractions, settings, answers, progress=night.progress)
    return Extractions(extractor, records, told, extend if settings.extractor == "llm" else None)


def names_kind(night: Night) -> str:
    """Return the kind of what is known of embedded names, by encoder."""
    backend = _backend(night)
    vectors = "" if backend is None else vector_kind(night.encoder.fingerprint, backend.tag)
    return f"embedded_names:1:{vectors}"


def _backend(night: Night) -> Backend | None:
    """Return what made the memory vectors; None where no encoder of this project did."""
    facts = night.result_of(MEMORY_VECTORS).facts
    return Backend.from_facts(facts) if "face" in facts else None


def load_tables(night: Night, names: Collection[str] = tuple(FILES)) -> GraphTables:
    """Read the graph that the stage wrote, or some tables of it, see `read_tables`."""
    return read_tables(night.work(GRAPH), names)


# By asset: its table, and the columns of the sample, none of which holds text.
_TABLES = {
    "concepts": ("concepts", ("concept_id", "kind", "df")),
    "memory_concepts": ("mentions", ("position", "concept_id", "role", "start", "end")),
    "concept_edges": ("concept_edges", ("src_concept", "relation", "dst_concept", "weight")),
    "edges": ("edges", ("src_position", "dst_position", "relation", "weight", "evidence_position")),
    "supersessions": (
        "supersessions",
        ("older_position", "newer_position", "reason", "confidence", "age_gap_days"),
    ),
}
_DESCRIPTIONS = {
    "concepts": "Subjects and names in the memories, with the names of one concept merged.",
    "memory_concepts": "Where a memory holds a concept: role and evidence span.",
    "concept_edges": "Statements of memories about two concepts, each counted and dated.",
    "edges": "Typed, directed, dated steps from memory to memory, each with its evidence.",
    "supersessions": "Memories that a newer one replaces, with the reason and the newest version.",
}


def _spec(key: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=["memories", "memory_vectors"],
        kinds={"parquet"},
        description=_DESCRIPTIONS[key],
        code_version=CONCEPT_GRAPH.version,
    )


concepts, memory_concepts, concept_edges, edges, supersessions = map(_spec, _TABLES)

_CHECKS = {
    "every_edge_names_its_evidence": (
        "edges",
        "Every edge has a memory as evidence and an existing concept.",
    ),
    "every_statement_joins_two_concepts": (
        "concept_edges",
        "Both ends of every statement are concepts that exist.",
    ),
    "every_successor_chain_ends": (
        "supersessions",
        "No memory replaces the newest one of a chain.",
    ),
}


@dg.multi_asset(
    name="concept_graph",
    specs=[concepts, memory_concepts, concept_edges, edges, supersessions],
    check_specs=[
        dg.AssetCheckSpec(name, asset=key, description=said, blocking=True)
        for name, (key, said) in _CHECKS.items()
    ],
)
def concept_graph(night: dg.ResourceParam[Night], workers: Workers) -> Iterator[Any]:
    """Extract and connect, deterministically and without a model."""
    result = connect_memories(night)
    # Mentions, ten million rows at a million memories, are only counted here.
    tables = load_tables(night, set(FILES) - {"mentions"})
    # Dagster hears of no name: what it recorded would outlive a forgetting (`noctuary graph` shows
    # them).
    for key, (table, columns) in _TABLES.items():
        yield report_stage(
            night,
            result,
            asset_key=key,
            rows=result.facts[table],
            table=f"{GRAPH}/{FILES[table]}",
            columns=columns,
        )
    for name, (faulty, fault) in _faults(tables).items():
        key, wrong = _CHECKS[name][0], int(faulty.sum())
        found = {key: len(faulty), fault: wrong}
        yield judge(night, CONCEPT_GRAPH, wrong == 0, found, asset_key=key, check_name=name)


def _faults(tables: GraphTables) -> dict[str, tuple[pl.Series, str]]:
    """Return by check which rows break it, and what to call them."""
    known = _columns(tables.concepts, "concept_id").to_series()
    edges = _columns(tables.edges, "concept_id", "evidence_position")
    stated = _columns(tables.concept_edges, "src_concept", "dst_concept")
    chains = _columns(tables.supersessions, "older_position", "head_position")
    # A link that the store itself tells of names no concept.
    unknown = (edges["concept_id"] != "") & ~edges["concept_id"].is_in(known.implode())
    without = unknown | (edges["evidence_position"] < 0)
    ends = ~(
        stated["src_concept"].is_in(known.implode()) & stated["dst_concept"].is_in(known.implode())
    )
    open_ended = chains["head_position"].is_in(chains["older_position"].implode())
    return {
        "every_edge_names_its_evidence": (without, "without_evidence"),
        "every_statement_joins_two_concepts": (ends, "dangling"),
        "every_successor_chain_ends": (open_ended, "without_head"),
    }


def _columns(table: ArrowTable, *names: str) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(table.select(list(names)))
