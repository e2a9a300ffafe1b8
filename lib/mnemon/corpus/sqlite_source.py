"""Reading a claude-memory SQLite store beside its live writer.

What belongs here: the connection, the schema check and keyset batches. The store is opened
read-only and one read transaction is held from the first look to `close`, so that the count and
the batches are of one state, whatever a WAL writer commits meanwhile. Nothing is ever written;
SQLite itself may leave an empty `-wal` and a `-shm` file beside a store in WAL mode, as any reader
of it does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mnemon.corpus.source import DEFAULT_BATCH_ROWS, Closing, RawRow, SourceIdentity
from mnemon.errors import SourceError, SourceFormatError

KIND = "claude-memory-sqlite"

REQUIRED_COLUMNS = (
    "id",
    "content",
    "category",
    "tags",
    "expanded_keywords",
    "importance",
    "is_sensitive",
    "created_at",
    "updated_at",
)
"""Columns of both versions; version 2 adds server_id. `is_sensitive` is among them on purpose: a
store that cannot mark a row is not one whose rows may be copied."""

OPTIONAL_COLUMNS = (
    "session_id",
    "session",
    "wing",
    "room",
    "user_id",
    "user",
    "sensitive",
    "vault_path",
    "encrypted_content",
    "deleted_at",
)

KNOWN_USER_VERSION = 2

BUSY_TIMEOUT_MS = 30_000
"""How long to wait for a writer that locks the whole store; its own clients wait as long."""

BATCH_BYTES = 64 * 2**20
"""A batch ends early once its texts reach this: bounds memory when rows are huge."""


class SqliteSource(Closing):
    """A claude-memory store, pinned to one snapshot; see `mnemon.corpus.source.Source`."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._stamp: tuple[int, int] | None = None
        self._db = self._open()
        try:
            self._columns = _check_schema(self._db, self._path)
        except sqlite3.Error as error:
            self.close()
            raise self._damaged(error) from None
        except BaseException:
            self.close()
            raise

    def identity(self) -> SourceIdentity:
        """Return path, schema version and the size of the snapshot that is being read."""
        user_version = int(self._one("PRAGMA user_version"))
        stat = self._path.stat()
        last_id = self._one("SELECT max(id) FROM memories")
        return SourceIdentity(
            kind=KIND,
            location=str(self._path),
            schema_version="2" if "server_id" in self._columns else "1",
            id_kind="int",
            marker={
                "user_version": user_version,
                "rows": self.count(),
                "last_id": 0 if last_id is None else int(last_id),
                "size_bytes": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
            },
            notes=("newer_schema_version",) if user_version > KNOWN_USER_VERSION else (),
        )

    def count(self) -> int:
        """Return the number of rows of the snapshot."""
        return int(self._one("SELECT count(*) FROM memories"))

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows by ascending id; a batch is cut short when its texts reach BATCH_BYTES."""
        wanted = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
        columns = [name for name in wanted if name in self._columns]
        last_id: int | None = None
        try:
            while batch := self._batch(columns, last_id, size):
                last_id = int(batch[-1][0])
                yield [_raw_row(columns, values) for values in batch]
            self._check_unchanged()
        except sqlite3.Error as error:
            # Its text may quote the row it failed on.
            raise self._damaged(error) from None

    def close(self) -> None:
        """End the read transaction and close the connection."""
        self._db.close()

    def _batch(
        self, columns: Sequence[str], last_id: int | None, size: int
    ) -> list[tuple[Any, ...]]:
        where, values = ("", (size,)) if last_id is None else ("WHERE id > ?", (last_id, size))
        names = ", ".join(columns)
        # The interpolated names are constants of this module.
        cursor = self._db.execute(
            f"SELECT {names} FROM memories {where} ORDER BY id LIMIT ?",
            values,
        )
        batch: list[tuple[Any, ...]] = []
        held_bytes = 0
        for row in cursor:
            batch.append(row)
            held_bytes += sum(len(v) for v in row if isinstance(v, str | bytes))
            if held_bytes >= BATCH_BYTES:
                break
        cursor.close()
        return batch

    def _open(self) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode=ro"
        try:
            return _pin(uri)
        except sqlite3.OperationalError as error:
            if not self._may_be_immutable(error):
                raise self._damaged(error) from None
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        # A WAL store on read-only media: SQLite cannot make its -shm file, and nobody can write.
        self._stamp = self._read_stamp()
        try:
            return _pin(f"{uri}&immutable=1")
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _may_be_immutable(self, error: sqlite3.Error) -> bool:
        cannot_open = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        wal = self._path.with_name(f"{self._path.name}-wal")
        return error.sqlite_errorcode & 0xFF in cannot_open and not wal.exists()

    def _read_stamp(self) -> tuple[int, int]:
        stat = self._path.stat()
        return stat.st_size, stat.st_mtime_ns

    def _check_unchanged(self) -> None:
        if self._stamp is not None and self._stamp != self._read_stamp():
            raise SourceError(
                f"{self._path} changed while it was read without locks (its folder is read-only "
                f"for this user). Run again, or give this user write access to the folder."
            )

    def _one(self, sql: str) -> Any:
        try:
            return self._db.execute(sql).fetchone()[0]
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _damaged(self, error: sqlite3.Error) -> SourceError:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return SourceError(
                f"{self._path} stayed locked by another process for {BUSY_TIMEOUT_MS // 1000} s "
                f"({name}). Wait until it has finished, or switch the store to WAL mode."
            )
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
            return SourceError(
                f"{self._path} cannot be opened for reading ({name}). Check the permissions of the "
                f"file, of its -wal and -shm files and of its folder."
            )
        return SourceFormatError(
            f"{self._path} starts like a SQLite database but cannot be read as one ({name}). Run "
            f"'PRAGMA integrity_check' on a copy and restore the store from a backup."
        )


def _pin(uri: str) -> sqlite3.Connection:
    """Open a connection and take the read snapshot at once."""
    db = sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        # A pipeline may open the source in one thread and read it in another, never in two at once.
        check_same_thread=False,
    )
    try:
        db.text_factory = _decode
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
        db.execute("BEGIN DEFERRED")
        db.execute(
            "SELECT count(*) FROM sqlite_master"
        ).fetchone()  # the first read takes the snapshot
    except BaseException:
        db.close()
        raise
    return db


def _decode(raw: bytes) -> str | bytes:
    """Return text, or the bytes themselves where they are no UTF-8 (SQLite does not check)."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _check_schema(db: sqlite3.Connection, path: Path) -> frozenset[str]:
    """Return the columns of `memories`, or say what was found instead."""
    tables = [str(r[0]) for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    info = list(db.execute("PRAGMA table_info(memories)"))
    columns = frozenset(str(row[1]) for row in info)
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if "memories" not in tables or missing:
        raise SourceFormatError(
            f"{path} is a SQLite database but not a claude-memory store: expected a table "
            f"'memories' with the columns {', '.join(REQUIRED_COLUMNS)}; found the tables "
            f"{', '.join(sorted(tables)) or '(none)'}"
            + (f" and no column {', '.join(missing)} in 'memories'" if columns else "")
            + ". Point mnemon at the memory.db of claude-memory, or export the store as JSON lines."
        )
    key = [(str(row[1]), str(row[2]).upper()) for row in info if row[5]]
    if key != [("id", "INTEGER")]:
        raise SourceFormatError(
            f"{path}: the primary key of 'memories' must be 'id INTEGER PRIMARY KEY', found "
            f"{', '.join(f'{name} {kind}' for name, kind in key) or 'none'}. Export the store as "
            f"JSON lines; text ids are read from there."
        )
    return columns


def _raw_row(columns: Sequence[str], values: Sequence[object]) -> RawRow:
    fields = dict(zip(columns, values, strict=True))
    key = fields["id"]
    assert isinstance(key, int)  # an INTEGER PRIMARY KEY holds nothing else
    return RawRow(locator=f"id {key}", key=key, fields=fields)
