"""A SQLite file of somebody else, opened read-only beside its live writer.

What belongs here: the connection. What does not: what is read, what its errors mean to a person
(`noctuary.corpus.pinned_file`, `noctuary.live`). Nothing is ever written; SQLite itself may leave
an empty `-wal` and a `-shm` file beside a file in WAL mode, as any reader of it does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

_CANNOT_OPEN = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def open_foreign(
    path: Path, wait_s: float, *, check_same_thread: bool = True
) -> tuple[sqlite3.Connection, bool]:
    """Return a connection without a transaction, and whether it reads without locks.

    Texts that are not UTF-8 come as bytes. Without locks is only read where SQLite cannot make the
    files of a WAL beside it (read-only media, a folder of others) and there is no log to miss.

    Args:
        path: The file.
        wait_s: How long each access waits for a writer.
        check_same_thread: False where one thread opens it and another reads it, never both at once.

    Raises:
        sqlite3.Error: It cannot be opened, or is no database. The message may quote a row.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _open(uri, wait_s, check_same_thread), False
    except sqlite3.OperationalError as error:
        has_log = path.with_name(f"{path.name}-wal").exists()
        if error.sqlite_errorcode & 0xFF not in _CANNOT_OPEN or has_log:
            raise
    return _open(f"{uri}&immutable=1", wait_s, check_same_thread), True


def _open(uri: str, wait_s: float, check_same_thread: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        uri, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=check_same_thread
    )
    try:
        db.text_factory = _decode
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
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
