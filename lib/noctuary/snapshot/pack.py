"""Writing a snapshot candidate: the serving pack, its manifest and its digest."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import Cluster
from noctuary.compact.summaries import Summary
from noctuary.core import store as layout
from noctuary.core.files import fsync_dir, remove_tree, replacement, write_array, write_text
from noctuary.core.manifest import Manifest, compute_digest, describe_files, write_manifest
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.embed.funnel import PrefixTier
from noctuary.graph.build import (
    build_sessions,
    concept_ordinals,
    speaking_concepts,
    to_mention_arrays,
)
from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.sessions import SessionArrays
from noctuary.graph.tables import ArrowTable, GraphTables
from noctuary.graph.walk import GraphArrays, MentionArrays, relations_in_use
from noctuary.lexical.build import Postings, build_postings_beside
from noctuary.snapshot.arrays import OF_TURNS, ShareArrays, SummaryArrays
from noctuary.sources.corpus import column_batches
from noctuary.sources.source import Share
from noctuary.text.tokens import document_tokens, encode_tokens

# What a snapshot tells of its memories beside their rows: dates, importance, facets. Build side.


@dataclass(frozen=True, slots=True, eq=False)
class Facet:
    """A scope column of n memories.

    Attributes:
        values: Distinct, not empty, sorted.
        codes: int32, shape (n,): index of each memory's value, -1 for none.
    """

    values: Sequence[str]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryColumns:
    """Columns of n memories by position.

    Attributes:
        created_at_us: int64, shape (n,).
        importance: float32, shape (n,).
        turns: How many memories are turns of a conversation.
        facets: By name, those of `layout.FACETS`.
    """

    created_at_us: NDArray[np.int64]
    importance: NDArray[np.float32]
    turns: int
    facets: Mapping[str, Facet]


def read_columns(records: Sequence[MemoryRecord]) -> MemoryColumns:
    """Return the columns of a corpus; memory is that of the arrays and of the distinct values.

    Args:
        records: Ordered by position from 0; a `RecordFile` is read without making records.
    """
    numbers: dict[str, list[NDArray[Any]]] = {"created_at_us": [], "importance": []}
    coded = {facet: _Coding() for facet in layout.FACETS}
    turns = 0
    for batch in column_batches(records, [*numbers, "is_turn", *layout.FACETS]):
        turns += batch.column("is_turn").true_count
        for name, parts in numbers.items():
            parts.append(batch.column(name).to_numpy())
        for facet, coding in coded.items():
            coding.add(batch.column(facet))
    return MemoryColumns(
        created_at_us=_joined(numbers["created_at_us"], np.dtype(np.int64)),
        importance=_joined(numbers["importance"], np.dtype(np.float64)).astype(np.float32),
        turns=turns,
        facets={facet: coding.finish() for facet, coding in coded.items()},
    )


class _Coding:
    """Gives values numbers as they come, and sorts them at the end."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parts: list[NDArray[np.int64]] = []

    def add(self, column: Any) -> None:
        """Append a pyarrow.StringArray; null and "" are none."""
        encoded = column.dictionary_encode()
        known = self._numbers
        # One entry more: a null reads the last one.
        number_of = [
            known.setdefault(value, len(known)) if value else -1
            for value in encoded.dictionary.to_pylist()
        ] + [-1]
        at: NDArray[Any] = encoded.indices.fill_null(len(number_of) - 1).to_numpy()
        self._parts.append(np.array(number_of, dtype=np.int64)[at])

    def finish(self) -> Facet:
        """Return what came."""
        values = sorted(self._numbers)
        rank_of = np.full(len(values) + 1, -1, dtype=np.int64)
        rank_of[[self._numbers[value] for value in values]] = np.arange(len(values))
        codes = rank_of[_joined(self._parts, np.dtype(np.int64))]
        return Facet(values, codes.astype(np.int32))


def _joined(parts: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])


# The graph's tables as rows of the serving pack's SQLite file. No schema, no writing.


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


# From what a store says about its shares to the arrays of a snapshot. Build side.
#
# Only what the store itself says makes a share, and one that is revoked is gone with the next
# snapshot. A snapshot without any has none of these files.


def pack_shares(records: Iterable[MemoryRecord], shares: Iterable[Share]) -> ShareArrays | None:
    """Return the shares that open something; None where none does.

    Left out is what is about a memory that is not in the snapshot or that belongs to nobody (all
    may read it), what a user shares with themself, and what names no reader. The same share twice
    is one.

    Args:
        records: Ordered by position from 0, shape (n,).
        shares: In any order.
    """
    readers_of: dict[str, set[str]] = {}
    for share in shares:
        if share.shared_with:
            readers_of.setdefault(share.memory_id, set()).add(share.shared_with)
    found: dict[str, set[int]] = {}
    for record in records if readers_of else ():
        for reader in readers_of.get(record.memory_id, ()):
            if record.user and record.user != reader:
                found.setdefault(reader, set()).add(record.position)
    if not found:
        return None
    readers = sorted(found)
    flat = [position for reader in readers for position in sorted(found[reader])]
    return ShareArrays(
        readers,
        np.cumsum([0, *(len(found[reader]) for reader in readers)], dtype=np.int64),
        np.array(flat, dtype=np.int32),
    )


# Accepted summaries as the pack holds them: arrays, postings, vectors, lineage rows. Build side.


CATEGORY = "summary"
"""What a summary is called where a memory has its category."""

LINEAGE_SCHEMA = """
CREATE TABLE summaries (
    ordinal INTEGER PRIMARY KEY, summary_id TEXT NOT NULL UNIQUE, cluster_id TEXT NOT NULL,
    session_id TEXT NOT NULL, text TEXT NOT NULL, method TEXT NOT NULL, first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL, source_tokens INTEGER NOT NULL, summary_tokens INTEGER NOT NULL, align
    REAL, cover REAL, confidence REAL, decay_rate REAL, facts TEXT, plan_id TEXT);
CREATE TABLE summary_sources (
    summary_id TEXT NOT NULL, place INTEGER NOT NULL, position INTEGER NOT NULL, memory_id TEXT NOT
    NULL, PRIMARY KEY (summary_id, place)) WITHOUT ROWID;
CREATE TABLE summary_parents (
    summary_id TEXT NOT NULL, place INTEGER NOT NULL, parent_id TEXT NOT NULL,
    PRIMARY KEY (summary_id, place)) WITHOUT ROWID;
CREATE TABLE summary_terms (
    term TEXT PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL) WITHOUT ROWID;
"""

SummaryRows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class SummaryPack:
    """Summaries in the order of their ids.

    Attributes:
        summaries: In that order.
        plan_of: Summary id -> the compaction plan that it belongs to; others are of turn clusters.
        vectors: Unit rows, shape (s, d), or None without an encoder.
        arrays: What stands for what.
        postings: BM25 postings; positions are ordinals of summaries.
    """

    summaries: Sequence[Summary]
    plan_of: Mapping[str, str]
    vectors: NDArray[np.float32] | None
    arrays: SummaryArrays
    postings: Postings

    @property
    def plans(self) -> list[str]:
        """The plans by number, as `arrays.plans` has them."""
        return sorted(set(self.plan_of.values()))

    def rows(self) -> list[tuple[str, SummaryRows]]:
        """Return the rows of every lineage table."""
        starts = self.postings.starts.tolist()
        return [
            ("summaries", [self._row(i, s) for i, s in enumerate(self.summaries)]),
            ("summary_sources", [row for s in self.summaries for row in _source_rows(s)]),
            ("summary_parents", [
                (s.summary_id, place, parent)
                for s in self.summaries for place, parent in enumerate(s.parent_ids)
            ]),
            ("summary_terms", [
                (term, starts[i], starts[i + 1]) for i, term in enumerate(self.postings.terms)
            ]),
        ]  # fmt: skip

    def _row(self, ordinal: int, s: Summary) -> tuple[Any, ...]:
        gate = s.report
        judged = (gate.align, gate.cover, gate.confidence, gate.decay_rate) if gate else (None,) * 4
        facts = None if s.facts is None else s.facts.to_json()
        return (
            ordinal, s.summary_id, s.cluster_id, s.session_id, s.text, s.method, s.first_us,
            s.last_us, s.source_tokens, s.summary_tokens, *judged, facts,
            self.plan_of.get(s.summary_id),
        )  # fmt: skip


def pack_summaries(
    summaries: Sequence[Summary],
    vectors: NDArray[np.float32] | None,
    plan_of: Mapping[str, str],
    corpus: Postings,
) -> SummaryPack:
    """Return the summaries as the pack holds them, in the order of their ids.

    Args:
        summaries: Accepted ones, each id once.
        vectors: Their unit vectors, aligned, shape (s, d); None without an encoder.
        plan_of: Summary id -> plan id, for those of compaction plans.
        corpus: Postings of the memories: how rare a word is there is how rare it is here.

    Raises:
        ValueError: Not one vector per summary.
    """
    if vectors is not None and len(vectors) != len(summaries):
        raise ValueError(f"found {len(vectors)} vectors for {len(summaries)} summaries")
    order = sorted(range(len(summaries)), key=lambda i: summaries[i].summary_id)
    ordered = [summaries[i] for i in order]
    known = {s.summary_id for s in ordered}
    held = {summary: plan for summary, plan in plan_of.items() if summary in known}
    return SummaryPack(
        ordered,
        held,
        None if vectors is None else np.ascontiguousarray(vectors[order], dtype=np.float32),
        _arrays(ordered, held),
        build_postings_beside(
            (encode_tokens(document_tokens(s.text, "", "", CATEGORY)) for s in ordered), corpus
        ),
    )


def _arrays(summaries: Sequence[Summary], plan_of: Mapping[str, str]) -> SummaryArrays:
    numbers = {plan: number for number, plan in enumerate(sorted(set(plan_of.values())))}
    lengths = [len(s.source_positions) for s in summaries]
    confidences = [1.0 if s.report is None else s.report.confidence for s in summaries]
    return SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sources=np.array([p for s in summaries for p in s.source_positions], dtype=np.int32),
        confidences=np.clip(np.array(confidences, dtype=np.float64), 0.0, 1.0),
        plans=np.array(
            [
                numbers[plan_of[s.summary_id]] if s.summary_id in plan_of else OF_TURNS
                for s in summaries
            ],
            dtype=np.int32,
        ),
    )


def _source_rows(s: Summary) -> SummaryRows:
    pairs = zip(s.source_positions, s.source_ids, strict=True)
    return [(s.summary_id, place, *pair) for place, pair in enumerate(pairs)]


# The SQLite file of a serving pack: texts, names, lineage. Build side.


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
"""
ROWS_SCHEMA = _SCHEMA + LINEAGE_SCHEMA
"""Every table of rows.sqlite."""

_Row = Sequence[Any]

_MEMORY_COLUMNS = tuple(MemoryRecord.__slots__)


def write_row_file(
    path: Path,
    *,
    records: Sequence[MemoryRecord],
    postings: Postings,
    graph: GraphTables,
    clusters: Sequence[Cluster],
    summaries: SummaryPack,
    meta: Mapping[str, str],
) -> None:
    """Write the file; equal inputs give equal bytes. One batch of memories is held at a time.

    Args:
        path: A new file; whoever renames its directory makes it durable.
        records: Ordered by position from 0.
        postings: Of the memories.
        graph: Of the memories.
        clusters: Of old turns.
        summaries: Accepted ones.
        meta: By key.
    """
    with closing(sqlite3.connect(path)) as db:
        # The file is written once, fsynced with the rest of the candidate and never changed.
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=FULL")
        with db:
            db.executescript(ROWS_SCHEMA)
            _insert(db, "memories", _memory_rows(records))
            _insert(db, "terms", _term_rows(postings))
            for table, rows in graph_rows(graph):
                _insert(db, table, rows)
            _insert(db, "clusters", map(_cluster_row, clusters))
            for table, rows in summaries.rows():
                _insert(db, table, rows)
            _insert(db, "meta", sorted(meta.items()))
    # Connections stamp a change counter only on write: a vacuum here would make equal content equal
    # bytes as well, but the fixed insertion order already does.


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[_Row]) -> None:
    width = len(db.execute(f"PRAGMA table_info({table})").fetchall())
    marks = ",".join("?" * width)
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _memory_rows(records: Sequence[MemoryRecord]) -> Iterator[_Row]:
    for batch in column_batches(records, _MEMORY_COLUMNS):
        yield from zip(*(batch.column(name).to_pylist() for name in _MEMORY_COLUMNS), strict=True)


def _term_rows(postings: Postings) -> Iterator[_Row]:
    starts = postings.starts.tolist()
    return ((term, starts[i], starts[i + 1]) for i, term in enumerate(postings.terms))


def _cluster_row(c: Cluster) -> _Row:
    return (c.cluster_id, c.session_id, c.ordinal, c.first_us, c.last_us, int(c.trivial))


# Writing a snapshot candidate: the serving pack, its manifest and its digest. Build side.
#
# Everything is written in a fixed order with fixed encodings: equal inputs give equal bytes, hence
# an equal digest.


@dataclass(frozen=True)
class PackInputs:
    """Everything that a snapshot holds, as the stages made it.

    Attributes:
        records: Ordered by position from 0; a `RecordFile` is streamed.
        vectors: Unit rows, shape (n, d), or None when there is no encoder or `vectors_file`.
        vectors_file: A `.npy` file of the same, which is copied as it is.
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
    vectors_file: Path | None = None


@dataclass(frozen=True)
class Provenance:
    """Where a candidate comes from; see noctuary.core.manifest.Manifest."""

    id_kind: str
    encoder: dict[str, Any] | None
    encoder_digest: str | None
    source: dict[str, Any]
    corpus_digest: str
    settings: dict[str, Any]


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
    columns = read_columns(inputs.records)
    _write_vectors(building / layout.VECTORS_FILE, inputs)
    _write_arrays(building, inputs, columns, summaries, shares)
    write_row_file(
        building / layout.ROWS_FILE,
        records=inputs.records,
        postings=inputs.postings,
        graph=inputs.graph,
        clusters=inputs.clusters,
        summaries=summaries,
        meta=_meta(inputs, columns, summaries, shares),
    )
    manifest = _make_manifest(building, inputs, provenance, columns, shares)
    write_manifest(building, manifest)
    fsync_dir(building)
    final = paths.candidates / manifest.digest[: layout.DIGEST_NAME_CHARS]
    remove_tree(final)
    building.rename(final)
    fsync_dir(paths.candidates)
    return final


def _make_manifest(
    directory: Path,
    inputs: PackInputs,
    provenance: Provenance,
    columns: MemoryColumns,
    shares: ShareArrays | None,
) -> Manifest:
    files = describe_files(directory)
    counts = {
        "memories": len(inputs.records),
        "turns": columns.turns,
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
        warnings=[],
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _write_vectors(path: Path, inputs: PackInputs) -> None:
    """Write the vectors of the memories; a file of them is copied by the kernel, page by page."""
    if inputs.vectors_file is not None:
        with replacement(path) as tmp:
            shutil.copyfile(inputs.vectors_file, tmp)
    elif inputs.vectors is not None:
        write_array(path, inputs.vectors)


def _write_arrays(
    directory: Path,
    inputs: PackInputs,
    columns: MemoryColumns,
    summaries: SummaryPack,
    shares: ShareArrays | None,
) -> None:
    arrays: dict[str, NDArray[Any]] = {
        layout.POSTING_POSITIONS_FILE: inputs.postings.positions,
        layout.POSTING_SCORES_FILE: inputs.postings.scores,
        layout.CREATED_AT_FILE: columns.created_at_us,
        layout.IMPORTANCE_FILE: columns.importance,
    }
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
    sessions = build_sessions(inputs.records, speaking_concepts(mentions))
    for column in fields(SessionArrays):
        arrays[layout.session_file(column.name)] = getattr(sessions, column.name)
    for facet, column in columns.facets.items():
        arrays[layout.facet_file(facet)] = column.codes
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


def _meta(
    inputs: PackInputs,
    columns: MemoryColumns,
    summaries: SummaryPack,
    shares: ShareArrays | None,
) -> Mapping[str, str]:
    relations = relations_in_use(inputs.graph_arrays.relations)
    values = {
        "relations": json.dumps(list(relations)),
        "summary_plans": json.dumps(summaries.plans),
    }
    for facet, column in columns.facets.items():
        values[f"facet_{facet}"] = json.dumps(column.values, ensure_ascii=False)
    if shares is not None:
        values[layout.SHARED_WITH] = json.dumps(shares.readers, ensure_ascii=False)
    return values
