"""Random scripts of edits, as owners, agents and servers make them between two nights.

One script runs on any store that can be edited: a claude-memory cache (`CacheStore`) and a
claude-memory PostgreSQL database (`PostgresStore`).
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString, NamedTuple, Protocol, cast

from hypothesis import strategies as st

from tests.support.claude_memory import fill_database

MINUTE_US = 60_000_000
INSIDE_US = 5 * MINUTE_US
OUTSIDE_US = 600 * MINUTE_US

KINDS = (
    "insert", "insert", "edit", "edit", "tag", "delete", "soft_delete", "restore", "flag",
    "flag_back", "vault", "vault_back", "placeholder", "secret", "duplicate", "undated", "future",
    "reuse_id", "touch",
)  # fmt: skip
AGES = (0, 0, 0, INSIDE_US, OUTSIDE_US)


class Edit(NamedTuple):
    """One edit.

    Attributes:
        kind: One of KINDS.
        pick: Chooses the row among those that are there.
        age_us: How long ago it says it was made, when it becomes visible.
    """

    kind: str
    pick: int
    age_us: int


class EditedStore(Protocol):
    """A store that a script can be run on."""

    def ids(self) -> list[int]:
        """Return the ids that are there."""
        ...

    def content_of(self, key: int) -> str:
        """Return a content."""
        ...

    def insert(self, content: str, *, age_us: int = 0, key: int | None = None) -> None:
        """Add a row."""
        ...

    def update(self, key: int, columns: Mapping[str, Any], *, age_us: int = 0) -> None:
        """Change columns of a row; `updated_us` and `deleted_us` among them are moments."""
        ...

    def delete(self, key: int) -> None:
        """Remove a row without a trace."""
        ...

    def now_us(self) -> int:
        """Return the store's clock."""
        ...


EDIT = st.builds(Edit, st.sampled_from(KINDS), st.integers(0, 50), st.sampled_from(AGES))
NIGHTS = st.lists(st.lists(EDIT, max_size=8), min_size=1, max_size=5)
"""The edits before each night."""


class Editor:
    """Runs edits on a store; every text it writes holds a word of its own."""

    def __init__(self, store: EditedStore, rows: int = 6) -> None:
        self.store = store
        self._words = (f"word{number:05d}x" for number in itertools.count())
        for _ in range(rows):
            store.insert(self._text())

    def apply(self, edit: Edit) -> None:
        """Make one edit; one that finds no row does nothing."""
        ids = self.store.ids()
        if edit.kind == "insert" or not ids:
            self.store.insert(self._text(), age_us=edit.age_us)
            return
        key = ids[edit.pick % len(ids)]
        if edit.kind == "duplicate":
            self.store.insert(self.store.content_of(key), age_us=edit.age_us)
        elif edit.kind == "delete":
            self.store.delete(key)
        elif edit.kind == "reuse_id":
            self.store.delete(key)
            self.store.insert(self._text(), age_us=edit.age_us, key=key)
        else:
            self.store.update(key, self._columns(edit.kind), age_us=edit.age_us)

    def _text(self) -> str:
        return f"The {next(self._words)} was moved to the shelf beside the door."

    def _columns(self, kind: str) -> dict[str, Any]:
        now_us = self.store.now_us()
        return {
            "edit": {"content": self._text()},
            "tag": {"tags": f"wing:{next(self._words)}"},
            "soft_delete": {"deleted_us": now_us},
            "restore": {"deleted_us": None},
            "flag": {"is_sensitive": True},
            "flag_back": {"is_sensitive": False},
            "vault": {"vault_path": "secret/of/mine"},
            "vault_back": {"vault_path": None},
            "placeholder": {"content": f"[REDACTED: {next(self._words)}]"},
            "secret": {"content": f"{next(self._words)} AKIA{'Q7XZ2MPL4RTWN6BD'}"},
            "undated": {"content": self._text(), "updated_us": None},
            "future": {"content": self._text(), "updated_us": now_us + 900 * MINUTE_US},
            "touch": {},
        }[kind]


class PostgresStore:
    """A claude-memory database of a throw-away cluster; its clock is the server's."""

    def __init__(self, dsn: str) -> None:
        import psycopg

        self._db = psycopg.connect(fill_database(dsn, []), autocommit=True)
        # As damaged stores have it.
        self._do("ALTER TABLE memories ALTER COLUMN updated_at DROP NOT NULL")

    def now_us(self) -> int:
        """Return the server's clock."""
        return int(self._do("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint")[0][0])

    def ids(self) -> list[int]:
        """Return the ids that are there."""
        return [int(key) for (key,) in self._do("SELECT id FROM memories ORDER BY id")]

    def content_of(self, key: int) -> str:
        """Return a content."""
        return str(self._do("SELECT content FROM memories WHERE id = %s", key)[0][0])

    def insert(self, content: str, *, age_us: int = 0, key: int | None = None) -> None:
        """Add a row."""
        moment = _moment(self.now_us() - age_us)
        sql = "INSERT INTO memories ({}content, created_at, updated_at) VALUES ({}%s, %s, %s)"
        values = (content, moment, moment)
        if key is None:
            self._do(sql.format("", ""), *values)
        else:
            self._do(sql.format("id, ", "%s, "), key, *values)

    def update(self, key: int, columns: Mapping[str, Any], *, age_us: int = 0) -> None:
        """Change columns of a row."""
        values: dict[str, Any] = {"updated_us": self.now_us() - age_us, **columns}
        for name in ("updated", "deleted"):
            if f"{name}_us" in values:
                moment_us = values.pop(f"{name}_us")
                values[f"{name}_at"] = None if moment_us is None else _moment(moment_us)
        names = ", ".join(f"{name} = %s" for name in values)
        self._do(f"UPDATE memories SET {names} WHERE id = %s", *values.values(), key)

    def delete(self, key: int) -> None:
        """Remove a row without a trace."""
        self._do("DELETE FROM memories WHERE id = %s", key)

    def fill(self, columns: str, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows, ids included; what is inserted later gets a greater one."""
        marks = ", ".join(["%s"] * len(columns.split(",")))
        for row in rows:
            self._do(f"INSERT INTO memories ({columns}) VALUES ({marks})", *row)
        self._do("SELECT setval('memories_id_seq', (SELECT max(id) FROM memories))")

    def close(self) -> None:
        """Leave the server."""
        self._db.close()

    def _do(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        found = self._db.execute(cast("LiteralString", sql), values)
        return found.fetchall() if found.description else []


class CacheStore:
    """A claude-memory cache, which is read as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now_us(self) -> int:
        """Return a moment of the sample's last week."""
        return 1_795_000_000_000_000

    def ids(self) -> list[int]:
        """Return the ids that are there."""
        return [int(key) for (key,) in self._do("SELECT id FROM memories ORDER BY id")]

    def content_of(self, key: int) -> str:
        """Return a content."""
        return str(self._do("SELECT content FROM memories WHERE id = ?", key)[0][0])

    def insert(self, content: str, *, age_us: int = 0, key: int | None = None) -> None:
        """Add a row."""
        moment = _moment(self.now_us() - age_us).isoformat()
        sql = "INSERT INTO memories (id, content, created_at, updated_at) VALUES (?, ?, ?, ?)"
        self._do(sql, key, content, moment, moment)

    def update(self, key: int, columns: Mapping[str, Any], *, age_us: int = 0) -> None:
        """Change columns; a cache has no tombstones: what is deleted softly goes."""
        if columns.get("deleted_us"):
            self.delete(key)
            return
        kept = {k: v for k, v in columns.items() if not k.endswith("_us")}
        values = {"updated_at": _moment(self.now_us() - age_us).isoformat(), **kept}
        names = ", ".join(f"{name} = ?" for name in values)
        self._do(f"UPDATE memories SET {names} WHERE id = ?", *values.values(), key)

    def delete(self, key: int) -> None:
        """Remove a row."""
        self._do("DELETE FROM memories WHERE id = ?", key)

    def close(self) -> None:
        """Do nothing."""

    def _do(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as db, db:
            return db.execute(sql, values).fetchall()


def _moment(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
