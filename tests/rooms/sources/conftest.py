from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import read_records
from noctuary.sources.evidence import write_evidence
from noctuary.sources.export import ExportReport, export_corpus
from noctuary.sources.open import open_source
from tests.support.claude_memory import check_rows_of
from tests.support.transcripts import ClaudeSession, Folder, said_session

# The columns of the two schema versions of claude-memory's local store.
_COLUMNS = """
    id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL, category TEXT DEFAULT 'facts',
    tags TEXT DEFAULT '', expanded_keywords TEXT DEFAULT '', importance REAL DEFAULT 0.5,
    is_sensitive INTEGER DEFAULT 0, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
"""
_DATE = "2025-03-01T12:00:00+00:00"

Exported = Callable[[Path], tuple[ExportReport, Mapping[str, MemoryRecord]]]
MakeStore = Callable[..., Path]
MakeJsonl = Callable[..., Path]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    """Make a claude-memory store; `user_version` 2 has server_id."""

    def make(
        rows: Iterable[Mapping[str, object]] = (),
        *,
        path: Path | None = None,
        user_version: int = 2,
        wal: bool = True,
        extra_columns: str = "",
    ) -> Path:
        path = path or tmp_path / "memory.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        server = ", server_id INTEGER" if user_version >= 2 else ""
        db = sqlite3.connect(path)
        if wal:
            db.execute("PRAGMA journal_mode = WAL")
        # As damaged stores have it: NULL where the schema forbids it.
        columns = _COLUMNS.replace(" NOT NULL", "")
        db.execute(f"CREATE TABLE memories({columns}{server}{extra_columns})")
        for row in rows:
            full = {"content": "text", "created_at": _DATE, "updated_at": _DATE, **row}
            names, marks = ", ".join(full), ", ".join("?" * len(full))
            db.execute(f"INSERT INTO memories({names}) VALUES ({marks})", tuple(full.values()))
        db.execute(f"PRAGMA user_version = {user_version}")
        db.commit()
        db.close()
        return path

    return make


@pytest.fixture
def make_jsonl(tmp_path: Path) -> MakeJsonl:
    """Write lines: mappings as JSON, bytes as they are; gzip by the name's end."""

    def make(
        lines: Iterable[Mapping[str, object] | bytes],
        name: str = "corpus.jsonl",
        *,
        end: bytes = b"\n",
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = [x if isinstance(x, bytes) else json.dumps(x).encode() for x in lines]
        data = b"\n".join(raw) + (end if raw else b"")
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        return path

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def session() -> ClaudeSession:
    return said_session()


@pytest.fixture
def exported(tmp_path: Path) -> Exported:
    """Export what is at a path, with its evidence; returns the account and memories by id."""

    def export(path: Path) -> tuple[ExportReport, Mapping[str, MemoryRecord]]:
        with open_source(path) as source:
            check_rows_of(source)
            report = export_corpus(source, tmp_path / "out")
            write_evidence(source, tmp_path / "out")
        return report, {record.memory_id: record for record in read_records(tmp_path / "out")}

    return export
