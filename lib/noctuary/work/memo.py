"""Results memoised by content hash and by what computed them.

The reason that a second night costs seconds.

One SQLite file, committed batch by batch, so that a killed night resumes where it stopped. Keys
that the corpus no longer has are deleted and overwritten (`prune`), so that a removed or newly
sensitive text leaves nothing here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

from noctuary.errors import StoreError
from noctuary.files import remove_tree

_READ_CHUNK = 500  # below SQLite's oldest limit of 999 variables

_PRIMARY_CODE = 0xFF
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_FULL,
    }
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS memo (
    kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""


class Memo:
    """A durable map from (kind, key) to bytes.

    A kind names the algorithm and its version or fingerprint.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @staticmethod
    @contextmanager
    def open(path: Path) -> Generator[Memo]:
        """Open the memo; a damaged file is dropped, because everything in it can be computed again.

        Raises:
            StoreError: If the file cannot be created.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(path)
        try:
            yield Memo(connection)
        finally:
            connection.close()

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that are known."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), _READ_CHUNK):
            chunk = wanted[start : start + _READ_CHUNK]
            marks = ",".join("?" * len(chunk))
            rows = self._db.execute(
                f"SELECT key, value FROM memo WHERE kind = ? AND key IN ({marks})", [kind, *chunk]
            )
            found.update(rows)
        return found

    def put_many(self, kind: str, values: Mapping[str, bytes]) -> None:
        """Store values in one durable transaction."""
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO memo VALUES (?, ?, ?)",
                [(kind, k, v) for k, v in values.items()],
            )

    def prune(self, live: Mapping[str, Iterable[str]]) -> int:
        """Delete every kind that is not in `live` and every key that its kind does not list.

        Return how many.

        Args:
            live: By kind, the keys that are still needed.
        """
        with self._db:
            self._db.execute(
                "CREATE TEMP TABLE IF NOT EXISTS live (kind TEXT, key TEXT, PRIMARY KEY (kind, "
                "key))"
            )
            self._db.execute("DELETE FROM live")
            for kind, keys in live.items():
                self._db.executemany(
                    "INSERT OR IGNORE INTO live VALUES (?, ?)", [(kind, k) for k in keys]
                )
            removed = self._db.execute(
                "DELETE FROM memo WHERE NOT EXISTS "
                "(SELECT 1 FROM live WHERE live.kind = memo.kind AND live.key = memo.key)"
            ).rowcount
        # secure_delete has overwritten the pages; the write-ahead log still holds the old ones,
        # those of replaced values too, until this.
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return removed


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return _open(path)
    except sqlite3.DatabaseError as error:
        # Only damage is dropped: a file that is locked or cannot be written is as good as it was.
        if error.sqlite_errorcode & _PRIMARY_CODE in _NOT_DAMAGE:
            raise _unusable(path, error) from error
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        remove_tree(path.with_name(name))
    try:
        return _open(path)
    except sqlite3.DatabaseError as error:
        raise _unusable(path, error) from error


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute(_SCHEMA)
        # The first reads every page of keys, the second fails for a table of another shape.
        connection.execute("SELECT COUNT(*) FROM memo").fetchone()
        connection.execute("SELECT kind, key, value FROM memo LIMIT 1").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _unusable(path: Path, error: sqlite3.DatabaseError) -> StoreError:
    return StoreError(f"cannot use {path}: {error}; check the disk and its permissions")
