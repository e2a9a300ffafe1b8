"""A SQLite file of somebody else, opened read-only beside its live writer and pinned to one state.

What belongs here: the read transaction that is held from the first look to `close` (so that a count
and the rows are of one state, whatever a WAL writer commits meanwhile), and what errors mean to a
person. What does not: the connection (`noctuary.foreign_file`), tables and rows (the sources).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from noctuary.corpus.source import Closing
from noctuary.errors import SourceError, SourceFormatError
from noctuary.foreign_file import open_foreign

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
        # Before it is opened: where no lock protects, what is written from now on must be seen.
        stamp = self._read_stamp() if self._path.exists() else None
        try:
            # A pipeline may open the source in one thread and read it in another.
            db, is_unlocked = open_foreign(
                self._path, BUSY_TIMEOUT_MS / 1000, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        self._stamp = stamp if is_unlocked else None
        try:
            db.execute("BEGIN DEFERRED")
            # The first read takes the snapshot.
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            db.close()
            raise self._damaged(error) from None
        return db

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
