"""Real claude-memory sources for tests: the SQLite cache and the PostgreSQL server's database.

The shapes are those of research/peers.md 2.1 and 2.2 (the sample store's builder holds the first).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString, cast

from noctuary.core.types import MemoryRecord
from noctuary.curate.finders import Materials, propose
from noctuary.curate.proposals import Proposal
from noctuary.graph.extract import extract
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
from noctuary.sources.source import Source
from noctuary_pipelines import sample

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

# What each migration of the server adds (research/peers.md 2.2); the tables as they are there.
MIGRATIONS = {
    "001": """
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
                || setweight(to_tsvector('english', coalesce(expanded_keywords, '')), 'B')
                || setweight(to_tsvector('english', coalesce(tags, '')), 'C')
                || setweight(to_tsvector('english', coalesce(category, '')), 'D')) STORED);
        CREATE INDEX idx_memories_search ON memories USING gin (search_vector);""",
    "002": """
        ALTER TABLE memories ADD COLUMN user_id VARCHAR(100) NOT NULL DEFAULT 'default',
            ADD COLUMN is_sensitive BOOLEAN DEFAULT false, ADD COLUMN vault_path TEXT,
            ADD COLUMN encrypted_content BYTEA;
        CREATE INDEX idx_memories_user ON memories (user_id);""",
    "003": """
        ALTER TABLE memories ADD COLUMN deleted_at TIMESTAMPTZ;
        CREATE INDEX idx_memories_updated ON memories (updated_at);""",
    "004": """
        CREATE TABLE memory_shares (
            id SERIAL PRIMARY KEY, memory_id INTEGER NOT NULL REFERENCES memories (id),
            owner_id VARCHAR(100) NOT NULL, shared_with VARCHAR(100) NOT NULL,
            permission VARCHAR(10) NOT NULL DEFAULT 'read', created_at TIMESTAMPTZ DEFAULT now(),
            UNIQUE (memory_id, shared_with));
        CREATE TABLE tag_shares (
            id SERIAL PRIMARY KEY, owner_id VARCHAR(100) NOT NULL, tag VARCHAR(100) NOT NULL,
            shared_with VARCHAR(100) NOT NULL, permission VARCHAR(10) NOT NULL DEFAULT 'read',
            created_at TIMESTAMPTZ DEFAULT now(), UNIQUE (owner_id, tag, shared_with));""",
    "005": """
        CREATE TABLE concepts (
            id SERIAL PRIMARY KEY, canonical_name TEXT NOT NULL UNIQUE,
            aliases TEXT[] NOT NULL DEFAULT '{}', category VARCHAR(50) NOT NULL DEFAULT 'concept',
            created_at TIMESTAMPTZ DEFAULT now());
        CREATE TABLE concept_edges (
            id SERIAL PRIMARY KEY,
            src_id INTEGER NOT NULL REFERENCES concepts (id) ON DELETE CASCADE,
            dst_id INTEGER NOT NULL REFERENCES concepts (id) ON DELETE CASCADE,
            relation VARCHAR(50) NOT NULL, weight INTEGER NOT NULL DEFAULT 0,
            evidence_memory_ids INTEGER[] NOT NULL DEFAULT '{}',
            UNIQUE (src_id, dst_id, relation));
        CREATE TABLE memory_concepts (
            id SERIAL PRIMARY KEY,
            memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
            concept_id INTEGER NOT NULL REFERENCES concepts (id) ON DELETE CASCADE,
            relation VARCHAR(50) NOT NULL, UNIQUE (memory_id, concept_id, relation));""",
    "006": """
        CREATE TABLE memory_links (
            id SERIAL PRIMARY KEY, user_id TEXT NOT NULL,
            src_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
            dst_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
            link_type TEXT NOT NULL
                CHECK (link_type IN ('part-of', 'supersedes', 'see-also', 'resolved-by')),
            created_at TIMESTAMPTZ DEFAULT now(), UNIQUE (user_id, src_id, dst_id, link_type));
        CREATE INDEX idx_memory_links_user_src ON memory_links (user_id, src_id);
        CREATE INDEX idx_memory_links_user_dst ON memory_links (user_id, dst_id);""",
}

# Of migration 005, where the server has pgvector.
VECTORS = """
    ALTER TABLE memories ADD COLUMN embedding {halfvec};
    ALTER TABLE concepts ADD COLUMN embedding {halfvec};"""

# A type of the same name and length where this machine has no package of pgvector.
STAND_IN = """
    CREATE DOMAIN halfvec AS REAL[] CHECK (value IS NULL OR array_length(value, 1) = 1024);"""


def migrations(version: str = "006", *, vectors: str = "") -> str:
    """Return the statements that make an empty database of one migration.

    Args:
        version: "001" to "006".
        vectors: "" as on a server without pgvector, "stand-in" for a type of the same name,
            "extension" for the real one.
    """
    statements = [sql for number, sql in MIGRATIONS.items() if number <= version]
    if vectors == "stand-in":
        statements += [STAND_IN, VECTORS.format(halfvec="halfvec")]
    elif vectors == "extension":
        statements += ["CREATE EXTENSION vector;", VECTORS.format(halfvec="halfvec(1024)")]
    return "".join(statements)


def fill_database(dsn: str, rows: Iterable[Row], *, schema: str | None = None) -> str:
    """Make a database hold nothing but an empty schema and some rows; return its address.

    Args:
        dsn: Of a database whose schema `public` may go.
        rows: Of `memories`.
        schema: Statements; None means every migration, without vectors.
    """
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as db:
        # Quicker than a database of its own by a second.
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")
        db.execute(cast("LiteralString", migrations() if schema is None else schema))
    insert_rows(dsn, "memories", rows)
    return dsn


def insert_rows(dsn: str, table: str, rows: Iterable[Row]) -> None:
    """Insert rows into a table of a database, in one transaction."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(dsn) as db:
        for row in rows:
            columns = sql.SQL(", ").join(map(sql.Identifier, row))
            marks = sql.SQL(", ").join(sql.Placeholder() * len(row))
            statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
            db.execute(statement.format(sql.Identifier(table), columns, marks), tuple(row.values()))


Row = Mapping[str, object]


def make_sqlite(path: Path, rows: Iterable[Row], *, extra_columns: Sequence[str] = ()) -> Path:
    """Make a claude-memory cache of version 2 in WAL mode, with its triggers and pending_ops."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(sample.SCHEMA)
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
    found = [extract(r.content, r.tags, r.expanded_keywords, is_turn=r.is_turn) for r in records]
    return propose(Materials(records, found, (), {}, None))


def check_rows_of(source: Source) -> None:
    """Check that rows of a source are found by their ids as well."""
    rows = list(source.rows())
    for key in dict.fromkeys(
        row.key for row in rows[:: len(rows) // 40 + 1] if row.key is not None
    ):
        assert list(source.rows_of(str(key))) == [row for row in rows if row.key == key]
    assert not list(source.rows_of("no such id"))
