"""Read a claude-memory SQLite store while its writer runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from noctuary.core.errors import NoctuaryError, SourceError, SourceFormatError
from noctuary.core.sqlite import WAIT_S, name_fault, open_foreign
from noctuary.core.store import OWN_APPLICATION_ID
from noctuary.core.types import UNDATED_US, with_origin
from noctuary.sources.source import (
    LINK_TYPES,
    MemoryLink,
    RawRow,
    Source,
    SourceIdentity,
    Told,
    memory_row,
)
from noctuary.text.flags import MARKS, rows_sql

# A read-only connection to a foreign SQLite file, pinned to one state while its writer runs.

# How long to wait for a writer that locks the whole file; the stores' own clients wait as long.
BUSY_TIMEOUT_MS = 30_000


class PinnedFile(Source):
    """A SQLite file, pinned to one state by an open read transaction."""

    _stamp: dict[str, int | str] | None = None

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        with self._translate_errors():
            self._db = self._connect()
            try:
                self._db.execute("BEGIN DEFERRED")
                # The first read takes the snapshot.
                self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                self._read_schema()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the read transaction and close the connection; safe to call twice."""
        self._db.close()

    def _connect(self) -> sqlite3.Connection:
        # Stat before opening: the connection takes no lock, so a write from now on must be noticed.
        stamp = self._size() if self._path.exists() else None
        # A pipeline may open the source in one thread and read it in another.
        db, is_unlocked = open_foreign(self._path, BUSY_TIMEOUT_MS / 1000, check_same_thread=False)
        self._stamp = stamp if is_unlocked else None
        return db

    def _read_schema(self) -> None:
        """Read the schema of the pinned state; raise if it is not the expected store."""

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Re-raise sqlite3 errors as SourceError, without row contents."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _one(self, sql: str, *values: Any) -> Any:
        """Return the first value of the first row."""
        with self._translate_errors():
            return self._db.execute(sql, values).fetchone()[0]

    def _stream(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement; SourceError if an unlocked file changed meanwhile."""
        with self._translate_errors():
            yield from self._db.execute(sql, values)
        if self._stamp is not None and self._stamp != self._size():
            raise SourceError(
                f"{self._path} changed while it was read without locks (its folder is read-only "
                f"for this user). Run again, or give this user write access to the folder."
            )

    def _columns_of(self, table: str) -> list[str]:
        """Return the column names of a table, or [] if it does not exist."""
        return [str(row[1]) for row in self._db.execute(f"PRAGMA table_info({table})")]

    def _size(self) -> dict[str, int | str]:
        stat = self._path.stat()
        return {"size_bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}

    def _damaged(self, error: sqlite3.Error) -> NoctuaryError:
        fault, name = name_fault(error)
        if fault == "locked":
            return SourceError(
                f"{self._path} stayed locked by another process for {BUSY_TIMEOUT_MS // 1000} s "
                f"({name}). Wait until it has finished, or switch the store to WAL mode."
            )
        if fault == "closed":
            return SourceError(
                f"{self._path} cannot be opened for reading ({name}). Check the permissions of the "
                f"file, of its -wal and -shm files and of its folder."
            )
        return SourceFormatError(
            f"{self._path} starts like a SQLite database but cannot be read as one ({name}). Run "
            f"'PRAGMA integrity_check' on a copy and restore the store from a backup."
        )


# A claude-memory store. Marked rows never leave the database: the query returns their id and mark.
# One read transaction from opening to `close` keeps count and rows of one state. Nothing is ever
# written, except the empty `-wal` and `-shm` that any reader of a WAL store creates.

KIND = "claude-memory-sqlite"
# Both versions have these; rows of a store without `is_sensitive` may not be copied.
REQUIRED_COLUMNS = (
    "id", "content", "category", "tags", "expanded_keywords", "importance", "is_sensitive",
    "created_at", "updated_at",
)  # fmt: skip

OPTIONAL_COLUMNS = (
    "session_id", "session", "wing", "room", "user_id", "user", "sensitive", "vault_path",
    "encrypted_content", "deleted_at", "origin", "valid_until",
)  # fmt: skip

KNOWN_USER_VERSION = 2


class SqliteSource(PinnedFile):
    """A claude-memory store, pinned to one read transaction."""

    def _read_schema(self) -> None:
        tables, info = tables_of(self._db), self._db.execute("PRAGMA table_info(memories)")
        found = [(str(row[1]), str(row[2]).upper(), bool(row[5])) for row in info]
        self._columns = [name for name, _, _ in found]
        wanted = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
        self._names = [n for n in wanted if n in self._columns and n not in MARKS]
        missing = [name for name in REQUIRED_COLUMNS if name not in self._columns]
        if "memories" not in tables or missing:
            lacks = f" and no column {', '.join(missing)} in 'memories'" if self._columns else ""
            raise SourceFormatError(
                f"{self._path} is a SQLite database but not a claude-memory store: expected a "
                f"table 'memories' with the columns {', '.join(REQUIRED_COLUMNS)}; found the "
                f"tables {', '.join(tables) or '(none)'}{lacks}. Point noctuary at the memory.db "
                f"of claude-memory, or export the store as JSON lines.{_name_other_tool(tables)}"
            )
        keys = [f"{name} {kind}" for name, kind, is_key in found if is_key]
        if keys != ["id INTEGER"]:
            raise SourceFormatError(
                f"{self._path}: the primary key of 'memories' must be 'id INTEGER PRIMARY KEY', "
                f"found {', '.join(keys) or 'none'}. Export the store as JSON lines; text ids are "
                f"read from there."
            )

    def identity(self) -> SourceIdentity:
        """Return the path, schema version, row count and file size of the pinned state."""
        user_version = int(self._one("PRAGMA user_version"))
        marker = {
            "user_version": user_version,
            "rows": self.count(),
            "last_id": int(self._one("SELECT coalesce(max(id), 0) FROM memories")),
            **self._size(),
        }
        version = "2" if "server_id" in self._columns else "1"
        # The own store counts its own versions.
        is_own = self._one("PRAGMA application_id") == OWN_APPLICATION_ID
        is_newer = user_version > KNOWN_USER_VERSION and not is_own
        notes = ("newer_schema_version",) if is_newer else ()
        return SourceIdentity(KIND, str(self._path), version, "int", marker, notes)

    def count(self) -> int:
        """Return the number of rows of the snapshot."""
        return int(self._one("SELECT count(*) FROM memories"))

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows by ascending id."""
        return self._select("")

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the row with an id, by primary key."""
        return self._select("WHERE id = ?", key)

    def _select(self, where: str, *values: str) -> Iterator[RawRow]:
        for key, mark, *found in self._stream(rows_sql(self._columns, self._names, where), *values):
            fields = with_origin(dict(zip(self._names, found, strict=True)))
            yield memory_row(key, mark, fields)

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield the links between memories from the table `memory_links`, if it exists."""
        ends, is_link = ("src_id", "dst_id", "link_type"), noun is MemoryLink
        if not is_link or not set(ends).issubset(self._columns_of("memory_links")):
            return
        types = ", ".join(f"'{name}'" for name in LINK_TYPES)
        sql = (
            f"SELECT {', '.join(ends)} FROM memory_links WHERE link_type IN ({types}) AND "
            "typeof(src_id) = 'integer' AND typeof(dst_id) = 'integer' ORDER BY src_id, dst_id"
        )
        for newer, older, link_type in self._stream(sql):
            link = MemoryLink(str(newer), str(older), link_type, UNDATED_US, None)
            yield cast("Told", link)


# Databases of other tools that cannot be read, by the name of one of their tables.
UNREADABLE_TABLES = {
    "history": "mem0's history, which does not say whose a memory is: save what get_all() returns",
    "points": "a local Qdrant collection, which is pickled: save what mem0's get_all() returns",
}


def _name_other_tool(tables: Iterable[str]) -> str:
    said = next((UNREADABLE_TABLES[name] for name in tables if name in UNREADABLE_TABLES), "")
    return f" It looks like {said}." if said else ""


def tables_of(db: sqlite3.Connection) -> list[str]:
    """Return the names of all tables, sorted."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    return [str(name) for (name,) in db.execute(sql)]


def tables_in(file: Path) -> frozenset[str]:
    """Return the table names of a SQLite file; empty if it cannot be read."""
    with suppress(sqlite3.Error), closing(open_foreign(file, WAIT_S)[0]) as db:
        return frozenset(tables_of(db))
    return frozenset()
