"""The file replica.sqlite: the rows of a store as they were last captured.

What belongs here: its tables and what is done to them row by row. What does not: when a row is
asked for (`noctuary.capture.capturing`), what of it is kept (`noctuary.capture.stored_row`).

It belongs to one store: whoever opens it for another one, for another user of it or with other code
that reads rows, finds it empty. A row that is erased is overwritten with zeros, and the journal of
a transaction is gone when it ends; nothing is left of a row that turned sensitive.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from noctuary.errors import StoreError
from noctuary.files import create_private

FORMAT = 1
"""`user_version` of the file; one of another format is made anew."""

BUSY_TIMEOUT_S = 30.0
"""How long to wait for whoever else reads the file (a backup); nights wait for each other before
they come here."""

_FILE_MODE = 0o600
_SEAL_BYTES = 8
"""Of the checksum of a row: against damage, not against an enemy, who could write here anyway."""

_SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (
    key NOT NULL PRIMARY KEY, digest TEXT, line TEXT, seal BLOB, is_wanted INTEGER NOT NULL);
CREATE INDEX wanted ON rows (key) WHERE is_wanted;
PRAGMA user_version = {FORMAT};
"""
"""`digest` is the store's own of the state that `line` shows, NULL where it was not asked. A wanted
row has yet to be read: its digest is the store's already, its line an older one or NULL."""


class StoredLine(NamedTuple):
    """A row of the file: its id and what `encode_row` made of it."""

    key: int | str
    line: str


class Seen(NamedTuple):
    """That a row is there, and the store's digest of it; None where only its id was asked."""

    key: int | str
    digest: str | None


class Kept(Enum):
    """What writing a row was."""

    ADDED = "added"
    EDITED = "edited"
    SAME = "same"


class ReplicaFile:
    """A replica, opened for writing; the caller holds the store's lock.

    Every method may raise sqlite3.Error; `noctuary.capture.capturing` explains it.
    """

    def __init__(self, path: Path, binding: str) -> None:
        """Open the replica, or make an empty one.

        Args:
            path: `StorePaths.replica`.
            binding: What its rows depend on besides the rows of the store; one that is bound to
                something else is removed.
        """
        self._path = path
        self._db = _connect(path)
        try:
            if not self._is_bound_to(binding):
                self._db.close()
                remove_replica(path)
                self._db = _connect(path)
                self._create(binding)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Make everything inside happen or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def fact(self, name: str) -> str | None:
        """Return a remembered fact, or None."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def keep_fact(self, name: str, value: str) -> None:
        """Remember a fact."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def count(self) -> int:
        """Return how many rows there are."""
        return int(self._db.execute("SELECT count(*) FROM rows NOT INDEXED").fetchone()[0])

    def last_key(self) -> int | str | None:
        """Return the greatest id, or None."""
        row = self._db.execute("SELECT max(key) FROM rows").fetchone()
        return row[0]

    def is_whole(self) -> bool:
        """Say whether every line is the one that was written."""
        rows = self._db.execute("SELECT key, line, seal, is_wanted FROM rows NOT INDEXED")
        return all(
            not is_wanted and line is not None and seal == _seal(StoredLine(key, line))
            for key, line, seal, is_wanted in rows
        )

    def keep(self, row: StoredLine) -> Kept:
        """Write a row over what there was, and say what that made of it.

        A digest of what there was is forgotten with it; that of a wanted row is of this line.
        """
        found = self._db.execute(
            "SELECT line, is_wanted FROM rows WHERE key = ?", (row.key,)
        ).fetchone()
        if found is None:
            values = (row.key, row.line, _seal(row))
            self._db.execute("INSERT INTO rows VALUES (?, NULL, ?, ?, 0)", values)
            return Kept.ADDED
        line, is_wanted = found
        if line == row.line:
            if is_wanted:
                self._db.execute("UPDATE rows SET is_wanted = 0 WHERE key = ?", (row.key,))
            return Kept.SAME
        self._db.execute(
            "UPDATE rows SET digest = CASE WHEN is_wanted THEN digest END, line = ?, seal = ?, "
            "is_wanted = 0 WHERE key = ?",
            (row.line, _seal(row), row.key),
        )
        return Kept.ADDED if line is None else Kept.EDITED

    def compare(self, found: Sequence[Seen], after: int | str | None) -> int:
        """Mark what has to be read of a range of ids, and forget what the store has no more.

        Args:
            found: Every row of the store with an id above `after` and up to the last one's,
                ascending, at least one. A digest of None: nothing but that the row is there is
                known, and one that is held is taken to be current.
            after: Where the range begins, exclusive; None means before every id.

        Returns:
            How many rows were forgotten.
        """
        where, bounds = "key <= ?", (found[-1].key,)
        if after is not None:
            where, bounds = "key > ? AND key <= ?", (after, found[-1].key)
        rows = self._db.execute(f"SELECT key, digest FROM rows WHERE {where}", bounds)
        held: dict[int | str, str | None] = dict(rows)
        self._db.executemany(
            "INSERT INTO rows VALUES (?, ?, NULL, NULL, 1) "
            "ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, is_wanted = 1",
            [
                row
                for row in found
                if row.key not in held or row.digest not in (None, held[row.key])
            ],
        )
        gone = held.keys() - {row.key for row in found}
        self._db.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key in gone])
        return len(gone)

    def forget_above(self, key: int | str | None) -> int:
        """Forget every row with a greater id (None: every row); return how many there were."""
        if key is None:
            return self._db.execute("DELETE FROM rows").rowcount
        return self._db.execute("DELETE FROM rows WHERE key > ?", (key,)).rowcount

    def wanted(self, size: int) -> Iterator[list[int | str]]:
        """Yield the ids that have to be read, ascending, `size` at a time."""
        last: int | str | None = None
        while True:
            where, values = ("", (size,)) if last is None else ("AND key > ?", (last, size))
            rows = self._db.execute(
                f"SELECT key FROM rows WHERE is_wanted {where} ORDER BY key LIMIT ?", values
            ).fetchall()
            if not rows:
                return
            yield [key for (key,) in rows]
            last = rows[-1][0]

    def _is_bound_to(self, binding: str) -> bool:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        return version == FORMAT and self.fact("binding") == binding

    def _create(self, binding: str) -> None:
        with self.transaction():
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self.keep_fact("binding", binding)


def read_lines(db: sqlite3.Connection) -> Iterator[StoredLine]:
    """Yield every row of an open replica by ascending id, one at a time: one may be huge."""
    for key, line in db.execute("SELECT key, line FROM rows ORDER BY key"):
        yield StoredLine(key, line)


def remove_replica(path: Path) -> None:
    """Remove a replica and what SQLite may have left beside it."""
    for end in ("-journal", "-wal", "-shm", ""):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def explain(path: Path, error: sqlite3.Error) -> StoreError:
    """Return what to say of a replica that cannot be used; SQLite's own text may quote rows."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreError(
        f"{path} cannot be used ({name}). It only holds what the source holds: remove it, and the "
        f"next night reads the source as a whole."
    )


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing; made readable by its owner alone before anything is in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    create_private(path)
    # A restored copy may have come with other permissions.
    path.chmod(_FILE_MODE)
    # A pipeline may open the source in one thread and read it in another, never in two at once.
    db = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
        db.execute("PRAGMA secure_delete = ON")
        # Gone with its transaction; a write-ahead log would keep what was erased until it is reset.
        db.execute("PRAGMA journal_mode = DELETE")
    except BaseException:
        db.close()
        raise
    return db


def _seal(row: StoredLine) -> bytes:
    said = f"{row.key!r}\n{row.line}".encode()
    return blake2b(said, digest_size=_SEAL_BYTES).digest()
