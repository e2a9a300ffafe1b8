"""Stage concept_graph.

Findings memoised per memory, concepts, mentions and edges built over the corpus.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from mnemon.corpus.export import read_records
from mnemon.graph.build import build_graph
from mnemon.graph.extract import extract
from mnemon.graph.extraction import EXTRACTOR_VERSION, Extraction
from mnemon.graph.model import Graph
from mnemon.graph.tables import read_graph, write_graph
from mnemon.hashing import hash_text
from mnemon.night.context import CONCEPTS, EDGES, MEMORIES, MENTIONS, Night
from mnemon.night.corpus import CORPUS
from mnemon.types import MemoryRecord
from mnemon.work.memo import Memo
from mnemon.work.stage import Stage, StageResult

CONCEPT_GRAPH = Stage("concept_graph", "1", (CONCEPTS, MENTIONS, EDGES))
EXTRACTION_KIND = f"extraction:{EXTRACTOR_VERSION}"


def extraction_key(record: MemoryRecord) -> str:
    """Return the memo key of a memory's findings: a hash of the fields that are read."""
    kind = "turn" if record.is_turn else "memory"
    return hash_text(record.content, record.category, record.tags, record.expanded_keywords, kind)


def connect_memories(night: Night) -> StageResult:
    """Extract what each memory is about and names, and connect the memories."""
    corpus = night.result_of(CORPUS)
    counts = {"computed": 0}

    def body() -> tuple[int, dict[str, Any]]:
        records = read_records(night.work(MEMORIES))
        extractions, counts["computed"] = _extract(night, records)
        graph = build_graph(records, extractions)
        write_graph(graph, night.work(CONCEPTS), night.work(MENTIONS), night.work(EDGES))
        return len(graph.edges), _facts(graph)

    inputs = {"corpus": corpus.digest, "extractor": str(EXTRACTOR_VERSION)}
    result = night.run(CONCEPT_GRAPH, inputs, body)
    return night.finish(result.with_notes(memories_extracted=counts["computed"]))


def load_graph(night: Night) -> Graph:
    """Read the graph that the stage wrote."""
    return read_graph(night.work(CONCEPTS), night.work(MENTIONS), night.work(EDGES))


def _facts(graph: Graph) -> dict[str, Any]:
    return {
        "concepts": len(graph.concepts),
        "mentions": len(graph.mentions),
        "edges": len(graph.edges),
        "edges_by_relation": dict(sorted(Counter(e.relation for e in graph.edges).items())),
        "skipped_subjects": dict(graph.skipped_subjects),
        "declined_runs": dict(graph.declined_runs),
    }


def _extract(night: Night, records: list[MemoryRecord]) -> tuple[list[Extraction], int]:
    keys = [extraction_key(r) for r in records]
    fresh: dict[str, bytes] = {}
    with Memo.open(night.paths.memo) as memo:
        known = memo.get_many(EXTRACTION_KIND, keys)
        for key, r in zip(keys, records, strict=True):
            if key not in known and key not in fresh:
                found = extract(
                    r.content, r.category, r.tags, r.expanded_keywords, is_turn=r.is_turn
                )
                fresh[key] = json.dumps(found.to_json(), ensure_ascii=False).encode("utf-8")
        memo.put_many(EXTRACTION_KIND, fresh)
    known.update(fresh)
    return [Extraction.from_json(json.loads(known[k])) for k in keys], len(fresh)
