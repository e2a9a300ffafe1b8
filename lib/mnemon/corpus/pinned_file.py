"""A SQLite file of somebody else, opened read-only beside its live writer and pinned to one state.

What belongs here: the connection, the read transaction that is held from the first look to `close`
(so that a count and the rows are of one state, whatever a WAL writer commits meanwhile), and what
its errors mean to a person. What does not: tables and rows (the sources). Nothing is ever written;
SQLite itself may leave an empty `-wal` and a `-shm` file beside a file in WAL mode, as any reader
of it does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from mnemon.corpus.source import Closing
from mnemon.errors import SourceError, SourceFormatError

BUSY_TIMEOUT_MS = 30_000
"""How long to wait for a writer that locks the whole file; the stores' own clients wait as long."""


class PinnedFile(Closing):
    """One state of a SQLite file."""

    def __init__(self, path: Path) -> None:
        """Open the file and take the read snapshot at once.

        Raises:
            SourceError: It cannot be opened, or a writer holds it.
            SourceFormatError: It is no database, or a damaged one.
        """
        self._path = path.absolute()
        self._stamp: tuple[int, int] | None = None
        self._db = self._open()

    def close(self) -> None:
        """End the read transaction and close the connection; safe to call twice."""
        self._db.close()

    def _open(self) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode=ro"
        try:
            return _pin(uri)
        except sqlite3.OperationalError as error:
            if not self._may_be_immutable(error):
                raise self._damaged(error) from None
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        # A WAL file on read-only media: SQLite cannot make its -shm file, and nobody can write.
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

    def _one(self, sql: str, *values: Any) -> Any:
        try:
            return self._db.execute(sql, values).fetchone()[0]
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
