"""Sources that can be written, all of it inside one transaction, and the journal kept in them."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, LiteralString, NamedTuple, cast

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.files import canonical_json
from noctuary.core.settings import CorpusSettings
from noctuary.core.sqlite import decode_text, name_fault
from noctuary.core.store import names_postgres
from noctuary.core.types import MemoryRecord
from noctuary.sources.normalize import Accepted, find_sensitivity, normalize
from noctuary.sources.open import open_source
from noctuary.sources.postgres import Address, connect, read_address
from noctuary.sources.source import RawRow
from noctuary.sources.sqlite import KIND, OPTIONAL_COLUMNS, REQUIRED_COLUMNS, SqliteSource
from noctuary.text.flags import mark_sql

if TYPE_CHECKING:
    import psycopg

# Columns that curation writes, and that undo puts back.
RESTORED = ("content", "tags", "expanded_keywords", "importance", "updated_at")
BUSY_TIMEOUT_MS = 30_000  # how long to wait for another writer, as the store's own clients do

# The journal lies in the source itself, so that no text leaves the source and one transaction
# covers both: a row per touched row.

TABLE = "noctuary_curation_journal"

_CREATE = f"""
CREATE TABLE IF NOT EXISTS {TABLE} (
    journal_id INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    proposal_id TEXT NOT NULL,
    row_id BIGINT NOT NULL,
    change TEXT NOT NULL,
    before_image TEXT,
    after_hash TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    undone_at TEXT,
    PRIMARY KEY (journal_id, entry)
)
"""

Change = Literal["tombstone", "update", "add", "forget"]


class Entry(NamedTuple):
    """One touched row."""

    journal_id: int  # of the whole application; the argument of `--undo`
    entry: int  # order within it, from 0
    proposal_id: str
    row_id: int
    change: Change
    # Every column before, as JSON; None for an added row, after an undo, and where the row has been
    # marked sensitive or deleted since
    before_image: str | None
    after_hash: str  # of the image after, so that a later change is seen
    applied_at: str  # ISO 8601, UTC
    undone_at: str | None  # likewise, or None while it holds


MISSING = "is not there, or not exactly once"
UNFIT = "is sensitive, deleted or damaged by now"


class _Rows:
    """Rows and the journal, as both kinds of source share them; `?` for each value.

    Rows are read and written between BEGIN and COMMIT only (`transaction`): no other client
    writes to the rows that were read there. A failed statement is a `SourceError` that quotes no
    row.
    """

    display: str  # its name in messages; no secret
    notes: tuple[str, ...] = ()  # warnings for its owner before writing, as sentences
    _settings: CorpusSettings  # as of the night that made the proposals
    # Of `memories`, without generated ones: name to the expression that inserts a value
    _columns: Mapping[str, str]
    _never_copied: frozenset[str]
    _there = "true"  # condition on a row that is not removed
    _find_table: str  # returns a row if a table of a name exists
    take_back: str  # removes a row in the way of the source's own clients
    erase: str  # the same, and leaves nothing of its texts in the row

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        raise NotImplementedError

    def _fields(self, row_id: int) -> dict[str, Any] | None:
        """Return the columns of a row that an export reads."""
        raise NotImplementedError

    def _lasting(self) -> str:
        """Return the condition on rows that are neither sensitive nor removed."""
        raise NotImplementedError

    def row(self, row_id: int) -> MemoryRecord | str:
        """Return the memory that an export of a row would give, or why there is none."""
        fields = self._fields(row_id)
        if fields is None:
            return MISSING
        raw = RawRow(locator=f"id {row_id}", key=row_id, fields=fields)
        if find_sensitivity(raw, self._settings.max_content_bytes) is not None:
            return UNFIT
        now_us = time.time_ns() // 1000
        verdict = normalize(raw, position=0, now_us=now_us, settings=self._settings)
        return verdict.record if isinstance(verdict, Accepted) else UNFIT

    def ids_with_text(self, content: str) -> list[int]:
        """Return the ids of all rows with exactly this content, ascending."""
        sql = f"SELECT id FROM memories WHERE content = ? AND {self._there} ORDER BY id"
        return [int(row_id) for (row_id,) in self.execute(sql, (content,))]

    def update(self, row_id: int, values: Mapping[str, object]) -> None:
        """Set columns of a row; the names are this package's own."""
        names = ", ".join(f"{name} = ?" for name in values)
        self.execute(f"UPDATE memories SET {names} WHERE id = ?", (*values.values(), row_id))

    def copy(self, row_id: int, values: Mapping[str, object]) -> int:
        """Insert a row like another one but for some columns, and return its id."""
        names = [name for name in self._columns if name not in self._never_copied]
        quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names]
        put = [
            self._columns[name] if name in values else same
            for name, same in zip(names, quoted, strict=True)
        ]
        # RETURNING: the triggers of a cache insert into its full-text table after this row.
        (found,) = self.execute(
            f"INSERT INTO memories ({', '.join(quoted)}) SELECT {', '.join(put)} FROM memories "
            "WHERE id = ? RETURNING id",
            (*(values[name] for name in names if name in values), row_id),
        )
        return int(found[0])

    def open_journal(self) -> None:
        """Create the journal if it is not there; drop images of rows that are sensitive or gone."""
        self.execute(_CREATE)
        self.execute(
            f"UPDATE {TABLE} SET before_image = NULL WHERE before_image IS NOT NULL AND row_id NOT "
            f"IN (SELECT id FROM memories WHERE {self._lasting()})"
        )

    def applications(self) -> list[dict[str, Any]]:
        """Return every application at a glance, oldest first; takes no lock.

        Undoable is False where images were forgotten, or it is undone already.
        """
        if not self._has_table(TABLE):
            return []
        rows = self.execute(
            "SELECT journal_id, min(applied_at), min(undone_at), count(DISTINCT proposal_id), "
            "count(*), min(CASE WHEN undone_at IS NULL AND (change = 'add' OR before_image IS NOT "
            f"NULL) THEN 1 ELSE 0 END) FROM {TABLE} GROUP BY journal_id ORDER BY journal_id"
        )
        names = ("journal_id", "applied_at", "undone_at", "proposals", "rows", "undoable")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [{**one, "undoable": bool(one["undoable"])} for one in found]

    def _has_table(self, name: str) -> bool:
        return bool(self.execute(self._find_table, (name,)))


# A claude-memory SQLite store with its live writer: one `BEGIN IMMEDIATE` from the first look to
# the commit, so that no other writer comes between and readers go on. Killed, SQLite rolls back.

_READ = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
_BLOB = "$hex"


class SqliteStore(_Rows):
    """A claude-memory file."""

    _never_copied = frozenset({"id", "server_id"})  # a copy is a row of this store's own
    _find_table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    take_back = "DELETE FROM memories WHERE id = ?"  # it has no other way (research/peers.md 2.1)
    erase = take_back

    def __init__(
        self, path: Path, settings: CorpusSettings, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> None:
        SqliteSource(path).close()  # for its checks of the schema, and its errors
        self.display, self._settings = str(path), settings
        self._timeout_s = busy_timeout_ms / 1000
        uri = f"{path.absolute().as_uri()}?mode=rw"
        self._db = sqlite3.connect(uri, uri=True, timeout=self._timeout_s, isolation_level=None)
        self._db.text_factory = decode_text
        try:
            self.notes = self._read_notes()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Hold the write lock for the block; roll back whatever is raised in it."""
        self.execute("BEGIN IMMEDIATE")
        try:
            self._columns = self._read_columns()
            yield
            self.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from None
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        try:
            return self._db.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def overwrite(self) -> None:
        """Let deletions leave nothing behind; outside of a transaction, before and after them."""
        self.execute("PRAGMA secure_delete = ON")
        sql = "SELECT sql FROM sqlite_master WHERE name = 'memories_fts'"
        if any("content='memories'" in str(made) for (made,) in self.execute(sql)):
            self.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def image(self, row_id: int) -> str | None:
        """Return every column as JSON; bytes as {"$hex": ...}."""
        found = self._all_columns(row_id)
        if found is None:
            return None
        return canonical_json(
            {n: {_BLOB: v.hex()} if isinstance(v, bytes) else v for n, v in found.items()}
        )

    def restore(self, row_id: int, image: str) -> None:
        """Restore the columns RESTORED from an image."""
        before: dict[str, Any] = json.loads(image)
        kept = {name: before[name] for name in RESTORED}
        self.update(
            row_id,
            {n: bytes.fromhex(v[_BLOB]) if isinstance(v, dict) else v for n, v in kept.items()},
        )

    def _lasting(self) -> str:
        return f"{mark_sql(list(self._columns))} IS NULL"  # in doubt a row is sensitive

    def _fields(self, row_id: int) -> dict[str, Any] | None:
        found = self._all_columns(row_id)
        return found and {name: v for name, v in found.items() if name in _READ}

    def _all_columns(self, row_id: int) -> dict[str, Any] | None:
        cursor = self._db.execute("SELECT * FROM memories WHERE id = ?", (row_id,))
        found = cursor.fetchone()
        return found and dict(zip((item[0] for item in cursor.description), found, strict=True))

    def _read_columns(self) -> dict[str, str]:
        return {str(row[1]): "?" for row in self.execute("PRAGMA table_info(memories)")}

    def _read_notes(self) -> tuple[str, ...]:
        """Return warnings for the owner of a cache."""
        notes: list[str] = []
        if "server_id" in self._read_columns():
            sql = "SELECT count(*) FROM memories WHERE server_id IS NOT NULL"
            if known := self.execute(sql)[0][0]:
                notes.append(
                    f"{known} rows are copies of a server's: what is written here does not reach "
                    "it, and its next change of a row overwrites this one. Tidy the server's "
                    "database."
                )
        queued = self._has_table("pending_ops")
        if queued and (waiting := self.execute("SELECT count(*) FROM pending_ops")[0][0]):
            notes.append(f"{waiting} operations wait in pending_ops and are sent as they are.")
        return tuple(notes)

    def _failed(self, error: sqlite3.Error) -> SourceError:
        fault, name = name_fault(error)
        said = {
            "locked": f"stayed locked by another writer for {self._timeout_s:g} s. Nothing was "
            "written; try again when it has finished.",
            "closed": f"cannot be written ({name}). Nothing was; check the permissions of the file "
            "and of its folder.",
            # The error's text may quote a row.
            "damaged": f"refused the write ({name}). Nothing was; run 'PRAGMA "
            "integrity_check' on a copy of it.",
        }
        return SourceError(f"{self.display} {said[fault]}")


# A claude-memory PostgreSQL database with its live server. Rows are locked by SELECT ... FOR
# UPDATE before they are compared, two noctuarys by an advisory lock (docs/decisions/0019).
# `search_vector` follows by itself; `embedding` stays as it is, as after the server's own PUT, and
# is empty in an added row, as in any that waits for the server's embedder.

_REQUIRED = frozenset({*REQUIRED_COLUMNS, "user_id", "deleted_at"})
_DERIVED = ("search_vector", "embedding")
_ADVISORY_KEY = 0x6D6E656D6F6E  # "noctuary"
_LOCKED = ("55P03", "40P01")  # lock_not_available, deadlock_detected


class PostgresStore(_Rows):
    """A claude-memory database."""

    _never_copied = frozenset({"id", *_DERIVED})
    _there = "deleted_at IS NULL"
    _find_table = "SELECT 1 WHERE to_regclass(?) IS NOT NULL"
    # Clients that have the row learn of it that way.
    take_back = "UPDATE memories SET deleted_at = now(), updated_at = now() WHERE id = ?"
    erase = (
        "UPDATE memories SET content = '', tags = '', expanded_keywords = '', deleted_at = now(), "
        "updated_at = now() WHERE id = ?"
    )

    def __init__(
        self, address: Address, settings: CorpusSettings, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> None:
        self.display, self._settings = address.display, settings
        self._busy_timeout_ms = busy_timeout_ms
        self._db = connect(address, autocommit=True)
        try:
            self._columns = self._check_schema()
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Hold the advisory lock, and every row that is looked at, for the block."""
        import psycopg

        try:
            with self._db.transaction():
                self.execute("SET LOCAL TIME ZONE 'UTC'")
                self.execute(f"SET LOCAL lock_timeout = {int(self._busy_timeout_ms)}")
                self.execute("SELECT pg_advisory_xact_lock(?)", (_ADVISORY_KEY,))
                yield
        except psycopg.Error as error:
            raise self._failed(error) from None

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        import psycopg

        try:
            placed = cast("LiteralString", sql.replace("?", "%s"))
            cursor = self._db.execute(placed, tuple(values) or None)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def image(self, row_id: int) -> str | None:
        """Return every column as PostgreSQL's own canonical JSON, derived ones left out."""
        derived = " ".join(f"- '{name}'" for name in _DERIVED)
        sql = f"SELECT (to_jsonb(m) {derived})::text FROM memories m WHERE id = ? FOR UPDATE"
        found = self.execute(sql, (row_id,))
        return str(found[0][0]) if found else None

    def restore(self, row_id: int, image: str) -> None:
        """Restore the columns RESTORED from an image, with the types of the table itself."""
        names = ", ".join(RESTORED)
        self.execute(
            f"UPDATE memories SET ({names}) = (SELECT {names} FROM "
            "jsonb_populate_record(NULL::memories, ?::jsonb)) WHERE id = ?",
            (image, row_id),
        )

    def _lasting(self) -> str:
        # By name in JSON: an early migration lacks the columns.
        return (
            "NOT coalesce(is_sensitive, false) AND deleted_at IS NULL "
            "AND coalesce(to_jsonb(memories) ->> 'vault_path', '') = '' "
            r"AND coalesce(to_jsonb(memories) ->> 'encrypted_content', '') IN ('', '\x')"
        )

    def _fields(self, row_id: int) -> dict[str, Any] | None:
        names = [name for name in _READ if name in self._columns]
        shown = ", ".join(f"{n}::text" if n.endswith("_at") else n for n in names)
        found = self.execute(f"SELECT {shown} FROM memories WHERE id = ? FOR UPDATE", (row_id,))
        return dict(zip(names, found[0], strict=True)) if found else None

    def _check_schema(self) -> dict[str, str]:
        """Return the columns of `memories`; SourceFormatError if it is no such database."""
        rows = self.execute(
            "SELECT attname, attgenerated, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass('memories') AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum"
        )
        missing = sorted(_REQUIRED - {str(row[0]) for row in rows})
        if missing:
            found = "no table 'memories'" if not rows else f"no column {', '.join(missing)} in it"
            raise SourceFormatError(
                f"{self.display} is not a claude-memory database of version 003 or later: expected "
                f"a table 'memories' with {', '.join(sorted(_REQUIRED))}; found {found}."
            )
        return {
            str(name): f"CAST(? AS {kind})"
            for name, is_generated, kind in rows
            if is_generated not in (b"s", "s")
        }

    def _failed(self, error: psycopg.Error) -> SourceError:
        code = error.sqlstate or type(error).__name__
        if code in _LOCKED:
            return SourceError(
                f"{self.display} stayed locked by another writer for "
                f"{self._busy_timeout_ms / 1000:g} s. Nothing was written; try again later."
            )
        # The message of a failed statement may quote a row.
        return SourceError(
            f"{self.display} refused the write ({code}). Nothing was; check that this "
            f"user may write to 'memories' and create a table (the journal, once)."
        )


Store = SqliteStore | PostgresStore
"""A source that can be tidied."""


def open_writable(source: str, settings: CorpusSettings) -> Store:
    """Open a path, `postgresql://...` or `env:NAME` for writing; SourceError, ConfigError."""
    if names_postgres(source):
        return PostgresStore(read_address(source), settings)
    with open_source(Path(source)) as opened:
        identity = opened.identity()
    if identity.members:
        raise SourceError(
            f"{identity.location} lists several stores ({', '.join(identity.members)}), and a "
            "change is written to one: name its path with --source"
        )
    if identity.kind != KIND:
        what = "JSON lines" if identity.kind.startswith("jsonl") else f"of the kind {identity.kind}"
        raise SourceError(
            f"{identity.location} is {what}, which noctuary only reads: a row of them cannot "
            "be changed within a transaction. Tidy the database that it was exported from: "
            "--source memory.db, or --source env:NAME with a PostgreSQL address in it."
        )
    return SqliteStore(Path(identity.location), settings)
