"""The SQLite file of a serving pack: texts, names, lineage. Build side.

What belongs here: its schema and the order in which rows go in. What does not: arrays (`build`),
the rows of the graph (`graph_rows`) and of summaries (`summary_pack`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from noctuary.compact.clusters import Cluster
from noctuary.corpus.record_file import column_batches
from noctuary.graph.tables import GraphTables
from noctuary.lexical.postings import Postings
from noctuary.snapshot.graph_rows import graph_rows
from noctuary.snapshot.summary_pack import LINEAGE_SCHEMA, SummaryPack
from noctuary.types import MemoryRecord

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
