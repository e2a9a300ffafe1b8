"""A snapshot with a concept graph written by hand: exactly its tables and arrays, no builder."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noctuary.core import store as layout
from noctuary.core.files import write_arrays
from noctuary.core.formats import SNAPSHOT
from noctuary.core.manifest import Manifest, compute_digest, describe_files, write_manifest
from noctuary.core.store import record_night
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph.build import build_sessions
from noctuary.graph.fold import ROLES, concept_id, fold_name
from noctuary.graph.walk import OPEN_END_US, RELATIONS
from noctuary.snapshot.pack import ROWS_SCHEMA
from noctuary.snapshot.publish import CheckResult, publish_candidate, store_verdict
from tests.support.hand_graph import no_rare_concepts
from tests.support.store import Store, day_us, memory, provenance, renumber

Hold = tuple[int, str, str | None]
"""Position, role, and the words of the content that are the evidence (None: an author field)."""


@dataclass(frozen=True)
class ConceptSpec:
    """A concept by its canonical name."""

    name: str
    kind: str
    holds: tuple[Hold, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class RelationSpec:
    """A stated relation by the names of its ends; `closer` is the memory that ended it."""

    src: str
    relation: str
    dst: str
    positions: tuple[int, ...]
    closer: int | None = None


@dataclass(frozen=True)
class StepSpec:
    """A step between two memories over a concept."""

    src: int
    dst: int
    concept: str
    closer: int | None = None


@dataclass(frozen=True)
class GraphSpec:
    """A whole graph over some memories."""

    records: Sequence[MemoryRecord]
    concepts: Sequence[ConceptSpec] = ()
    relations: Sequence[RelationSpec] = ()
    steps: Sequence[StepSpec] = ()
    supersessions: Sequence[tuple[int, int]] = ()
    merges: Sequence[tuple[str, str, str, float, str]] = ()
    _ordinals: dict[str, int] = field(default_factory=dict[str, int])

    def ordinal(self, name: str) -> int:
        """The place of a concept in the snapshot."""
        if not self._ordinals:
            by_id = sorted(self.concepts, key=lambda c: concept_id(fold_name(c.name)))
            self._ordinals.update({c.name: i for i, c in enumerate(by_id)})
        return self._ordinals[name]

    def in_order(self) -> list[ConceptSpec]:
        """The concepts by ordinal."""
        return sorted(self.concepts, key=lambda c: self.ordinal(c.name))


def publish_graph(store: Store, spec: GraphSpec) -> str:
    """Publish a snapshot of the memories and this graph, and return its id; no vectors."""
    directory = store.paths.candidates / "by-hand"
    directory.mkdir(parents=True)
    _write_rows(directory / layout.ROWS_FILE, spec)
    sessions = build_sessions(spec.records)
    lines = {f"sessions.{name}": array for name, array in sessions._asdict().items()}
    rare = no_rare_concepts(len(spec.records))
    lines |= {f"rare.{name}": array for name, array in rare._asdict().items()}
    arrays = {**_memory_arrays(spec), **_mentions(spec), **_steps(spec), **lines}
    write_arrays(directory / layout.ARRAYS_FILE, arrays)
    manifest = _manifest(directory, spec)
    write_manifest(directory, manifest)
    directory.rename(directory.with_name(manifest.digest[: layout.DIGEST_NAME_CHARS]))
    store_verdict(store.paths, manifest.digest, [CheckResult("written_by_hand", True, {})])
    published = publish_candidate(store.paths, manifest.digest, store.keep)
    record_night(store.paths)
    return published.snapshot_id


def _manifest(directory: Path, spec: GraphSpec) -> Manifest:
    files, known = describe_files(directory), provenance()
    counts = {"memories": len(spec.records), "concepts": len(spec.concepts), "summaries": 0}
    return Manifest(
        format_version=SNAPSHOT.version,
        digest=compute_digest(files, counts, known.id_kind, None),
        files=files,
        counts=counts,
        id_kind=known.id_kind,
        encoder=None,
        encoder_digest=None,
        source=known.source,
        corpus_digest=known.corpus_digest,
        settings={},
        warnings=[],
        built_at="2026-06-01T00:00:00+00:00",
    )


def _write_rows(path: Path, spec: GraphSpec) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(ROWS_SCHEMA)
        for table, rows in {**_memory_rows(spec), **_rows(spec)}.items():
            if rows:
                marks = ",".join("?" * len(rows[0]))
                db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _facets(spec: GraphSpec) -> dict[str, list[str]]:
    return {
        facet: sorted({value for r in spec.records if (value := getattr(r, facet))})
        for facet in layout.FACETS
    }


def _memory_rows(spec: GraphSpec) -> dict[str, list[tuple[Any, ...]]]:
    meta: dict[str, Any] = {f"facet_{facet}": values for facet, values in _facets(spec).items()}
    meta |= {"relations": list(RELATIONS), "summary_plans": []}
    return {
        "memories": [tuple(record) for record in spec.records],
        "meta": [(k, json.dumps(v)) for k, v in meta.items()],
    }


def _memory_arrays(spec: GraphSpec) -> dict[str, Any]:
    codes = {
        f"facet.{facet}": np.array(
            [values.index(v) if (v := getattr(r, facet)) else -1 for r in spec.records],
            dtype=np.int32,
        )
        for facet, values in _facets(spec).items()
    }
    return {
        "created_at_us": np.array([r.created_at_us for r in spec.records], dtype=np.int64),
        "importance": np.array([r.importance for r in spec.records], dtype=np.float32),
        "reach": np.zeros(len(spec.records), dtype=np.int8),
        "posting.positions": np.empty(0, dtype=np.int32),
        "posting.scores": np.empty(0, dtype=np.float32),
        "summary_posting.positions": np.empty(0, dtype=np.int32),
        "summary_posting.scores": np.empty(0, dtype=np.float32),
        "summary.indptr": np.zeros(1, dtype=np.int64),
        "summary.sources": np.empty(0, dtype=np.int32),
        "summary.confidences": np.empty(0, dtype=np.float64),
        "summary.plans": np.empty(0, dtype=np.int32),
        **codes,
    }


def _rows(spec: GraphSpec) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "concepts": [
            (i, concept_id(fold_name(c.name)), c.name, c.kind,
             json.dumps(list(c.aliases), ensure_ascii=False), len({p for p, _, _ in c.holds}))
            for i, c in enumerate(spec.in_order())
        ],
        "concept_names": sorted({
            (fold_name(name), spec.ordinal(c.name))
            for c in spec.concepts for name in (c.name, *c.aliases)
        }),
        "concept_edges": [_relation_row(spec, r) for r in spec.relations],
        "supersessions": [
            (older, newer, newer, "newer_value", 2, None, 1, None, newer, 0, 1,
             spec.records[newer].created_at_us, spec.records[newer].updated_at_us)
            for older, newer in spec.supersessions
        ],
        "merges": list(spec.merges),
    }  # fmt: skip


def _relation_row(spec: GraphSpec, relation: RelationSpec) -> tuple[Any, ...]:
    evidence = [[p, 0, len(spec.records[p].content)] for p in relation.positions]
    earliest = min((spec.records[p] for p in relation.positions), key=lambda r: r.created_at_us)
    closer = None if relation.closer is None else spec.records[relation.closer]
    return (
        spec.ordinal(relation.src), spec.ordinal(relation.dst), relation.relation,
        1.0 - 1.0 / (1.0 + len(evidence)), json.dumps(evidence), earliest.created_at_us,
        None if closer is None else closer.created_at_us, earliest.updated_at_us,
        None if closer is None else closer.updated_at_us,
    )  # fmt: skip


def _mentions(spec: GraphSpec) -> dict[str, Any]:
    rows: list[tuple[int, int, int, int, int]] = []
    for concept in spec.concepts:
        for position, role, surface in concept.holds:
            start = -1 if surface is None else spec.records[position].content.index(surface)
            end = -1 if surface is None else start + len(surface)
            rows.append((spec.ordinal(concept.name), position, start, end, ROLES.index(role)))
    table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 5)
    indptr = np.searchsorted(table[:, 0], np.arange(len(spec.concepts) + 1)).astype(np.int64)
    return {
        "mentions.indptr": indptr,
        "mentions.positions": table[:, 1].astype(np.int32),
        "mentions.starts": table[:, 2].astype(np.int32),
        "mentions.ends": table[:, 3].astype(np.int32),
        "mentions.roles": table[:, 4].astype(np.int8),
    }


def _steps(spec: GraphSpec) -> dict[str, Any]:
    steps, records = sorted(spec.steps, key=lambda s: (s.src, s.dst)), spec.records
    sources = [s.src for s in steps]
    targets = [s.dst for s in steps]
    arrivals = Counter(targets)
    closers = [None if s.closer is None else records[s.closer] for s in steps]
    starts = [max(records[s.src].created_at_us, records[s.dst].created_at_us) for s in steps]
    columns: dict[str, tuple[Sequence[Any], str]] = {
        "targets": (targets, "int32"),
        "weights": ([0.5] * len(steps), "float32"),
        "relations": ([RELATIONS.index("mentions_subject")] * len(steps), "int8"),
        "concepts": ([spec.ordinal(s.concept) for s in steps], "int32"),
        "in_degrees": ([arrivals[t] for t in targets], "int32"),
        "valid_from_us": (starts, "int64"),
        "valid_to_us": ([OPEN_END_US if c is None else c.created_at_us for c in closers], "int64"),
        "recorded_at_us": ([records[s.src].updated_at_us for s in steps], "int64"),
        "retracted_at_us": (
            [OPEN_END_US if c is None else c.updated_at_us for c in closers], "int64"
        ),
        "evidence_starts": ([0] * len(steps), "int32"),
        "evidence_ends": ([1] * len(steps), "int32"),
    }  # fmt: skip
    indptr = np.searchsorted(sources, np.arange(len(records) + 1)).astype(np.int64)
    arrays = {name: np.array(values, dtype=kind) for name, (values, kind) in columns.items()}
    return {"graph.indptr": indptr, **{f"graph.{name}": a for name, a in arrays.items()}}


def office() -> GraphSpec:
    """A believable graph: a closed relation, a merge, two users, three scripts. Ids from 101."""
    records = _office_records()
    return GraphSpec(
        records=records,
        concepts=[
            ConceptSpec("Atlas migration", "heading",
                        ((0, "about", "Atlas migration"), (1, "mentions", "Atlas migration"),
                         (1, "mentions", "Atlas")), ("Atlas",)),
            ConceptSpec("Nina", "name",
                        ((1, "about", "Nina"), (2, "about", "Nina"), (3, "about", "Nina"),
                         (4, "mentions", "Ninotchka"), (4, "mentions", "Nina"),
                         (5, "mentions", "Nina")), ("Ninotchka",)),
            ConceptSpec("Platform", "tag",
                        ((1, "mentions", "Platform"), (7, "author", None)), ("platform",)),
            ConceptSpec("boiler", "tag", ((7, "author", None), (7, "mentions", "boiler"))),
            ConceptSpec("Initech", "name", ((2, "mentions", "Initech"),)),
            ConceptSpec("Globex", "name",
                        ((3, "mentions", "Globex"), (5, "mentions", "Globex"),
                         (6, "mentions", "Globex"))),
            ConceptSpec("Secret Garden", "name", ((4, "mentions", "Secret Garden"),)),
            ConceptSpec("Москва", "name", ((5, "mentions", "Москва"),)),
            ConceptSpec("東京", "name", ((6, "about", "東京"),)),
            ConceptSpec("Lighthouse", "name", ((8, "about", "Lighthouse"),)),
        ],
        relations=[
            RelationSpec("Atlas migration", "part_of", "Platform", (1,)),
            RelationSpec("Nina", "works_at", "Initech", (2,), closer=3),
            RelationSpec("Nina", "works_at", "Globex", (3, 5)),
            RelationSpec("Nina", "prefers", "Secret Garden", (4,)),
        ],
        steps=[
            StepSpec(1, 0, "Atlas migration"),
            StepSpec(4, 1, "Nina"),
            StepSpec(5, 1, "Nina"),
            StepSpec(5, 2, "Nina", closer=3),
            StepSpec(5, 3, "Nina"),
        ],
        supersessions=[(2, 3)],
        merges=[
            ("atlas", "atlas migration", "alias", 1.0, "Atlas migration (Atlas)"),
            ("ninotchka", "nina", "alias", 1.0, "as Ana calls Nina"),
        ],
    )  # fmt: skip


def _office_records() -> list[MemoryRecord]:
    return renumber(
        [
            memory("# Atlas migration\nTake a backup before the schema change.", wing="work",
                   created_at_us=day_us(2), updated_at_us=day_us(2)),
            memory("Nina leads the Atlas migration; Atlas is part of Platform.", wing="work",
                   created_at_us=day_us(4), updated_at_us=day_us(4)),
            memory("Nina works at Initech.", created_at_us=day_us(5), updated_at_us=day_us(5)),
            memory("Nina works at Globex now.", created_at_us=day_us(60),
                   updated_at_us=day_us(62)),
            memory("Ninotchka, as Ana calls Nina, likes Secret Garden.", user="ana",
                   created_at_us=day_us(8), updated_at_us=day_us(8)),
            memory("Офис Nina: Москва, рядом с Globex.", created_at_us=day_us(61),
                   updated_at_us=day_us(61)),
            memory("東京オフィスは Globex です。", created_at_us=UNDATED_US,
                   updated_at_us=day_us(9)),
            memory("The platform team owns the boiler room.", tags="boiler, platform",
                   wing="home", created_at_us=day_us(10), updated_at_us=day_us(10)),
            memory("A lonely note about the Lighthouse.", created_at_us=day_us(11),
                   updated_at_us=day_us(11)),
        ]
    )  # fmt: skip
