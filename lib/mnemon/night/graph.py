"""Stage concept_graph.

Findings memoised per memory, their sum kept up to date in the state, one graph out of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mnemon.corpus.export import read_records
from mnemon.files import read_array, write_text
from mnemon.graph.build import Built, build_graph
from mnemon.graph.canonical import MergeRules
from mnemon.graph.extract import extract
from mnemon.graph.extraction import EXTRACTOR_VERSION, Extraction
from mnemon.graph.plugins.merge import merge_extractions
from mnemon.graph.state.schema import STATE_VERSION
from mnemon.graph.state.state import GraphState
from mnemon.graph.state.sync import SyncReport
from mnemon.graph.tables import FILES, GraphTables, read_tables, write_tables
from mnemon.hashing import hash_file, hash_text
from mnemon.night.concept_vectors import (
    CONCEPT_VECTORS,
    NameVectors,
    encoder_failed,
    write_concept_vectors,
)
from mnemon.night.context import GRAPH, GRAPH_STATE, MEMORIES, NEAR_MEMO, VECTORS, Night
from mnemon.night.corpus import CORPUS
from mnemon.night.graph_plugins import asks_every_night, extend_extractions, plugin_inputs
from mnemon.night.told import read_told, told_inputs
from mnemon.night.vectors import MEMORY_VECTORS
from mnemon.types import MemoryRecord
from mnemon.work.memo import Memo
from mnemon.work.stage import Stage, StageResult, load_result

CONCEPT_GRAPH = Stage(
    "concept_graph", "6", (*(f"{GRAPH}/{file}" for file in FILES.values()), CONCEPT_VECTORS)
)
EXTRACTION_KIND = f"extraction:{EXTRACTOR_VERSION}"


class _Tonight(NamedTuple):
    """What was done for a graph, and what a plug-in told."""

    built: Built
    synced: SyncReport
    extracted: int
    names: NameVectors
    plugin_facts: Mapping[str, Any]
    plugin_notes: Mapping[str, Any]


def extraction_key(record: MemoryRecord) -> str:
    """Return the memo key of a memory's findings: a hash of the fields that are read."""
    kind = "turn" if record.is_turn else "memory"
    return hash_text(record.content, record.category, record.tags, record.expanded_keywords, kind)


def connect_memories(night: Night) -> StageResult:
    """Extract what each memory is about, names and states, and connect memories and concepts."""
    merges = night.paths.merges
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "extractor": str(EXTRACTOR_VERSION),
        "state": STATE_VERSION,
        "merges": hash_file(merges) if merges.is_file() else "none",
        **plugin_inputs(night),
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
            **tonight.plugin_notes,
        )
        facts = {**_facts(tonight.built), **tonight.names.to_facts(), **tonight.plugin_facts}
        return tonight.built.tables.edges.num_rows, facts

    places = (night.work(GRAPH_STATE),)
    again = asks_every_night(night) or encoder_failed(load_result(night.paths.work, CONCEPT_GRAPH))
    result = night.run(CONCEPT_GRAPH, inputs, body, always=again, places=places)
    return night.finish(result.with_notes(**notes))


def load_tables(night: Night) -> GraphTables:
    """Read the graph that the stage wrote."""
    return read_tables(night.work(GRAPH))


def linked_pairs(night: Night) -> list[tuple[int, int]]:
    """Return source and target of every edge of the graph that the stage wrote."""
    edges = load_tables(night).edges
    return list(
        zip(edges["src_position"].to_pylist(), edges["dst_position"].to_pylist(), strict=True)
    )


def _build(night: Night) -> _Tonight:
    rules = MergeRules.read(night.paths.merges)
    records = read_records(night.work(MEMORIES))
    source = _open_source(night, records)
    name_vectors = NameVectors(night)
    with GraphState.open(night.work(GRAPH_STATE)) as state:
        synced = state.sync(records, source.keys, source.load)
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


class _Extractions:
    """Extractions of tonight's memories on demand, from the memo or made anew.

    What the store tells of a memory is added to what its text gave, and is part of its key.
    """

    def __init__(self, night: Night, records: Sequence[MemoryRecord]) -> None:
        self._text_keys = [extraction_key(r) for r in records]
        told = read_told(night)
        self._told = {r.position: told[r.memory_id] for r in records if r.memory_id in told}
        self.keys: list[str] = [
            hash_text(key, _encode(self._told[p]).decode("utf-8")) if p in self._told else key
            for p, key in enumerate(self._text_keys)
        ]
        self.extracted = 0
        self.facts: Mapping[str, Any] = {}
        self.notes: Mapping[str, Any] = {}
        self._night = night
        self._records = records

    def load(self, chosen: Sequence[int]) -> Sequence[Extraction]:
        """Return the extractions of the memories at some positions."""
        fresh: dict[str, Extraction] = {}
        keys = [self._text_keys[position] for position in chosen]
        with Memo.open(self._night.paths.memo) as memo:
            known = memo.get_many(EXTRACTION_KIND, keys)
            for position, key in zip(chosen, keys, strict=True):
                if key not in known and key not in fresh:
                    fresh[key] = _extract(self._records[position])
            memo.put_many(EXTRACTION_KIND, {key: _encode(found) for key, found in fresh.items()})
        self.extracted += len(fresh)
        return [
            self._with_told(position, fresh[key] if key in fresh else _decode(known[key]))
            for position, key in zip(chosen, keys, strict=True)
        ]

    def _with_told(self, position: int, found: Extraction) -> Extraction:
        told = self._told.get(position)
        return found if told is None else merge_extractions(found, told)


class _Extended(_Extractions):
    """Extractions to which a plug-in adds: an answer that came late changes a memory's key."""

    def __init__(self, night: Night, records: Sequence[MemoryRecord]) -> None:
        super().__init__(night, records)
        found = super().load(range(len(records)))
        extended = extend_extractions(night, records, found)
        self.facts, self.notes = extended.facts, extended.notes
        self._merged = extended.extractions
        self.keys = [
            hash_text(key, _encode(merged).decode("utf-8"))
            for key, merged in zip(self.keys, self._merged, strict=True)
        ]

    def load(self, chosen: Sequence[int]) -> Sequence[Extraction]:
        """Return the merged extractions of the memories at some positions."""
        return [self._merged[position] for position in chosen]


def _open_source(night: Night, records: Sequence[MemoryRecord]) -> _Extractions:
    return (_Extended if plugin_inputs(night) else _Extractions)(night, records)


def _extract(r: MemoryRecord) -> Extraction:
    return extract(r.content, r.category, r.tags, r.expanded_keywords, is_turn=r.is_turn)


def _encode(found: Extraction) -> bytes:
    return json.dumps(found.to_json(), ensure_ascii=False).encode("utf-8")


def _decode(kept: bytes) -> Extraction:
    return Extraction.from_json(json.loads(kept))


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
