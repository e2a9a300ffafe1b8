"""Writing a snapshot candidate: the serving pack, its manifest and its digest."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import Cluster
from noctuary.compact.summaries import Summary
from noctuary.core import formats
from noctuary.core import store as layout
from noctuary.core.files import remove_tree, replacement, write_array, write_arrays, write_text
from noctuary.core.manifest import Manifest, compute_digest, describe_files
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord, Origin
from noctuary.embed.funnel import PrefixTier
from noctuary.graph.build import (
    build_sessions,
    concept_ordinals,
    find_rare_concepts,
    speaking_concepts,
    to_mention_arrays,
)
from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.tables import ArrowTable, GraphTables
from noctuary.graph.walk import GraphArrays, relations_in_use
from noctuary.lexical.build import Near, Postings, build_postings_beside
from noctuary.snapshot.arrays import OF_TURNS, ShareArrays, SummaryArrays
from noctuary.snapshot.publish import place_candidate
from noctuary.sources.corpus import column_batches
from noctuary.sources.source import Share
from noctuary.text.reach import PROJECT, REPEATED, reach_of
from noctuary.text.tokens import document_tokens, encode_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Facet:
    """A scope column of n memories."""

    values: Sequence[str]  # distinct, not empty, sorted
    codes: NDArray[np.int32]  # shape (n,): index of each memory's value, -1 for none


@dataclass(frozen=True, slots=True, eq=False)
class MemoryColumns:
    """Columns of n memories by position."""

    created_at_us: NDArray[np.int64]
    importance: NDArray[np.float32]
    turns: int  # how many memories are turns of a conversation
    facets: Mapping[str, Facet]  # by name, those of `layout.FACETS`


def read_columns(records: Sequence[MemoryRecord]) -> MemoryColumns:
    """Return the columns of a corpus, in the order of its positions."""
    import polars as pl

    numbers = {"created_at_us": pl.Int64, "importance": pl.Float64, "is_turn": pl.Boolean}
    schema = {**numbers, **dict.fromkeys(layout.FACETS, pl.String)}
    batches = column_batches(records, list(schema))
    corpus = pl.concat([pl.DataFrame(schema=schema), *map(pl.DataFrame, batches)])
    facets: dict[str, Facet] = {}
    for name in layout.FACETS:
        column = corpus[name].replace("", None)
        values = column.drop_nulls().unique().sort()
        codes = (column.rank("dense").cast(pl.Int32) - 1).fill_null(-1)
        facets[name] = Facet(values.to_list(), codes.to_numpy())
    return MemoryColumns(
        corpus["created_at_us"].to_numpy(),
        corpus["importance"].cast(pl.Float32).to_numpy(),
        int(corpus["is_turn"].sum()),
        facets,
    )


def find_reach(records: Sequence[MemoryRecord]) -> NDArray[np.int8]:
    """Return the number of `noctuary.text.reach` of every memory, in the order of positions."""
    import polars as pl

    codes = np.fromiter(map(reach_of, records), np.int8, len(records))
    # By a hash, so that no text is kept; a turn that comes twice is "yes" or "thank you".
    text = pl.col("content").str.strip_chars().str.to_lowercase().hash()
    columns = ("content", "user", "wing", "is_turn", "origin")
    batches = map(pl.DataFrame, column_batches(records, columns))
    known = [batch.with_columns(text) for batch in batches]
    if not known:
        return codes
    wings = pl.col("wing").drop_nulls().n_unique().over("content", "user")
    is_said = ~pl.col("is_turn") & (pl.col("origin") != Origin.TOOL.value)
    repeated = pl.concat(known).select((wings > 1) & is_said).to_series().to_numpy()
    codes[repeated & (codes == PROJECT)] = REPEATED
    return codes


_BATCH_ROWS = 20_000  # that are Python objects at once

_Row = tuple[Any, ...]


def graph_rows(graph: GraphTables) -> Iterator[tuple[str, Iterable[_Row]]]:
    """Yield the rows of every table, each table's in primary-key order."""
    yield (
        "concepts",
        (
            (i, c["concept_id"], c["canonical_name"], c["kind"], _json(c["aliases"]), c["df"])
            for i, c in enumerate(_rows(graph.concepts))
        ),
    )
    yield "concept_names", _concept_names(graph)
    ends = (_places(graph, graph.concept_edges[end]) for end in ("src_concept", "dst_concept"))
    edges = zip(*ends, _rows(graph.concept_edges), strict=True)
    yield "concept_edges", ((source, target, *_stated(row)) for source, target, row in edges)
    yield "supersessions", _supersessions(graph)
    named = zip(_rows(graph.links), _places(graph, graph.links["concept_id"]), strict=True)
    links = [(row["name"], place, row["weight"], int(row["cased"])) for row, place in named]
    yield "links", links
    yield "link_starts", _link_starts(links)
    yield "merges", (tuple(row.values()) for row in _rows(graph.merges))


def _rows(table: ArrowTable) -> Iterator[dict[str, Any]]:
    for first in range(0, table.num_rows, _BATCH_ROWS):
        yield from table.slice(first, _BATCH_ROWS).to_pylist()


def _places(graph: GraphTables, concepts: Any) -> list[int]:
    """Return the ordinals of concepts that a pyarrow column, or a list, names by id."""
    if isinstance(concepts, list):
        import pyarrow as pa

        concepts = pa.chunked_array([pa.array(concepts, pa.string())])
    return concept_ordinals(graph.concepts, concepts).tolist()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _concept_names(graph: GraphTables) -> Iterable[_Row]:
    """Return (folded name, ordinal) of every name of every concept, sorted."""
    told = enumerate(_rows(graph.concepts.select(["canonical_name", "aliases"])))
    names = {
        (fold_name(surface), ordinal)
        for ordinal, row in told
        for surface in (row["canonical_name"], *row["aliases"])
    }
    merges = graph.merges.to_pylist()
    ordinals = _places(graph, [concept_id(row["canonical"]) for row in merges])
    for row, ordinal in zip(merges, ordinals, strict=True):
        names.update((name, ordinal) for name in (row["name"], row["canonical"]))
    return sorted(names)


def _link_starts(links: Iterable[_Row]) -> Iterable[_Row]:
    """Return, by first word, the words of the longest name that begins with it."""
    longest: dict[str, int] = {}
    for name, *_ in links:
        words = name.split(" ")
        longest[words[0]] = max(longest.get(words[0], 0), len(words))
    return sorted(longest.items())


def _stated(row: dict[str, Any]) -> tuple[Any, ...]:
    evidence = [[item["position"], item["start"], item["end"]] for item in row["evidence"]]
    dates = ("valid_from_us", "valid_to_us", "recorded_at_us", "retracted_at_us")
    text = json.dumps(evidence, separators=(",", ":"))
    return (row["relation"], row["weight"], text, *(row[name] for name in dates))


def _supersessions(graph: GraphTables) -> Iterable[_Row]:
    rows = graph.supersessions.to_pylist()
    ids = sorted({row["concept_id"] for row in rows} - {""})
    known = dict(zip(ids, _places(graph, ids), strict=True))
    return [
        (
            row["older_position"], row["newer_position"], row["head_position"], row["reason"],
            row["confidence"], row["similarity"], row["age_gap_days"], known.get(row["concept_id"]),
            *row["evidence"].values(), row["valid_to_us"], row["recorded_at_us"],
        )
        for row in rows
    ]  # fmt: skip


def pack_shares(records: Iterable[MemoryRecord], shares: Iterable[Share]) -> ShareArrays | None:
    """Return the shares that have an effect; None if there are none."""
    # Left out are shares of a memory that is not in the snapshot or that has no user (all may read
    # it), shares of a user with themself, and shares without a reader. The same share twice counts
    # once, and a revoked share is gone with the next snapshot.
    readers_of: dict[str, set[str]] = defaultdict(set)
    for share in shares:
        if share.shared_with:
            readers_of[share.memory_id].add(share.shared_with)
    opened = sorted(
        (reader, record.position)
        for record in (records if readers_of else ())
        if record.user
        for reader in readers_of.get(record.memory_id, set()) - {record.user}
    )
    if not opened:
        return None
    counts = Counter(reader for reader, _ in opened)
    return ShareArrays(
        list(counts),
        np.cumsum([0, *counts.values()], dtype=np.int64),
        np.array([position for _, position in opened], dtype=np.int32),
    )


CATEGORY = "summary"  # of a summary, where a memory has its own


@dataclass(frozen=True)
class SummaryPack:
    """Summaries in the order of their ids."""

    summaries: Sequence[Summary]
    plan_of: Mapping[str, str]  # summary id -> compaction plan; others are of turn clusters
    vectors: NDArray[np.float32] | None  # unit rows, shape (s, d); None without an encoder
    postings: Postings  # positions are ordinals of summaries

    @property
    def plans(self) -> list[str]:
        """The plans by number, as `arrays().plans` has them."""
        return sorted(set(self.plan_of.values()))

    def arrays(self) -> SummaryArrays:
        """Return summaries, their sources and their plans as arrays."""
        numbers = {plan: number for number, plan in enumerate(self.plans)}
        plans = [self.plan_of.get(s.summary_id) for s in self.summaries]
        lengths = [len(s.source_positions) for s in self.summaries]
        confidences = [1.0 if s.report is None else s.report.confidence for s in self.summaries]
        return SummaryArrays(
            indptr=np.cumsum([0, *lengths], dtype=np.int64),
            sources=np.array([p for s in self.summaries for p in s.source_positions], np.int32),
            confidences=np.clip(np.array(confidences, dtype=np.float64), 0.0, 1.0),
            plans=np.array([OF_TURNS if p is None else numbers[p] for p in plans], np.int32),
        )

    def rows(self) -> Iterator[tuple[str, Iterable[_Row]]]:
        """Yield the rows of every lineage table."""
        yield "summaries", (self._row(i, s) for i, s in enumerate(self.summaries))
        yield (
            "summary_sources",
            (
                (s.summary_id, place, *pair)
                for s in self.summaries
                for place, pair in enumerate(zip(s.source_positions, s.source_ids, strict=True))
            ),
        )
        yield "summary_parents", ()  # only older snapshots have any
        yield "summary_terms", _term_rows(self.postings)

    def _row(self, ordinal: int, s: Summary) -> _Row:
        gate = s.report
        judged = (gate.align, gate.cover, gate.confidence, gate.decay_rate) if gate else (None,) * 4
        facts = None if s.facts is None else s.facts.to_json()
        return (
            ordinal, s.summary_id, s.cluster_id, s.session_id, s.text, s.method, s.first_us,
            s.last_us, s.source_tokens, s.summary_tokens, *judged, facts,
            self.plan_of.get(s.summary_id),
        )  # fmt: skip


def _pack_summaries(inputs: PackInputs) -> SummaryPack:
    vectors, summaries = inputs.summary_vectors, inputs.summaries
    if vectors is not None and len(vectors) != len(summaries):
        raise ValueError(f"found {len(vectors)} vectors for {len(summaries)} summaries")
    order = sorted(range(len(summaries)), key=lambda i: summaries[i].summary_id)
    ordered = [summaries[i] for i in order]
    known = {s.summary_id for s in ordered}
    tokens = (encode_tokens(document_tokens(s.text, "", "", CATEGORY)) for s in ordered)
    return SummaryPack(
        ordered,
        {summary: plan for summary, plan in inputs.plan_of.items() if summary in known},
        None if vectors is None else np.ascontiguousarray(vectors[order], dtype=np.float32),
        # How rare a word is among the memories is how rare it is here.
        build_postings_beside(tokens, inputs.postings),
    )


_SCHEMA, LINEAGE_SCHEMA = (
    Path(__file__).with_name(name).read_text("utf-8") for name in ("rows.sql", "lineage.sql")
)
ROWS_SCHEMA = _SCHEMA + LINEAGE_SCHEMA  # every table of rows.sqlite

_MEMORY_COLUMNS = MemoryRecord._fields


def _write_rows(
    path: Path, inputs: PackInputs, summaries: SummaryPack, meta: Mapping[str, str]
) -> None:
    """Write the SQLite file; one batch of memories is held at a time."""
    with closing(sqlite3.connect(path)) as db:
        # The file is written once, fsynced with the rest of the candidate and never changed.
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=FULL")
        with db:
            db.executescript(ROWS_SCHEMA)
            for batch in column_batches(inputs.records, _MEMORY_COLUMNS):
                columns = (batch.column(name).to_pylist() for name in _MEMORY_COLUMNS)
                _insert(db, "memories", zip(*columns, strict=True))
            _insert(db, "terms", _term_rows(inputs.postings))
            near = ((term, _json(found)) for term, found in inputs.near.items())
            _insert(db, "near_words", near)
            for table, rows in graph_rows(inputs.graph):
                _insert(db, table, rows)
            clusters = (
                (c.cluster_id, c.session_id, c.ordinal, c.first_us, c.last_us, int(c.trivial))
                for c in inputs.clusters
            )
            _insert(db, "clusters", clusters)
            for table, rows in summaries.rows():
                _insert(db, table, rows)
            _insert(db, "meta", sorted(meta.items()))
    # Connections stamp a change counter only on write: a vacuum here would make equal content equal
    # bytes as well, but the fixed insertion order already does.


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[_Row]) -> None:
    width = len(db.execute(f"PRAGMA table_info({table})").fetchall())
    marks = ",".join("?" * width)
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _term_rows(postings: Postings) -> Iterator[_Row]:
    starts = postings.starts.tolist()
    return ((term, starts[i], starts[i + 1]) for i, term in enumerate(postings.terms))


# Everything is written in a fixed order with fixed encodings: equal inputs give equal bytes, hence
# an equal digest.


@dataclass(frozen=True)
class PackInputs:
    """Everything that a snapshot holds, as the stages made it."""

    records: Sequence[MemoryRecord]  # ordered by position from 0; a `RecordFile` is streamed
    vectors: NDArray[np.float32] | None  # unit rows, shape (n, d); None without an encoder
    postings: Postings
    graph: GraphTables
    graph_arrays: GraphArrays
    clusters: Sequence[Cluster]
    summaries: Sequence[Summary]  # accepted ones: of turn clusters, and of plans in force
    summary_vectors: NDArray[np.float32] | None = None  # unit rows, aligned, shape (s, d)
    plan_of: Mapping[str, str] = field(default_factory=dict[str, str])  # by summary id
    tier: PrefixTier | None = None  # where the store is large enough for one
    # By dimensions, the best cosine from which a tier may answer alone, or None.
    exits: Mapping[int, float | None] = field(default_factory=dict[int, "float | None"])
    near: Near = field(default_factory=dict[str, Any])
    shares: Sequence[Share] = ()  # other readers of memories, from the store
    vectors_file: Path | None = None  # `.npy`, instead of `vectors`; copied unchanged


@dataclass(frozen=True)
class Provenance:
    """Where a candidate comes from: fields of its manifest."""

    id_kind: str
    encoder: dict[str, Any] | None
    encoder_digest: str | None
    source: dict[str, Any]
    corpus_digest: str
    settings: dict[str, Any]


def build_candidate(paths: StorePaths, inputs: PackInputs, provenance: Provenance) -> Path:
    """Write a candidate and return its directory, named by its digest; an equal one is kept."""
    # A killed build leaves only a `.building-` directory, which the next build removes.
    paths.candidates.mkdir(parents=True, exist_ok=True)
    for leftover in paths.candidates.glob(".building-*"):
        remove_tree(leftover)
    building = paths.candidates / f".building-{os.getpid()}"
    building.mkdir()
    summaries = _pack_summaries(inputs)
    shares = pack_shares(inputs.records, inputs.shares)
    columns = read_columns(inputs.records)
    if inputs.vectors_file is not None:
        with replacement(building / layout.VECTORS_FILE) as tmp:
            shutil.copyfile(inputs.vectors_file, tmp)
    elif inputs.vectors is not None:
        write_array(building / layout.VECTORS_FILE, inputs.vectors)
    write_arrays(building / layout.ARRAYS_FILE, _arrays(inputs, columns, summaries, shares))
    if inputs.tier is not None:
        exits = {str(dim): inputs.exits[dim] for dim in sorted(inputs.exits)}
        write_text(building / layout.TIER_EXITS_FILE, json.dumps(exits) + "\n")
    meta = _meta(inputs, columns, summaries, shares)
    _write_rows(building / layout.ROWS_FILE, inputs, summaries, meta)
    manifest = _make_manifest(building, inputs, provenance, columns, shares)
    return place_candidate(paths, building, manifest)


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
    if inputs.near:
        counts["near_words"] = len(inputs.near)
    if shares is not None:
        counts["shares"] = int(shares.positions.size)
    return Manifest(
        format_version=formats.SNAPSHOT.version,
        digest=compute_digest(files, counts, provenance.id_kind, provenance.encoder_digest),
        files=files,
        counts=counts,
        warnings=[],
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        **vars(provenance),
    )


def _arrays(
    inputs: PackInputs, columns: MemoryColumns, summaries: SummaryPack, shares: ShareArrays | None
) -> dict[str, NDArray[Any]]:
    """Return every array but the vectors of the memories, by name."""
    found: dict[str, NDArray[Any]] = {
        "created_at_us": columns.created_at_us,
        "importance": columns.importance,
        "reach": find_reach(inputs.records),
    }
    found |= {f"facet.{name}": facet.codes for name, facet in columns.facets.items()}
    for group, postings in (("posting", inputs.postings), ("summary_posting", summaries.postings)):
        found[f"{group}.positions"], found[f"{group}.scores"] = postings.positions, postings.scores
    mentions = to_mention_arrays(inputs.graph)
    sessions = build_sessions(inputs.records, speaking_concepts(mentions))
    kinds = inputs.graph.concepts["kind"].to_pylist()
    groups: dict[str, Any] = {
        "graph": inputs.graph_arrays, "mentions": mentions, "sessions": sessions,
        "rare": find_rare_concepts(mentions, kinds, len(inputs.records)),
        "summary": summaries.arrays(),
    }  # fmt: skip
    if inputs.tier is not None:
        groups["tier"] = inputs.tier
    for group, arrays in groups.items():
        found |= {f"{group}.{name}": array for name, array in arrays._asdict().items()}
    if summaries.vectors is not None:
        found["summary_vectors"] = summaries.vectors
    if shares is not None:
        found |= {"shares.indptr": shares.indptr, "shares.positions": shares.positions}
    return found


def _meta(
    inputs: PackInputs, columns: MemoryColumns, summaries: SummaryPack, shares: ShareArrays | None
) -> Mapping[str, str]:
    values = {
        "relations": json.dumps(list(relations_in_use(inputs.graph_arrays.relations))),
        "summary_plans": json.dumps(summaries.plans),
    }
    for facet, column in columns.facets.items():
        values[f"facet_{facet}"] = json.dumps(column.values, ensure_ascii=False)
    if shares is not None:
        values[layout.SHARED_WITH] = json.dumps(shares.readers, ensure_ascii=False)
    return values
