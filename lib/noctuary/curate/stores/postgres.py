"""Writing to a claude-memory PostgreSQL database beside its live server.

What belongs here: the connection (psycopg, extra `postgres`), the transaction and the statements.
Rows are locked by SELECT ... FOR UPDATE before they are compared, two noctuarys by an advisory lock
(docs/decisions/0042). `search_vector` follows by itself; `embedding` stays as it is, as after the
server's own PUT, and is empty in an added row, as in any that waits for the server's embedder
(research/peers.md 2.2, 2.3).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, LiteralString, cast

from noctuary.corpus.sqlite_source import OPTIONAL_COLUMNS, REQUIRED_COLUMNS
from noctuary.curate.journal import TABLE
from noctuary.curate.stores.base import BUSY_TIMEOUT_MS, RESTORED, StoredRow, judge
from noctuary.errors import SourceError, SourceFormatError
from noctuary.postgres.address import Address
from noctuary.settings import CorpusSettings

if TYPE_CHECKING:
    import psycopg

CONNECT_TIMEOUT_S = 10
"""How long to wait for a server that does not answer."""

_REQUIRED = frozenset({*REQUIRED_COLUMNS, "user_id", "deleted_at"})
_READ = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
_DERIVED = ("search_vector", "embedding")
_ADVISORY_KEY = 0x6D6E656D6F6E  # "noctuary"
_LOCKED = ("55P03", "40P01")  # lock_not_available, deadlock_detected


class PostgresStore:
    """A claude-memory database; see `noctuary.curate.stores.base.WritableStore`."""

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
    """See `noctuary.curate.stores.base.Transaction`."""

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
        names = [name for name in _READ if name in self._columns]
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
