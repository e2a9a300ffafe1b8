"""Writing a snapshot candidate: the serving pack, its manifest and its digest. Build side.

Everything is written in a fixed order with fixed encodings: equal inputs give equal bytes, hence an
equal digest.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon.compact.clusters import Cluster
from mnemon.compact.summary import Summary
from mnemon.corpus.evidence import Share
from mnemon.files import fsync_dir, remove_tree, write_array, write_text
from mnemon.graph.arrays import GraphArrays, MentionArrays, relations_in_use
from mnemon.graph.pack import speaking_concepts, to_mention_arrays
from mnemon.graph.sessions import SessionArrays, build_sessions
from mnemon.graph.tables import GraphTables
from mnemon.lexical.postings import Postings
from mnemon.snapshot import layout
from mnemon.snapshot.graph_rows import graph_rows
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.manifest import Manifest, compute_digest, describe_files, write_manifest
from mnemon.snapshot.share_arrays import ShareArrays
from mnemon.snapshot.share_pack import pack_shares
from mnemon.snapshot.summary_arrays import SummaryArrays
from mnemon.snapshot.summary_pack import LINEAGE_SCHEMA, SummaryPack, pack_summaries
from mnemon.types import MemoryRecord
from mnemon.vectors.cascade import PrefixTier

_SCHEMA = """
CREATE TABLE memories (
    position INTEGER PRIMARY KEY, memory_id TEXT NOT NULL UNIQUE, content TEXT NOT NULL, category
    TEXT NOT NULL, tags TEXT NOT NULL, expanded_keywords TEXT NOT NULL, importance REAL NOT NULL,
    created_at_us INTEGER NOT NULL, updated_at_us INTEGER NOT NULL, session_id TEXT, wing TEXT, room
    TEXT, user TEXT, is_turn INTEGER NOT NULL, content_hash TEXT NOT NULL);
CREATE TABLE terms (term TEXT PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL) WITHOUT
ROWID; CREATE TABLE concepts (
    ordinal INTEGER PRIMARY KEY, concept_id TEXT NOT NULL UNIQUE, canonical_name TEXT NOT NULL, kind
    TEXT NOT NULL, aliases TEXT NOT NULL, df INTEGER NOT NULL);
CREATE TABLE concept_names (
    name TEXT NOT NULL, ordinal INTEGER NOT NULL, PRIMARY KEY (name, ordinal)) WITHOUT ROWID;
CREATE TABLE concept_edges (
    src INTEGER NOT NULL, dst INTEGER NOT NULL, relation TEXT NOT NULL, weight REAL NOT NULL,
    evidence TEXT NOT NULL, valid_from_us INTEGER NOT NULL, valid_to_us INTEGER, recorded_at_us
    INTEGER NOT NULL, retracted_at_us INTEGER);
CREATE INDEX concept_edges_by_src ON concept_edges (src);
CREATE INDEX concept_edges_by_dst ON concept_edges (dst);
CREATE TABLE supersessions (
    older INTEGER NOT NULL, newer INTEGER NOT NULL, head INTEGER NOT NULL, reason TEXT NOT NULL,
    confidence INTEGER NOT NULL, similarity REAL, age_gap_days INTEGER NOT NULL, concept INTEGER,
    evidence_position INTEGER NOT NULL, evidence_start INTEGER NOT NULL, evidence_end INTEGER NOT
    NULL, valid_to_us INTEGER NOT NULL, recorded_at_us INTEGER NOT NULL, PRIMARY KEY (older, newer))
    WITHOUT ROWID;
CREATE TABLE links (
    name TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, weight REAL NOT NULL, cased INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE link_starts (word TEXT PRIMARY KEY, words INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE merges (
    name TEXT PRIMARY KEY, canonical TEXT NOT NULL, reason TEXT NOT NULL, score REAL NOT NULL,
    detail TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE clusters (
    cluster_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, ordinal INTEGER NOT NULL, first_us
    INTEGER NOT NULL, last_us INTEGER NOT NULL, trivial INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""  # The summaries' tables: `summary_pack`.

ROWS_SCHEMA = _SCHEMA + LINEAGE_SCHEMA
"""Every table of rows.sqlite."""


@dataclass(frozen=True)
class PackInputs:
    """Everything that a snapshot holds, as the stages made it.

    Attributes:
        records: Ordered by position from 0, shape (n,).
        vectors: Unit rows, shape (n, d), or None when there is no encoder.
        summaries: Accepted ones only: of turn clusters, and of compaction plans in force.
        summary_vectors: Their unit vectors, aligned, shape (s, d); None without an encoder.
        plan_of: Summary id -> plan id, for the summaries of plans.
        tier: The short tier of the vectors, where the store is large enough for one.
        exits: By dimensions, the best cosine from which a tier may answer alone, or None.
        shares: Who else may read which memory, as the store says.
    """

    records: Sequence[MemoryRecord]
    vectors: NDArray[np.float32] | None
    postings: Postings
    graph: GraphTables
    graph_arrays: GraphArrays
    clusters: Sequence[Cluster]
    summaries: Sequence[Summary]
    summary_vectors: NDArray[np.float32] | None = None
    plan_of: Mapping[str, str] = field(default_factory=dict[str, str])
    tier: PrefixTier | None = None
    exits: Mapping[int, float | None] = field(default_factory=dict[int, "float | None"])
    shares: Sequence[Share] = ()


@dataclass(frozen=True)
class Provenance:
    """Where a candidate comes from; see mnemon.snapshot.manifest.Manifest."""

    id_kind: str
    encoder: dict[str, Any] | None
    encoder_digest: str | None
    source: dict[str, Any]
    corpus_digest: str
    settings: dict[str, Any]
    warnings: Sequence[tuple[str, str]]


def build_candidate(paths: StorePaths, inputs: PackInputs, provenance: Provenance) -> Path:
    """Write a candidate and return its directory, named by its digest.

    An equal one is kept as it is.

    A killed build leaves only a `.building-` directory, which the next build removes.
    """
    paths.candidates.mkdir(parents=True, exist_ok=True)
    for leftover in paths.candidates.glob(".building-*"):
        remove_tree(leftover)
    building = paths.candidates / f".building-{os.getpid()}"
    building.mkdir()
    summaries = pack_summaries(
        inputs.summaries, inputs.summary_vectors, inputs.plan_of, inputs.postings
    )
    shares = pack_shares(inputs.records, inputs.shares)
    _write_arrays(building, inputs, summaries, shares)
    _write_rows(building / layout.ROWS_FILE, inputs, summaries, shares)
    manifest = _make_manifest(building, inputs, provenance, shares)
    write_manifest(building, manifest)
    fsync_dir(building)
    final = paths.candidates / manifest.digest[: layout.DIGEST_NAME_CHARS]
    remove_tree(final)
    building.rename(final)
    fsync_dir(paths.candidates)
    return final


def _make_manifest(
    directory: Path, inputs: PackInputs, provenance: Provenance, shares: ShareArrays | None
) -> Manifest:
    files = describe_files(directory)
    counts = {
        "memories": len(inputs.records),
        "turns": sum(r.is_turn for r in inputs.records),
        "terms": len(inputs.postings.terms),
        "postings": int(inputs.postings.positions.size),
        "concepts": inputs.graph.concepts.num_rows,
        "mentions": inputs.graph.mentions.num_rows,
        "concept_edges": inputs.graph.concept_edges.num_rows,
        "edges": int(inputs.graph_arrays.targets.size),
        "supersessions": inputs.graph.supersessions.num_rows,
        "clusters": len(inputs.clusters),
        "summaries": len(inputs.summaries),
    }
    if shares is not None:
        counts["shares"] = int(shares.positions.size)
    return Manifest(
        format_version=layout.PACK_FORMAT_VERSION,
        digest=compute_digest(files, counts, provenance.id_kind, provenance.encoder_digest),
        files=files,
        counts=counts,
        id_kind=provenance.id_kind,
        encoder=provenance.encoder,
        encoder_digest=provenance.encoder_digest,
        source=provenance.source,
        corpus_digest=provenance.corpus_digest,
        settings=provenance.settings,
        warnings=list(provenance.warnings),
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _write_arrays(
    directory: Path, inputs: PackInputs, summaries: SummaryPack, shares: ShareArrays | None
) -> None:
    records = inputs.records
    arrays: dict[str, NDArray[Any]] = {
        layout.POSTING_POSITIONS_FILE: inputs.postings.positions,
        layout.POSTING_SCORES_FILE: inputs.postings.scores,
        layout.CREATED_AT_FILE: np.array([r.created_at_us for r in records], dtype=np.int64),
        layout.IMPORTANCE_FILE: np.array([r.importance for r in records], dtype=np.float32),
    }
    if inputs.vectors is not None:
        arrays[layout.VECTORS_FILE] = inputs.vectors
    if inputs.tier is not None:
        for name, file in layout.TIER_FILES.items():
            arrays[file] = getattr(inputs.tier, name)
        exits = {str(dim): inputs.exits[dim] for dim in sorted(inputs.exits)}
        write_text(directory / layout.TIER_EXITS_FILE, json.dumps(exits) + "\n")
    for column in fields(GraphArrays):
        arrays[layout.graph_file(column.name)] = getattr(inputs.graph_arrays, column.name)
    mentions = to_mention_arrays(inputs.graph)
    for column in fields(MentionArrays):
        arrays[layout.mention_file(column.name)] = getattr(mentions, column.name)
    sessions = build_sessions(records, speaking_concepts(mentions))
    for column in fields(SessionArrays):
        arrays[layout.session_file(column.name)] = getattr(sessions, column.name)
    for facet in layout.FACETS:
        ordinals = {value: code for code, value in enumerate(facet_values(records, facet))}
        codes = [ordinals.get(getattr(r, facet) or "", -1) for r in records]
        arrays[layout.facet_file(facet)] = np.array(codes, dtype=np.int32)
    arrays.update(_summary_arrays(summaries))
    if shares is not None:
        arrays[layout.SHARE_STARTS_FILE] = shares.indptr
        arrays[layout.SHARE_POSITIONS_FILE] = shares.positions
    for name, array in arrays.items():
        write_array(directory / name, array)


def _summary_arrays(summaries: SummaryPack) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        layout.SUMMARY_POSTING_POSITIONS_FILE: summaries.postings.positions,
        layout.SUMMARY_POSTING_SCORES_FILE: summaries.postings.scores,
    }
    if summaries.vectors is not None:
        arrays[layout.SUMMARY_VECTORS_FILE] = summaries.vectors
    for column in fields(SummaryArrays):
        arrays[layout.summary_file(column.name)] = getattr(summaries.arrays, column.name)
    return arrays


def facet_values(records: Sequence[MemoryRecord], facet: str) -> list[str]:
    """Return the distinct non-empty values of a scope column, sorted."""
    return sorted({value for r in records if (value := getattr(r, facet))})


def _write_rows(
    path: Path, inputs: PackInputs, summaries: SummaryPack, shares: ShareArrays | None
) -> None:
    with closing(sqlite3.connect(path)) as db:
        # The file is written once, fsynced with the rest of the candidate and never changed.
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=FULL")
        with db:
            db.executescript(ROWS_SCHEMA)
            _insert(db, "memories", [_memory_row(r) for r in inputs.records])
            _insert(db, "terms", _term_rows(inputs.postings))
            for table, rows in graph_rows(inputs.graph):
                _insert(db, table, rows)
            _insert(db, "clusters", [_cluster_row(c) for c in inputs.clusters])
            for table, rows in summaries.rows():
                _insert(db, table, rows)
            meta = {**_meta(inputs), "summary_plans": json.dumps(summaries.plans)}
            if shares is not None:
                meta[layout.SHARED_WITH] = json.dumps(shares.readers, ensure_ascii=False)
            _insert(db, "meta", sorted(meta.items()))
    # Connections stamp a change counter only on write: a vacuum here would make equal content equal
    # bytes as well, but the fixed insertion order already does.


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if rows:
        marks = ",".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _memory_row(r: MemoryRecord) -> tuple[Any, ...]:
    return tuple(int(v) if isinstance(v, bool) else v for v in astuple(r))


def _term_rows(postings: Postings) -> list[tuple[str, int, int]]:
    starts = postings.starts.tolist()
    return [(term, starts[i], starts[i + 1]) for i, term in enumerate(postings.terms)]


def _cluster_row(c: Cluster) -> tuple[Any, ...]:
    return (c.cluster_id, c.session_id, c.ordinal, c.first_us, c.last_us, int(c.trivial))


def _meta(inputs: PackInputs) -> Mapping[str, str]:
    records, relations = inputs.records, relations_in_use(inputs.graph_arrays.relations)
    values = {"relations": json.dumps(list(relations))}
    for facet in layout.FACETS:
        values[f"facet_{facet}"] = json.dumps(facet_values(records, facet), ensure_ascii=False)
    return values
