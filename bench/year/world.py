"""Who lives the year: a memory store that keeps its size, and an agent with a session a day."""

from __future__ import annotations

import json
import random
import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from noctuary_pipelines import sample

MEMORIES = 60
"""Of the memory store, all year."""

KEPT_DAYS = 28
"""How long the agent keeps a transcript; the owner forgets what is older every `FORGET_DAYS`."""

FORGET_DAYS = 14
WING = "yearbook"  # of the sessions and of what is remembered: what is forgotten by age

PROFILES = """[profiles.asking]
query_expansion_enabled = true
replay_log = true
"""
"""What fills the query log and the replays, which are empty otherwise."""

_ADDED = 2  # a day, and as many of the oldest go
_MARK = " (day "


class World:
    """Source, sessions and settings of one year, in a folder; the same seed lives the same year."""

    def __init__(self, folder: Path, model: Path, *, seed: int, altered_on: int) -> None:
        self.home, self.source = folder / "home", folder / "memory.db"
        self.store, self.projects = self.home / "year", folder / "projects"
        self.project = folder / WING
        self._seed, self._altered_on = seed, altered_on
        rows = [r for r in sample.load_rows() if r.category != "turn" and not r.is_sensitive]
        self._pool = sorted({row.content for row in rows if not row.notes})
        self._model = model

    def build(self, now: datetime) -> None:
        """Write the settings and the store of the first day."""
        for folder in (self.store, self.projects, self.project):
            folder.mkdir(parents=True, mode=0o700)
        self.write_settings(self.home)
        with closing(sqlite3.connect(self.source)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(sample.SCHEMA)
            with db:
                for i in range(MEMORIES):
                    _add(db, self._text(-i, 0), now - timedelta(days=MEMORIES - i))

    def write_settings(self, home: Path) -> None:
        """Write the settings of a home that reads these sources."""
        settings = f"""
[encoder]
model = "{self._model}"
[evaluation]
enabled = false
[sources]
notes = "{self.source}"
agent = "transcripts:{self.projects}"
"""
        (home / "noctuary.toml").write_text(settings + PROFILES)

    def edit(self, day: int, now: datetime) -> None:
        """Live one day in the memory store: two new ones, one edited, the two oldest deleted."""
        chance = random.Random(f"{self._seed} edit {day}")
        with closing(sqlite3.connect(self.source)) as db, db:
            if day == self._altered_on:
                db.execute("ALTER TABLE memories ADD COLUMN mood TEXT DEFAULT 'calm'")
                db.execute("PRAGMA user_version = 3")
            for i in range(_ADDED):
                _add(db, self._text(day, i), now)
            ids = [i for (i,) in db.execute("SELECT id FROM memories ORDER BY id")]
            gone, kept = ids[: len(ids) - MEMORIES], ids[len(ids) - MEMORIES :]
            db.executemany("DELETE FROM memories WHERE id = ?", [(i,) for i in gone])
            told = (self._text(day, _ADDED), now.isoformat(), chance.choice(kept))
            db.execute("UPDATE memories SET content = ?, updated_at = ? WHERE id = ?", told)

    def speak(self, day: int, now: datetime) -> tuple[dict[str, Any], str]:
        """Write the day's transcript and drop old ones; return what hooks hear, and the prompt."""
        folder = self.projects / re.sub(r"[^A-Za-z0-9]", "-", str(self.project))
        folder.mkdir(exist_ok=True)
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed} {day}")
        transcript = folder / f"{name}.jsonl"
        prompt = f"Please note: {self._text(day, 11)}"
        answer = [{"type": "text", "text": f"Noted. {self._text(day, 12)}"}]
        said = (("user", prompt), ("assistant", answer))
        parent, lines = None, list[str]()
        for place, (role, content) in enumerate(said):
            line = {
                "parentUuid": parent, "isSidechain": False, "userType": "external",
                "cwd": str(self.project), "sessionId": str(name), "version": "2.1.329",
                "type": role, "message": {"role": role, "content": content, "id": f"{name}{place}"},
                "uuid": str(uuid.uuid5(name, str(place))), "requestId": f"{name}{place}",
                "timestamp": (now + timedelta(seconds=place)).isoformat().replace("+00:00", "Z"),
            }  # fmt: skip
            parent = line["uuid"]
            lines.append(json.dumps(line) + "\n")
        transcript.write_text("".join(lines))
        old = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed} {day - KEPT_DAYS}")
        (folder / f"{old}.jsonl").unlink(missing_ok=True)
        told = {
            "session_id": str(name),
            "transcript_path": str(transcript),
            "cwd": str(self.project),
        }
        return told, prompt

    def note(self, day: int) -> str:
        """Return what the owner tells noctuary itself on a day."""
        return self._text(day, 21)

    def questions(self, count: int) -> list[str]:
        """Return questions for the whole year, in words of the texts that come and go."""
        return [_question(text) for text in self._pool[:: len(self._pool) // count][:count]]

    def _text(self, day: int, place: int) -> str:
        """Return a text of the pool, marked so that no two of the year are equal."""
        chosen = random.Random(f"{self._seed} {day} {place}").choice(self._pool)
        return f"{chosen}{_MARK}{day}.{place})"


def sizes(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield part and bytes of every file of a home; a store's parts are its top-level names."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            parts = path.relative_to(folder).parts
            is_log = path.name.endswith(("-wal", "-shm"))
            name = parts[1] if parts[0] == "year" else parts[0]
            yield "write-ahead logs" if is_log else name, path.stat().st_size


def _add(db: sqlite3.Connection, text: str, created: datetime) -> None:
    moment = created.isoformat()
    sql = "INSERT INTO memories (content, created_at, updated_at, tags) VALUES (?, ?, ?, ?)"
    db.execute(sql, (text, moment, moment, "wing:notes"))


def _question(text: str) -> str:
    words = sorted(set(re.findall(r"[A-Za-z]{4,}", text)), key=len)[-5:]
    return f"What about {' '.join(words)}?"
