"""Writing to a claude-memory SQLite store beside its live writer.

What belongs here: the connection, the transaction and the statements. `memories_fts` follows by
the store's own triggers; `pending_ops` and `PRAGMA user_version` are left as they are
(research/peers.md 2.1). One `BEGIN IMMEDIATE` from the first look to the commit: no other writer
comes between, readers go on. Killed at any moment, SQLite rolls back.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noctuary.corpus.sqlite_source import OPTIONAL_COLUMNS, REQUIRED_COLUMNS, SqliteSource
from noctuary.curate.journal import TABLE
from noctuary.curate.stores.base import BUSY_TIMEOUT_MS, RESTORED, StoredRow, judge
from noctuary.errors import SourceError
from noctuary.hashing import canonical_json
from noctuary.settings import CorpusSettings
from noctuary.text.sensitivity_sql import mark_sql

_READ = frozenset((*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS))
_NEVER_COPIED = frozenset({"id", "server_id"})
_BLOB = "$hex"


class SqliteStore:
    """A claude-memory file; see `noctuary.curate.stores.base.WritableStore`."""

    def __init__(
        self, path: Path, settings: CorpusSettings, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> None:
        """Check the schema and connect.

        Args:
            path: The file.
            settings: As of the night that made the proposals.
            busy_timeout_ms: How long to wait for another writer.

        Raises:
            SourceError: It is no claude-memory store, or cannot be opened.
        """
        SqliteSource(path).close()  # its checks of the schema, and what it says where they fail
        self.display = str(path)
        self._settings = settings
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=busy_timeout_ms / 1000,
            isolation_level=None,
        )
        self._db.text_factory = _decode
        self._timeout_s = busy_timeout_ms / 1000
        self.notes = self._look()

    def has_journal(self) -> bool:
        """Say whether anything was ever written."""
        try:
            return _has_table(self._db, TABLE)
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from the journal outside of a transaction."""
        try:
            return self._db.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    @contextmanager
    def transaction(self) -> Generator[SqliteTransaction]:
        """Hold the write lock for the block."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._failed(error) from None
        try:
            yield SqliteTransaction(self._db, self._settings)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _look(self) -> tuple[str, ...]:
        """Say what the owner of a cache should know."""
        try:
            waiting = 0
            if _has_table(self._db, "pending_ops"):
                (waiting,) = self._db.execute("SELECT count(*) FROM pending_ops").fetchone()
            columns = {row[1] for row in self._db.execute("PRAGMA table_info(memories)")}
            known = 0
            if "server_id" in columns:
                sql = "SELECT count(*) FROM memories WHERE server_id IS NOT NULL"
                (known,) = self._db.execute(sql).fetchone()
        except sqlite3.Error as error:
            self.close()
            raise self._failed(error) from None
        notes: list[str] = []
        if known:
            notes.append(
                f"{known} rows are copies of a server's: what is written here does not reach it, "
                "and its next change of a row overwrites this one. Tidy the server's database."
            )
        if waiting:
            notes.append(f"{waiting} operations wait in pending_ops and are sent as they are.")
        return tuple(notes)

    def _failed(self, error: sqlite3.Error) -> SourceError:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return SourceError(
                f"{self.display} stayed locked by another writer for {self._timeout_s:g} s. "
                f"Nothing was written; try again when it has finished."
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
            return SourceError(
                f"{self.display} cannot be written ({name}). Nothing was; check the permissions of "
                f"the file and of its folder."
            )
        # Its text may quote a row.
        return SourceError(
            f"{self.display} refused what was to be written ({name}). Nothing was; run 'PRAGMA "
            f"integrity_check' on a copy of it."
        )


class SqliteTransaction:
    """See `noctuary.curate.stores.base.Transaction`."""

    def __init__(self, db: sqlite3.Connection, settings: CorpusSettings) -> None:
        self._db = db
        self._settings = settings

    def row(self, row_id: int) -> StoredRow | None:
        """Return a row, or None."""
        found = self._columns_of(row_id)
        if found is None:
            return None
        fields = {name: value for name, value in found.items() if name in _READ}
        return judge(row_id, fields, self._settings)

    def ids_with_text(self, content: str) -> list[int]:
        """Return the ids of all rows with this content."""
        rows = self.execute("SELECT id FROM memories WHERE content = ? ORDER BY id", (content,))
        return [int(row_id) for (row_id,) in rows]

    def image(self, row_id: int) -> str | None:
        """Return every column as JSON; bytes as {"$hex": ...}."""
        found = self._columns_of(row_id)
        if found is None:
            return None
        return canonical_json(
            {n: {_BLOB: v.hex()} if isinstance(v, bytes) else v for n, v in found.items()}
        )

    def update(self, row_id: int, values: Mapping[str, object]) -> None:
        """Set columns; the names are this package's own."""
        names = ", ".join(f"{name} = ?" for name in values)
        self.execute(f"UPDATE memories SET {names} WHERE id = ?", (*values.values(), row_id))

    def copy(self, row_id: int, values: Mapping[str, object]) -> int:
        """Insert a row like another one; it has no server_id, as a row of this store's own."""
        info = self.execute("PRAGMA table_info(memories)")
        names = [str(row[1]) for row in info if row[1] not in _NEVER_COPIED]
        sources = ["?" if name in values else _quoted(name) for name in names]
        taken = [values[name] for name in names if name in values]
        self.execute(
            f"INSERT INTO memories ({', '.join(map(_quoted, names))}) "
            f"SELECT {', '.join(sources)} FROM memories WHERE id = ?",
            (*taken, row_id),
        )
        # Not last_insert_rowid(): the triggers insert into the full-text table after this row.
        return int(self.execute("SELECT max(id) FROM memories")[0][0])

    def take_back(self, row_id: int) -> None:
        """Delete a row that `copy` made: this store has no other way (research/peers.md 2.1)."""
        self.execute("DELETE FROM memories WHERE id = ?", (row_id,))

    def restore(self, row_id: int, image: str) -> None:
        """Set the columns RESTORED to what an image says."""
        before: dict[str, Any] = json.loads(image)
        self.update(row_id, {name: _value(before[name]) for name in RESTORED})

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement."""
        return self._db.execute(sql, tuple(values)).fetchall()

    def forget_lost_rows(self) -> None:
        """Drop images of rows that are sensitive or gone; in doubt a row is sensitive."""
        columns = [str(row[1]) for row in self.execute("PRAGMA table_info(memories)")]
        self.execute(
            f"UPDATE {TABLE} SET before_image = NULL WHERE before_image IS NOT NULL AND row_id NOT "
            f"IN (SELECT id FROM memories WHERE {mark_sql(columns)} IS NULL)"
        )

    def _columns_of(self, row_id: int) -> dict[str, Any] | None:
        cursor = self._db.execute("SELECT * FROM memories WHERE id = ?", (row_id,))
        found = cursor.fetchone()
        if found is None:
            return None
        return dict(zip((item[0] for item in cursor.description), found, strict=True))


def _has_table(db: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return db.execute(sql, (name,)).fetchone() is not None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: Any) -> Any:
    return bytes.fromhex(value[_BLOB]) if isinstance(value, dict) else value


def _decode(raw: bytes) -> str | bytes:
    """Return text, or the bytes themselves where they are no UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw
