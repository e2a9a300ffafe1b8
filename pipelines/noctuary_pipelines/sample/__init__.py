"""The sample memory store: a claude-memory-shaped SQLite file made from hand-written texts.

Everything that varies is frozen in ``texts/*.jsonl`` (ids, timestamps, tags) except ``server_id``,
which is drawn here with a fixed seed. Nothing reads the clock, so two builds hold equal rows.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
TEXTS = HERE / "texts"
QUERIES = HERE / "queries.jsonl"
"""Labelled queries; a night finds them beside the store that it reads."""

SEED = 20261115
SERVER_ID_SHARE = 0.10
SERVER_ID_BASE = 40_000
USER_VERSION = 2
MAX_CONTENT = 1_400

SCHEMA = """
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content TEXT NOT NULL,
    category TEXT DEFAULT 'facts',
    tags TEXT DEFAULT '',
    expanded_keywords TEXT DEFAULT '',
    importance REAL DEFAULT 0.5,
    is_sensitive INTEGER DEFAULT 0,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    server_id INTEGER
);
CREATE UNIQUE INDEX idx_memories_server_id ON memories(server_id);
CREATE VIRTUAL TABLE memories_fts USING fts5(
    content, category, tags, expanded_keywords,
    content='memories', content_rowid='id'
);
CREATE TRIGGER memories_ai AFTER INSERT ON memories BEGIN
    INSERT INTO memories_fts(rowid, content, category, tags, expanded_keywords)
    VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
END;
CREATE TRIGGER memories_ad AFTER DELETE ON memories BEGIN
    INSERT INTO memories_fts(memories_fts, rowid, content, category, tags, expanded_keywords)
    VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
END;
CREATE TRIGGER memories_au AFTER UPDATE ON memories BEGIN
    INSERT INTO memories_fts(memories_fts, rowid, content, category, tags, expanded_keywords)
    VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
    INSERT INTO memories_fts(rowid, content, category, tags, expanded_keywords)
    VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
END;
CREATE TABLE pending_ops (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    op_type TEXT,
    payload TEXT,
    created_at TEXT,
    retry_count INTEGER DEFAULT 0
);
"""

INSERT = """
INSERT INTO memories (id, content, category, tags, expanded_keywords, importance, is_sensitive,
                      created_at, updated_at, server_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Row(NamedTuple):
    """One row of ``memories`` plus the labels that stay in the text files (``notes``)."""

    id: int
    content: str
    category: str
    tags: str
    expanded_keywords: str
    importance: float
    is_sensitive: int
    created_at: str
    updated_at: str
    notes: tuple[str, ...]

    def tag_values(self, prefix: str) -> list[str]:
        """Return what follows ``prefix:`` in each tag that carries it."""
        head = prefix + ":"
        return [t.removeprefix(head) for t in self.tags.split(",") if t.startswith(head)]


def _parse(line: str) -> Row:
    """Turn one JSONL line into a Row, with the defaults of the schema."""
    raw = json.loads(line)
    created = str(raw["created_at"])
    return Row(
        id=int(raw["id"]),
        content=str(raw["content"]),
        category=str(raw.get("category", "facts")),
        tags=str(raw.get("tags", "")),
        expanded_keywords=str(raw.get("expanded_keywords", "")),
        importance=float(raw.get("importance", 0.5)),
        is_sensitive=int(raw.get("is_sensitive", 0)),
        created_at=created,
        updated_at=str(raw.get("updated_at", created)),
        notes=tuple(raw.get("notes", ())),
    )


def load_rows(texts: Path = TEXTS) -> list[Row]:
    """Read every text file and return the rows by id; raise ValueError on a broken one."""
    rows: list[Row] = []
    for path in sorted(texts.glob("*.jsonl")):
        # Split on "\n" only: splitlines() would also break at U+2028 and the like.
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line:
                rows.append(_parse(line))
    rows.sort(key=lambda row: row.id)
    if len({row.id for row in rows}) != len(rows):
        raise ValueError("two rows share an id")
    for row in rows:
        if len(row.content) > MAX_CONTENT:
            raise ValueError(f"row {row.id}: content longer than {MAX_CONTENT} characters")
        if row.updated_at < row.created_at:
            raise ValueError(f"row {row.id}: updated before it was created")
    return rows


def _server_ids(rows: Sequence[Row]) -> dict[int, int]:
    """Draw which rows were synced and under which server id (fixed seed, no two equal)."""
    rng = random.Random(SEED)
    synced = [row.id for row in rows if rng.random() < SERVER_ID_SHARE]
    chosen: dict[int, int] = {}
    next_id = SERVER_ID_BASE
    for row_id in synced:
        next_id += 1 + int(rng.random() * 9)
        chosen[row_id] = next_id
    return chosen


def _remove_old(out: Path) -> None:
    """Delete an earlier build and its WAL side files."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{out}{suffix}").unlink(missing_ok=True)


def count(rows: Sequence[Row], server_ids: dict[int, int]) -> dict[str, int]:
    """Count what was built: totals, ``wing:NAME`` and ``session:ID`` entries."""
    counts: Counter[str] = Counter()
    counts["rows"] = len(rows)
    counts["turns"] = sum(row.category == "turn" for row in rows)
    counts["memories"] = counts["rows"] - counts["turns"]
    counts["sensitive"] = sum(row.is_sensitive for row in rows)
    counts["with_server_id"] = len(server_ids)
    for row in rows:
        for prefix in ("wing", "session"):
            counts.update(f"{prefix}:{value}" for value in row.tag_values(prefix))
    return dict(sorted(counts.items()))


def build(out: Path) -> dict[str, int]:
    """Write the sample store to ``out`` (replacing an earlier build) and return its counts."""
    rows = load_rows()
    server_ids = _server_ids(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    _remove_old(out)
    conn = sqlite3.connect(out)
    try:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.executescript(SCHEMA)
        with conn:
            conn.executemany(
                INSERT,
                [
                    (
                        row.id,
                        row.content,
                        row.category,
                        row.tags,
                        row.expanded_keywords,
                        row.importance,
                        row.is_sensitive,
                        row.created_at,
                        row.updated_at,
                        server_ids.get(row.id),
                    )
                    for row in rows
                ],
            )
        conn.execute(f"PRAGMA user_version = {USER_VERSION}")
    finally:
        conn.close()
    return count(rows, server_ids)


def place_sample(directory: Path) -> Path:
    """Return the sample store of a directory, `memory.db`; both are made where they are missing."""
    database = directory / "memory.db"
    if not database.is_file():
        begun = database.with_name("memory.db.begun")
        build(begun)
        shutil.copyfile(QUERIES, directory / QUERIES.name)
        begun.replace(database)  # a build that was stopped is no sample
    return database
