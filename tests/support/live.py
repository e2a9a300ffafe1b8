"""A real claude-memory store whose snapshot serves, and edits to it behind the snapshot's back."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noctuary.core.tombstones import read_tombstones
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
from tests.support.store import Store

SCHEMA = """
CREATE TABLE memories(id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL,
  category TEXT DEFAULT 'facts', tags TEXT DEFAULT '', expanded_keywords TEXT DEFAULT '',
  importance REAL DEFAULT 0.5, is_sensitive INTEGER DEFAULT 0, created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL, server_id INTEGER);
CREATE UNIQUE INDEX idx_memories_server_id ON memories(server_id);
PRAGMA user_version = 2;
"""

LONG_AGO = "2026-01-05T10:00:00+00:00"

ROWS: tuple[Mapping[str, Any], ...] = (
    {"content": "The spare key hangs behind the blue door.", "tags": "wing:home,room:hall"},
    {"content": "The feline eats twice a day.", "tags": "wing:home,room:kitchen"},
    {"content": "Atlas migration: take a backup before the schema change.", "tags": "wing:work"},
    {"content": "Nina leads the Atlas migration and starts in May.", "tags": "wing:work"},
    {"content": "The boiler needs a new valve before winter.", "tags": "wing:home"},
    {"content": "Ana keeps her door code in the red notebook.", "tags": "user:ana"},
    {"content": "Ben keeps his door code in the car.", "tags": "user:ben"},
    {"content": "The night train to Vienna leaves at nine.", "category": "plans"},
)
"""Ids from 1."""


def now_text() -> str:
    """Return the clock as the store's clients write it."""
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True)
class Cache:
    """A claude-memory store that people write to."""

    path: Path

    def run(self, sql: str, *values: Any) -> None:
        """Write one statement, committed and checkpointed as by a client that ends."""
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(sql, values)

    def add(self, content: str, **fields: Any) -> int:
        """Store a memory; its id."""
        row = {"created_at": now_text(), "updated_at": now_text(), **fields, "content": content}
        with closing(sqlite3.connect(self.path)) as db, db:
            names, marks = ", ".join(row), ",".join("?" * len(row))
            found = db.execute(f"INSERT INTO memories({names}) VALUES({marks})", [*row.values()])
            assert found.lastrowid is not None
            return found.lastrowid

    def edit(self, key: int, **fields: Any) -> None:
        """Change a memory as a client does."""
        row = {"updated_at": now_text(), **fields}
        self.run(f"UPDATE memories SET {', '.join(f'{n} = ?' for n in row)} WHERE id = ?",
                 *row.values(), key)  # fmt: skip

    def delete(self, key: int) -> None:
        """Remove a memory; claude-memory leaves no tombstone in a local store."""
        self.run("DELETE FROM memories WHERE id = ?", key)


def make_cache(path: Path, rows: Sequence[Mapping[str, Any]] = ROWS, *, wal: bool = True) -> Cache:
    """Return a store with these memories, all of long ago."""
    with closing(sqlite3.connect(path)) as db:
        if wal:
            db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SCHEMA)
    cache = Cache(path)
    for row in rows:
        cache.add(**{"created_at": LONG_AGO, "updated_at": LONG_AGO, **row})
    return cache


def age(path: Path, seconds: float = 3_600.0) -> None:
    """Set a store's time of change back, as if nobody had written since."""
    then = time.time() - seconds
    for file in (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            os.utime(file, (then, then))


def publish_from(cache: Cache, store: Store, **known: Any) -> str:
    """Publish what the store holds now, by the export of a night; the snapshot's id.

    Args:
        cache: The store that is read.
        store: Where it is published.
        known: In the place of what the night tells about the reading.
    """
    read_us = time.time_ns() // 1000
    with open_source(cache.path) as source:
        gone = read_tombstones(store.root)
        report = export_corpus(source, store.paths.work / "corpus", forgotten=gone)
    marker = report.identity.marker
    told = {"rows": marker["rows"], "last_id": marker["last_id"], "read_us": read_us, **known}
    location, kind = report.identity.location, report.identity.kind
    return store.publish(
        read_records(store.paths.work / "corpus"),
        source={"kind": kind, "schema_version": "2", "location": location, **told},
    )
