"""The home directory of somebody who uses several memories, each file as its tool writes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.support.live import make_cache
from tests.support.palaces import drawer, make_palace
from tests.support.transcripts import CodexSession, said_session, write_session

SECRET = "hunter2-canary-laptop"
SETTINGS = b'{\n    "model": "opus",  \n    "theme": "dark"\n}'
"""Claude Code's: no tool would write it in this form."""


def make_laptop(home: Path) -> Path:
    """Make two agents with sessions, a claude-memory store and palaces in both places."""
    write_session(home / ".claude/projects/-home-me-shop/a.jsonl", said_session().lines)
    said = CodexSession()
    said.user("Which port does Redis use in staging?")
    said.assistant("Redis runs on port 6380 in staging.")
    said.user(f"The password = {SECRET}")
    write_session(home / ".codex/sessions/2026/01/02/rollout-1.jsonl", said.lines)
    make_palace(
        home / ".mempalace/palace",
        [
            drawer("d1", "The cache was Memcached until March."),
            drawer("d2", f"password = {SECRET}"),
            drawer("d3", None),
        ],
    )
    make_palace(home / ".mempalace", [drawer("e1", "Dana Whitfield signs off releases.")])
    (home / ".claude/claude-memory/memory").mkdir(parents=True)
    make_cache(home / ".claude/claude-memory/memory/memory.db")
    (home / ".claude/settings.json").write_bytes(SETTINGS)
    (home / ".claude.json").write_text('{"numStartups": 3}', encoding="utf-8")
    (home / ".codex/config.toml").write_text("# mine\nmodel = 'o'", encoding="utf-8")
    (home / ".cursor").mkdir()
    notes = home / ".claude/projects/-home-me-shop/memory"
    notes.mkdir()
    (notes / "MEMORY.md").write_text("# Shop\nThe tax office is in Flensburg.\n", encoding="utf-8")
    (home / ".claude/CLAUDE.md").write_text("- Always run ruff first.\n", encoding="utf-8")
    # What init must pass over with a word.
    (home / ".claude-mem").mkdir()
    with closing(sqlite3.connect(home / ".claude-mem/claude-mem.db")) as db:
        db.execute("CREATE TABLE unheard_of (id INTEGER)")
    return home


def files_of(home: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file but noctuary's, caches, and what SQLite's readers leave beside a store."""
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        is_other = name.startswith((".local", ".cache")) or name.endswith(("-wal", "-shm"))
        if path.is_file() and not is_other:
            yield name, path.read_bytes()
