"""Real claude-memory sources for tests: the SQLite cache and the PostgreSQL server's database.

The shapes are those of research/peers.md 2.1 and 2.2 (the sample store's builder holds the first).
"""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mnemon.corpus.export import export_corpus, read_records
from mnemon.corpus.source import open_source
from mnemon.curate.model import Proposal
from mnemon.curate.propose import Materials, propose
from mnemon.graph.extract import extract
from mnemon.types import MemoryRecord

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"
DATE = "2026-03-01T12:00:00+00:00"

# `embedding` is halfvec(1024) where the server has pgvector; here only that it is a column counts.
POSTGRES_SCHEMA = """
CREATE TABLE memories (
    id SERIAL PRIMARY KEY,
    content TEXT NOT NULL,
    category VARCHAR(50) DEFAULT 'facts',
    tags TEXT DEFAULT '',
    expanded_keywords TEXT DEFAULT '',
    importance REAL DEFAULT 0.5,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    search_vector tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('english', content), 'A')
        || setweight(to_tsvector('english', coalesce(tags, '')), 'C')) STORED,
    user_id VARCHAR(100) NOT NULL DEFAULT 'default',
    is_sensitive BOOLEAN DEFAULT false,
    vault_path TEXT,
    encrypted_content BYTEA,
    deleted_at TIMESTAMPTZ,
    embedding REAL[]
);
CREATE INDEX idx_memories_search ON memories USING gin (search_vector);
CREATE INDEX idx_memories_user ON memories (user_id);
CREATE INDEX idx_memories_updated ON memories (updated_at);
"""

Row = Mapping[str, object]


def sample_builder() -> Any:
    """Return data/sample/build.py as a module."""
    name = "mnemon_sample_build"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SAMPLE / "build.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def make_sqlite(path: Path, rows: Iterable[Row], *, extra_columns: Sequence[str] = ()) -> Path:
    """Make a claude-memory cache of version 2 in WAL mode, with its triggers and pending_ops."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(sample_builder().SCHEMA)
        db.execute("PRAGMA user_version = 2")
        for column in extra_columns:
            db.execute(f"ALTER TABLE memories ADD COLUMN {column}")
        for row in rows:
            full = {"content": "text", "created_at": DATE, "updated_at": DATE, **row}
            names, marks = ", ".join(full), ", ".join("?" * len(full))
            db.execute(f"INSERT INTO memories({names}) VALUES ({marks})", tuple(full.values()))
        db.commit()
    return path


def table_of(path: Path, table: str = "memories") -> list[tuple[Any, ...]]:
    """Return every row of a table, with the storage class of every value."""
    with closing(sqlite3.connect(path)) as db:
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        shown = ", ".join(f'"{name}", typeof("{name}")' for name in names)
        return db.execute(f"SELECT {shown} FROM {table} ORDER BY 1").fetchall()


def found_by_words(path: Path, words: str) -> list[int]:
    """Return the ids that the store's own full-text search finds, after its integrity check."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO memories_fts(memories_fts) VALUES ('integrity-check')")
        sql = "SELECT rowid FROM memories_fts WHERE memories_fts MATCH ? ORDER BY rowid"
        return [int(row[0]) for row in db.execute(sql, (words,))]


def records_of(source: Path, directory: Path) -> list[MemoryRecord]:
    """Export a source and return its memories."""
    with open_source(source) as opened:
        export_corpus(opened, directory)
    return read_records(directory)


def proposals_for(records: Sequence[MemoryRecord]) -> list[Proposal]:
    """Return what a night without vectors and successors would propose."""
    found = [
        extract(r.content, r.category, r.tags, r.expanded_keywords, is_turn=r.is_turn)
        for r in records
    ]
    return propose(Materials(records, found, (), {}, None))
