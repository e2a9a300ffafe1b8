"""Sources that can be written, all of it inside one transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, LiteralString, NamedTuple, Protocol, cast

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.files import canonical_json
from noctuary.core.settings import CorpusSettings
from noctuary.core.sqlite import decode_text, name_fault
from noctuary.core.store import names_postgres
from noctuary.core.types import MemoryRecord
from noctuary.sources.normalize import Accepted, find_sensitivity, normalize
from noctuary.sources.postgres import Address, read_address
from noctuary.sources.source import RawRow, open_source
from noctuary.sources.sqlite import KIND, OPTIONAL_COLUMNS, REQUIRED_COLUMNS, SqliteSource
from noctuary.text.secrets import mark_sql

if TYPE_CHECKING:
    import psycopg


# What a source must be able to do to be tidied, all of it inside one transaction.


RESTORED = ("content", "tags", "expanded_keywords", "importance", "updated_at")
"""Columns that curation writes, and that undo puts back."""

BUSY_TIMEOUT_MS = 30_000
"""How long to wait for another writer; the store's own clients wait as long."""


class StoredRow(NamedTuple):
    """A row of the source, locked by this transaction.

    Attributes:
        row_id: Its id there.
        record: The memory that it is, or None where it is sensitive, deleted or damaged.
    """

    row_id: int
    record: MemoryRecord | None


class Transaction(Protocol):
    """A source between BEGIN and COMMIT; nobody else writes to the rows it has read."""

    def row(self, row_id: int) -> StoredRow | None:
        """Return a row, or None where there is none."""
        ...

    def ids_with_text(self, content: str) -> Sequence[int]:
        """Return the ids of all rows with exactly this content, ascending."""
        ...

    def image(self, row_id: int) -> str | None:
        """Return the columns of a row as canonical JSON, derived ones left out; None without it."""
        ...

    def update(self, row_id: int, values: Mapping[str, object]) -> None:
        """Set columns of a row."""
        ...

    def copy(self, row_id: int, values: Mapping[str, object]) -> int:
        """Insert a row like another one but for some columns, and return its id."""
        ...

    def take_back(self, row_id: int) -> None:
        """Remove a row that `copy` made, in the way in which the source removes rows."""
        ...

    def restore(self, row_id: int, image: str) -> None:
        """Set the columns RESTORED to what an image says, exactly."""
        ...

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the journal's, `?` for each value, and return its rows."""
        ...

    def forget_lost_rows(self) -> None:
        """Drop the journal's images of rows that are sensitive or deleted by now."""
        ...


class WritableStore(Protocol):
    """A source that can be tidied.

    Attributes:
        display: What it is called in messages; no secret.
        notes: What its owner should know before writing, as sentences.
    """

    display: str
    notes: tuple[str, ...]

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin to write; commit at the end of the block, roll back whatever is raised in it.

        Raises:
            SourceError: The source is locked by another writer, or cannot be written.
        """
        ...

    def has_journal(self) -> bool:
        """Say whether anything was ever written; takes no lock."""
        ...

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from the journal outside of a transaction."""
        ...

    def close(self) -> None:
        """Release the source; safe to call twice."""
        ...


def judge(row_id: int, fields: Mapping[str, object], settings: CorpusSettings) -> StoredRow:
    """Return a row with the memory that an export of it would give.

    Args:
        row_id: Its id.
        fields: The columns that an export reads.
        settings: As of the night that made the proposals.
    """
    raw = RawRow(locator=f"id {row_id}", key=row_id, fields=fields)
    if find_sensitivity(raw) is not None:
        return StoredRow(row_id, None)
    verdict = normalize(raw, position=0, now_us=time.time_ns() // 1000, settings=settings)
    return StoredRow(row_id, verdict.record if isinstance(verdict, Accepted) else None)


# The journal of what was written to a source, kept in that source: a row per touched row.
#
# It lies in the source itself, so that no text leaves the source and one transaction covers both.


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
_COLUMNS = (
    "journal_id, entry, proposal_id, row_id, change, before_image, after_hash, applied_at, "
    "undone_at"
)

Change = Literal["tombstone", "update", "add"]


class Execute(Protocol):
    """Whatever runs statements with `?` for values."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...


class Entry(NamedTuple):
    """One touched row.

    Attributes:
        journal_id: Of the whole application; what `--undo` takes.
        entry: Order within it, from 0.
        proposal_id: Why.
        row_id: Which row of the source.
        change: "tombstone", "update" or "add".
        before_image: Every column before, as JSON; None for an added row, after an undo, and where
            the row has been marked sensitive or deleted since.
        after_hash: Of the image after, so that a later change is seen.
        applied_at: ISO 8601, UTC.
        undone_at: Likewise, or None while it holds.
    """

    journal_id: int
    entry: int
    proposal_id: str
    row_id: int
    change: Change
    before_image: str | None
    after_hash: str
    applied_at: str
    undone_at: str | None


class Application(NamedTuple):
    """One journal_id at a glance.

    Attributes:
        journal_id: What `--undo` takes.
        applied_at: ISO 8601, UTC.
        undone_at: Likewise, or None.
        proposals: How many proposals it wrote.
        rows: How many rows it touched.
        undoable: False where images were forgotten, or it is undone already.
    """

    journal_id: int
    applied_at: str
    undone_at: str | None
    proposals: int
    rows: int
    undoable: bool


def ensure_journal(db: Execute) -> None:
    """Create the table if it is not there."""
    db.execute(_CREATE)


def next_id(db: Execute) -> int:
    """Return the id of the next application; the caller holds the write lock."""
    return int(db.execute(f"SELECT coalesce(max(journal_id), 0) + 1 FROM {TABLE}")[0][0])


def write_entry(db: Execute, entry: Entry) -> None:
    """Append an entry."""
    db.execute(f"INSERT INTO {TABLE} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", entry)


def entries_of(db: Execute, journal_id: int) -> list[Entry]:
    """Return the entries of an application in order; empty where there is no such one."""
    sql = f"SELECT {_COLUMNS} FROM {TABLE} WHERE journal_id = ? ORDER BY entry"
    return [Entry(*row) for row in db.execute(sql, (journal_id,))]


def applied_proposals(db: Execute) -> dict[str, int]:
    """Return journal ids by proposal id, of what holds."""
    rows = db.execute(
        f"SELECT proposal_id, max(journal_id) FROM {TABLE} WHERE undone_at IS NULL "
        "GROUP BY proposal_id"
    )
    return {str(proposal_id): int(journal_id) for proposal_id, journal_id in rows}


def mark_undone(db: Execute, journal_id: int, moment: str) -> None:
    """Note that an application was taken back; its images are of no more use and go."""
    db.execute(
        f"UPDATE {TABLE} SET undone_at = ?, before_image = NULL WHERE journal_id = ?",
        (moment, journal_id),
    )


def applications(db: Execute) -> list[Application]:
    """Return every application, oldest first."""
    rows = db.execute(
        "SELECT journal_id, min(applied_at), min(undone_at), count(DISTINCT proposal_id), count(*),"
        " min(CASE WHEN undone_at IS NULL AND (change = 'add' OR before_image IS NOT NULL) "
        f"THEN 1 ELSE 0 END) FROM {TABLE} GROUP BY journal_id ORDER BY journal_id"
    )
    return [
        Application(int(i), str(at), undone, int(proposals), int(count), bool(undoable))
        for i, at, undone, proposals, count, undoable in rows
    ]


# Writing to a claude-memory SQLite store beside its live writer.
#
# One `BEGIN IMMEDIATE` from the first look to the commit: no other writer comes between, readers
# go on. Killed at any moment, SQLite rolls back.


_READ_SQLITE = frozenset((*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS))
_NEVER_COPIED = frozenset({"id", "server_id"})
_BLOB = "$hex"


class SqliteStore:
    """A claude-memory file; see `noctuary.curate.stores.WritableStore`."""

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
        self._db.text_factory = decode_text
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
        fault, name = name_fault(error)
        if fault == "locked":
            return SourceError(
                f"{self.display} stayed locked by another writer for {self._timeout_s:g} s. "
                f"Nothing was written; try again when it has finished."
            )
        if fault == "closed":
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
    """See `noctuary.curate.stores.Transaction`."""

    def __init__(self, db: sqlite3.Connection, settings: CorpusSettings) -> None:
        self._db = db
        self._settings = settings

    def row(self, row_id: int) -> StoredRow | None:
        """Return a row, or None."""
        found = self._columns_of(row_id)
        if found is None:
            return None
        fields = {name: value for name, value in found.items() if name in _READ_SQLITE}
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


# Writing to a claude-memory PostgreSQL database beside its live server.
#
# Rows are locked by SELECT ... FOR UPDATE before they are compared, two noctuarys by an advisory
# lock (docs/decisions/0019). `search_vector` follows by itself; `embedding` stays as it is, as
# after the server's own PUT, and is empty in an added row, as in any that waits for the server's
# embedder (research/peers.md 2.2, 2.3).


CONNECT_TIMEOUT_S = 10
"""How long to wait for a server that does not answer."""

_REQUIRED = frozenset({*REQUIRED_COLUMNS, "user_id", "deleted_at"})
_READ_POSTGRES = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
_DERIVED = ("search_vector", "embedding")
_ADVISORY_KEY = 0x6D6E656D6F6E  # "noctuary"
_LOCKED = ("55P03", "40P01")  # lock_not_available, deadlock_detected


class PostgresStore:
    """A claude-memory database; see `noctuary.curate.stores.WritableStore`."""

    def __init__(
        self, address: Address, settings: CorpusSettings, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS
    ) -> None:
        """Connect and check the schema.

        Args:
            address: Where it is.
            settings: As of the night that made the proposals.
            busy_timeout_ms: How long to wait for another writer.

        Raises:
            SourceError: psycopg is not installed, nobody answers, or it is no claude-memory.
        """
        self.display = address.display
        self.notes: tuple[str, ...] = ()
        self._address = address
        self._settings = settings
        self._busy_timeout_ms = busy_timeout_ms
        self._db = self._connect()
        try:
            self._columns = self._check_schema()
        except BaseException:
            self._db.close()
            raise

    def has_journal(self) -> bool:
        """Say whether anything was ever written."""
        return self._look("SELECT to_regclass(%s) IS NOT NULL", (TABLE,))[0][0] is True

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from the journal outside of a transaction."""
        return self._look(_placed(sql), values)

    @contextmanager
    def transaction(self) -> Generator[PostgresTransaction]:
        """Hold the advisory lock, and every row that is looked at, for the block."""
        import psycopg

        try:
            with self._db.transaction():
                self._db.execute("SET LOCAL TIME ZONE 'UTC'")
                self._db.execute(
                    cast("LiteralString", f"SET LOCAL lock_timeout = {int(self._busy_timeout_ms)}")
                )
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY_KEY,))
                yield PostgresTransaction(self._db, self._columns, self._settings)
        except psycopg.Error as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            import psycopg
        except ImportError:
            raise SourceError(
                "A PostgreSQL source needs psycopg: install noctuary with the extra 'postgres'."
            ) from None
        try:
            return psycopg.connect(
                self._address.conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            )
        except psycopg.Error as error:
            raise SourceError(
                f"{self.display} cannot be reached: {self._address.cleaned(str(error))} Check the "
                f"address and that the server runs."
            ) from None

    def _check_schema(self) -> Mapping[str, str]:
        """Return the columns of `memories` with their types, or say what was found instead."""
        rows = self._look(
            "SELECT attname, attgenerated, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass('memories') AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum"
        )
        missing = sorted(_REQUIRED - {str(row[0]) for row in rows})
        if missing:
            found = "no table 'memories'" if not rows else f"no column {', '.join(missing)} in it"
            raise SourceFormatError(
                f"{self.display} is no claude-memory database of version 003 or later: expected a "
                f"table 'memories' with {', '.join(sorted(_REQUIRED))}; found {found}."
            )
        return {
            str(name): str(kind)
            for name, is_generated, kind in rows
            if is_generated not in (b"s", "s")
        }

    def _look(self, sql: LiteralString, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        import psycopg

        try:
            return self._db.execute(sql, tuple(values) or None).fetchall()
        except psycopg.Error as error:
            raise self._failed(error) from None

    def _failed(self, error: psycopg.Error) -> SourceError:
        code = error.sqlstate or type(error).__name__
        if code in _LOCKED:
            return SourceError(
                f"{self.display} stayed locked by another writer for "
                f"{self._busy_timeout_ms / 1000:g} s. Nothing was written; try again later."
            )
        # The message of a failed statement may quote a row.
        return SourceError(
            f"{self.display} refused what was to be written ({code}). Nothing was; check that this "
            f"user may write to 'memories' and create a table (the journal, once)."
        )


class PostgresTransaction:
    """See `noctuary.curate.stores.Transaction`."""

    def __init__(
        self,
        db: psycopg.Connection[tuple[Any, ...]],
        columns: Mapping[str, str],
        settings: CorpusSettings,
    ) -> None:
        self._db = db
        self._columns = columns
        self._settings = settings

    def row(self, row_id: int) -> StoredRow | None:
        """Return a row and lock it, or None."""
        names = [name for name in _READ_POSTGRES if name in self._columns]
        shown = [f"{n}::text" if n.endswith("_at") else n for n in names]
        found = self.execute(
            f"SELECT {', '.join(shown)} FROM memories WHERE id = ? FOR UPDATE", (row_id,)
        )
        if not found:
            return None
        return judge(row_id, dict(zip(names, found[0], strict=True)), self._settings)

    def ids_with_text(self, content: str) -> list[int]:
        """Return the ids of all rows with this content that are not deleted."""
        rows = self.execute(
            "SELECT id FROM memories WHERE content = ? AND deleted_at IS NULL ORDER BY id",
            (content,),
        )
        return [int(row_id) for (row_id,) in rows]

    def image(self, row_id: int) -> str | None:
        """Return every column as PostgreSQL's own canonical JSON, derived ones left out."""
        derived = " ".join(f"- '{name}'" for name in _DERIVED)
        found = self.execute(
            f"SELECT (to_jsonb(m) {derived})::text FROM memories m WHERE id = ? FOR UPDATE",
            (row_id,),
        )
        return str(found[0][0]) if found else None

    def update(self, row_id: int, values: Mapping[str, object]) -> None:
        """Set columns; the names are this package's own."""
        names = ", ".join(f"{name} = ?" for name in values)
        self.execute(f"UPDATE memories SET {names} WHERE id = ?", (*values.values(), row_id))

    def copy(self, row_id: int, values: Mapping[str, object]) -> int:
        """Insert a row like another one, with no vector yet."""
        names = [n for n in self._columns if n not in ("id", *_DERIVED)]
        sources = [
            f"CAST(? AS {self._columns[name]})" if name in values else f'"{name}"' for name in names
        ]
        taken = [values[name] for name in names if name in values]
        quoted = ", ".join(f'"{name}"' for name in names)
        (found,) = self.execute(
            f"INSERT INTO memories ({quoted}) SELECT {', '.join(sources)} FROM memories "
            "WHERE id = ? RETURNING id",
            (*taken, row_id),
        )
        return int(found[0])

    def take_back(self, row_id: int) -> None:
        """Mark a row that `copy` made as deleted: clients that have it learn of it that way."""
        self.execute(
            "UPDATE memories SET deleted_at = now(), updated_at = now() WHERE id = ?", (row_id,)
        )

    def restore(self, row_id: int, image: str) -> None:
        """Set the columns RESTORED to what an image says, by the types of the table itself."""
        names = ", ".join(RESTORED)
        self.execute(
            f"UPDATE memories SET ({names}) = (SELECT {names} FROM "
            "jsonb_populate_record(NULL::memories, ?::jsonb)) WHERE id = ?",
            (image, row_id),
        )

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with `?` for values; the statements are this package's own."""
        cursor = self._db.execute(_placed(sql), tuple(values) or None)
        return cursor.fetchall() if cursor.description is not None else []

    def forget_lost_rows(self) -> None:
        """Drop images of rows that are sensitive, deleted or gone."""
        self.execute(
            # By name in JSON: an early migration lacks the columns.
            f"UPDATE {TABLE} SET before_image = NULL WHERE before_image IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM memories m WHERE m.id = row_id AND NOT coalesce(is_sensitive, false) "
            "AND deleted_at IS NULL AND coalesce(to_jsonb(m) ->> 'vault_path', '') = '' "
            r"AND coalesce(to_jsonb(m) ->> 'encrypted_content', '') IN ('', '\x'))"
        )


def _placed(sql: str) -> LiteralString:
    """Return a statement of this package with psycopg's placeholders."""
    return cast("LiteralString", sql.replace("?", "%s"))


# From what the user calls the source to a store that can be written.


def open_writable(source: str, settings: CorpusSettings) -> WritableStore:
    """Open a source for writing.

    Args:
        source: A path, `postgresql://...`, or `env:NAME`.
        settings: As of the night that made the proposals.

    Raises:
        SourceError: There is none, it is read-only, or it cannot be opened.
        ConfigError: The address cannot be read.
    """
    if names_postgres(source):
        return PostgresStore(read_address(source), settings)
    with open_source(Path(source)) as opened:
        identity = opened.identity()
    if identity.kind != KIND:
        raise SourceError(
            f"{identity.location} is JSON lines, which noctuary only reads: a row of them cannot "
            "be changed within a transaction. Tidy the database that it was exported from: "
            "--source memory.db, or --source env:NAME with a PostgreSQL address in it."
        )

    return SqliteStore(Path(identity.location), settings)
