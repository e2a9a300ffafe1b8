"""What real agents wrote while they were driven: files of tests/golden/agents in their places."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "agents"
_SCHEMA = """
CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT NOT NULL,
    title TEXT NOT NULL, version TEXT NOT NULL, revert TEXT, time_created INTEGER NOT NULL,
    time_updated INTEGER NOT NULL);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, time_created INTEGER NOT NULL,
    time_updated INTEGER NOT NULL, data TEXT NOT NULL);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT NOT NULL, session_id TEXT NOT NULL,
    time_created INTEGER NOT NULL, time_updated INTEGER NOT NULL, data TEXT NOT NULL);
"""
_PLACES = {
    "gemini-0.61.0-resumed.jsonl": "tmp/fountain/chats/session-2026-11-28T16-59-73f8ee59.jsonl",
    "gemini-0.61.0-loop.jsonl": "tmp/fountain/chats/session-2026-11-28T17-41-6f1e1133.jsonl",
    "gemini-0.61.0-terminal.jsonl": "tmp/fountain/chats/session-2026-11-28T17-05-a82a1a52.jsonl",
    "gemini-0.61.0-subagent.jsonl": "tmp/fountain/chats/a82a1a52-0c87/7d063d64.jsonl",
    "gemini-0.24.0.json": f"tmp/{'b3d4' * 16}/chats/session-2026-11-28T17-12-9f21d136.json",
    "qwen-0.1.4.json": f".qwen/tmp/{'658e' * 16}/chats/session-2026-11-28T17-12-860604b3.json",
}


def place(root: Path, *names: str) -> Path:
    """Put files that an agent wrote where it keeps them, below a folder; return the folder."""
    for name in names:
        if name.startswith("opencode-1.1."):
            for below, value in json.loads((GOLDEN / name).read_text("utf-8")).items():
                file = root / "storage" / below
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(value), encoding="utf-8")
        elif name.startswith("opencode"):
            fill_opencode(root / "opencode.db", json.loads((GOLDEN / name).read_text("utf-8")))
        else:
            target = root / _PLACES.get(name, f"projects/-home-me-src-fountain/chats/{name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(GOLDEN / name, target)
    return root


def fill_opencode(path: Path, tables: dict[str, Sequence[Sequence[Any]]]) -> None:
    """Put rows into a database of OpenCode, made if there is none, as its writer does: in WAL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        if is_new:
            db.executescript(_SCHEMA)
        with db:
            for table, rows in tables.items():
                for row in rows:
                    marks = ", ".join("?" * len(row))
                    db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
