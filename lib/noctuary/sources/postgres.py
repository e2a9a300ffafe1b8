"""PostgreSQL: addresses, connections and the shape of a claude-memory database."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, cast

from noctuary.core.errors import ConfigError, SourceError, SourceFormatError
from noctuary.core.store import DatabaseName, name_source
from noctuary.core.types import dataclass
from noctuary.sources.source import QuarantineReason, RawRow
from noctuary.text.secrets import FALSE_WORDS, FLAG_FIELDS, FLAGGED, VAULT_FIELDS, VAULTED

if TYPE_CHECKING:
    import psycopg


# Where a PostgreSQL source is, checked by libpq, and what of that may be shown: no password.

_HIDDEN = "***"
_SHORTEST = 3  # of a secret that is replaced in a message: a shorter one would garble every word


@dataclass(frozen=True, slots=True)
class Address:
    """A database."""

    conninfo: str = field(repr=False)  # For libpq, password included; not shown by repr
    display: str  # For people: user, host, port and database
    secrets: tuple[str, ...] = field(repr=False)  # What must not be shown

    def cleaned(self, message: str) -> str:
        """Return a message of libpq's in one line, without the address and its secrets."""
        for secret in (self.conninfo, *self.secrets):
            if len(secret) >= _SHORTEST:
                message = message.replace(secret, _HIDDEN)
        return " ".join(message.split())


def read_address(source: str | DatabaseName, environ: Mapping[str, str] | None = None) -> Address:
    """Return the database that a source names."""
    named = name_source(source, environ) if isinstance(source, str) else source
    if not isinstance(named, DatabaseName):
        raise ConfigError(f"{named} is a path; expected postgresql://... or env:NAME")
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise SourceError(
            "A PostgreSQL source needs psycopg: install noctuary with the extra 'postgres'."
        ) from None
    try:
        parts = conninfo_to_dict(named.conninfo)
    except ProgrammingError:
        # Its text quotes the address.
        raise ConfigError(
            "the address of the PostgreSQL source cannot be read; expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    secrets = tuple(str(parts[name]) for name in ("password", "sslpassword") if name in parts)
    return Address(named.conninfo, named.display, secrets)


# Connections to a claude-memory database: pinned, read-only, bounded in time, silent about rows.
#
# Two limits bound every wait. The server's own `statement_timeout` ends a statement that is slow;
# the client's ends one whose server, or the way to it, has gone silent. Neither is given as a
# start parameter: a pooler (PgBouncer) refuses those, and for the same reason no statement is
# prepared.

APPLICATION_NAME = "noctuary"
"""What the server's administrator sees in pg_stat_activity."""

_KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
_TIMED_OUT = ("57014", "55P03")  # query_canceled by a limit, lock_not_available
_DENIED = "42501"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait."""

    # Seconds for a connection; libpq takes at least 2. The address may say otherwise.
    connect_s: int = 10
    statement_ms: int = 300_000  # Milliseconds for one statement
    # Milliseconds that the server keeps the transaction open while nothing is asked; afterwards it
    # must be free to clean up. 0 leaves it to the server's setting.
    idle_ms: int = 1_800_000
    # Milliseconds after `statement_ms` for which the server's own limit is waited for, because it
    # says why; then the connection is cut
    grace_ms: int = 5_000


NIGHTLY = Limits()


class Pinned:
    """One read-only transaction, of the state the database had at the first statement.

    Not for several threads at once. Errors are `SourceError`s that quote no row and no address.
    """

    def __init__(self, address: Address, limits: Limits = NIGHTLY) -> None:
        """Connect and begin."""
        self.display = address.display
        self._address = address
        self._limits = limits
        self._db = _connect(address, limits)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def rows(
        self, statement: str, values: Mapping[str, object] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement of this project's own and return all its rows."""
        with self._guarded():
            return self._db.execute(cast("LiteralString", statement), values).fetchall()

    def one(self, statement: str, values: Mapping[str, object] | None = None) -> Any:
        """Return the only value of a statement; as `rows`."""
        return self.rows(statement, values)[0][0]

    def stream(
        self,
        statement: str,
        values: Mapping[str, object] | None = None,
        *,
        size: int = 1_000,
    ) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a statement by a cursor of the server, at most `size` at once.

        Several may be open at a time. Memory is bounded by `size` rows of whatever width: for
        contents see `noctuary.sources.postgres.read_pages`.
        """
        with self._guarded():
            cursor = self._db.cursor(f"noctuary_{os.urandom(8).hex()}")
            cursor.execute(cast("LiteralString", statement), values)
        try:
            while True:
                with self._guarded():
                    batch = cursor.fetchmany(size)
                if not batch:
                    return
                yield batch
        finally:
            # A transaction that failed has closed it already.
            with suppress(Exception):
                cursor.close()

    def close(self) -> None:
        """End the transaction and the connection; safe to call twice."""
        self._db.close()

    def _begin(self) -> None:
        from psycopg import IsolationLevel

        self._db.isolation_level = IsolationLevel.REPEATABLE_READ
        self._db.read_only = True
        limits = {"statement_timeout": self._limits.statement_ms}
        if self._limits.idle_ms:
            limits["idle_in_transaction_session_timeout"] = self._limits.idle_ms
        encoding = self._db.info.parameter_status("server_encoding")
        shape = {
            # Text of a database without an encoding is bytes; every other the server converts.
            "client_encoding": "SQL_ASCII" if encoding == "SQL_ASCII" else "UTF8",
            "TimeZone": "UTC",
            "DateStyle": "ISO, YMD",
        }
        settings = {name: f"{value}ms" for name, value in limits.items()} | shape
        # One statement, and the first: `now()` is the moment before the state was pinned.
        calls = ", ".join(f"set_config('{name}', %({name})s, true)" for name in settings)
        self.rows(f"SELECT {calls}", settings)

    @contextmanager
    def _guarded(self) -> Generator[None]:
        import psycopg

        with _Deadline(self._db, self._limits.statement_ms + self._limits.grace_ms) as deadline:
            try:
                yield
            except psycopg.Error as error:
                raise self._failed(error, is_late=deadline.is_over) from None

    def _failed(self, error: psycopg.Error, *, is_late: bool) -> SourceError:
        """Return what may be said of an error: the message of one may quote a row."""
        code = error.sqlstate or ""
        if is_late or code in _TIMED_OUT:
            return SourceError(
                f"{self.display} took longer than {self._limits.statement_ms / 1000:g} s for one "
                f"statement ({code or 'no answer'}). Nothing was published; the next run starts "
                f"anew. Look for locks and for load on the server."
            )
        if not code or code.startswith(_LOST) or self._db.closed:
            return SourceError(
                f"The connection to {self.display} was lost ({code or type(error).__name__}). "
                f"Nothing was published; the next run starts anew."
            )
        if code == _DENIED:
            return SourceError(
                f"{self.display} does not let this user read what noctuary needs ({code}): grant "
                f"SELECT on the tables of claude-memory and USAGE on their schema."
            )
        return SourceError(
            f"{self.display} refused a statement ({code}). Nothing was published; check that it is "
            f"a claude-memory database, and report this if it is."
        )


class _Deadline:
    """Cuts a connection off that has not answered in time; libpq alone would wait for ever."""

    def __init__(self, db: psycopg.Connection[Any], after_ms: int) -> None:
        self._db = db
        self.is_over = False
        self._timer = threading.Timer(after_ms / 1000, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cut(self) -> None:
        self.is_over = True
        # A copy of the descriptor: the connection closes its own.
        with suppress(Exception), socket.socket(fileno=os.dup(self._db.fileno())) as cut:
            cut.shutdown(socket.SHUT_RDWR)


def _connect(address: Address, limits: Limits) -> psycopg.Connection[tuple[Any, ...]]:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise SourceError(
            "A PostgreSQL source needs psycopg: install noctuary with the extra 'postgres'."
        ) from None
    defaults = {
        "connect_timeout": limits.connect_s,
        "application_name": APPLICATION_NAME,
        **_KEEPALIVES,
    }
    given = conninfo_to_dict(address.conninfo)
    own = {name: value for name, value in defaults.items() if name not in given}
    try:
        return psycopg.connect(address.conninfo, prepare_threshold=None, **cast("Any", own))
    except psycopg.Error as error:
        raise SourceError(
            f"{address.display} cannot be reached: {address.cleaned(str(error))} Check the address "
            f"and that the server runs."
        ) from None


# The shape of a claude-memory database: which migrations it has seen (research/peers.md 2.2).

MEMORIES = "memories"
REQUIRED_COLUMNS = (
    "id",
    "content",
    "category",
    "tags",
    "expanded_keywords",
    "importance",
    "created_at",
    "updated_at",
)
"""Columns of migration 001."""

OPTIONAL_COLUMNS = ("user_id", "is_sensitive", "vault_path", "encrypted_content", "deleted_at")
"""Columns of migrations 002 and 003."""

NEWEST_VERSION = "006"

NOTE_NEWER = "newer_schema_version"
NOTE_UNMARKED = "no_sensitivity_marks"
NOTE_UNREADABLE = "tables_not_readable"

_TABLES = {
    "memory_shares": "004",
    "tag_shares": "004",
    "concepts": "005",
    "concept_edges": "005",
    "memory_concepts": "005",
    "memory_links": "006",
}
_INTEGERS = ("smallint", "integer", "bigint")


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """What of a database may be read."""

    version: str  # The migration that it has seen last, "001" and later
    columns: Mapping[str, str]  # Of `memories`: name to type, as `format_type` has it
    # Of the others that noctuary reads: those that are there and may be read
    tables: frozenset[str]
    notes: tuple[str, ...] = ()  # Oddities, by name (docs/formats.md)


def read_schema(pinned: Pinned) -> DatabaseSchema:
    """Return the shape of a database, of any migration from 001 on.

    Vectors are of no use here, so that it does not matter whether the server has pgvector. A table
    that this user may not read counts as one that is not there: nobody reads a share that cannot
    be seen.
    """
    columns, unreadable = _read_columns(pinned)
    _check_columns(pinned, columns, unreadable)
    readable, hidden = _read_tables(pinned)
    version = _read_version(pinned) or _infer_version(columns, readable | hidden)
    notes = {
        NOTE_NEWER: version > NEWEST_VERSION,
        NOTE_UNMARKED: not any(name in columns for name in FLAG_FIELDS),
        NOTE_UNREADABLE: bool(hidden),
    }
    return DatabaseSchema(
        version, columns, readable, tuple(n for n, is_so in notes.items() if is_so)
    )


def _read_columns(pinned: Pinned) -> tuple[dict[str, str], set[str]]:
    """Return the columns of `memories` with their types, and which of them may not be read."""
    found = pinned.rows(
        "SELECT attname::text, format_type(atttypid, atttypmod), "
        "has_column_privilege(attrelid, attnum, 'SELECT') FROM pg_attribute "
        f"WHERE attrelid = to_regclass('{MEMORIES}') AND attnum > 0 AND NOT attisdropped"
    )
    known = {*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, *FLAG_FIELDS, *VAULT_FIELDS}
    rows = [(_text(name), _text(kind), may) for name, kind, may in found]
    columns = {name: kind for name, kind, _ in rows if name in known}
    return columns, {name for name, _, may in rows if name in known and not may}


def _check_columns(pinned: Pinned, columns: Mapping[str, str], unreadable: set[str]) -> None:
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        found = f"no column {', '.join(missing)} in it" if columns else "no such table"
        raise SourceFormatError(
            f"{pinned.display} is no claude-memory database: expected a table '{MEMORIES}' with "
            f"{', '.join(REQUIRED_COLUMNS)}; found {found}. Check the database's name and that "
            f"this user has USAGE on its schema."
        )
    if unreadable:
        # A mark that cannot be read could be set.
        raise SourceError(
            f"{pinned.display}: this user may not read {', '.join(sorted(unreadable))} of "
            f"'{MEMORIES}'. Grant SELECT on the whole table; what is marked sensitive stays there."
        )
    if columns["id"] not in _INTEGERS or not _is_unique(pinned):
        raise SourceFormatError(
            f"{pinned.display}: '{MEMORIES}' must be a table with a whole number 'id' as its "
            f"primary key, found {columns['id']}. Export the store as JSON lines; other ids are "
            f"read from there."
        )


def _is_unique(pinned: Pinned) -> bool:
    """Say whether ids are distinct and never NULL: pages of ascending ids lose nothing."""
    return bool(
        pinned.one(
            "SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = "
            f"i.indrelid AND a.attname = 'id' WHERE i.indrelid = to_regclass('{MEMORIES}') "
            "AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 "
            "AND i.indkey[0] = a.attnum AND a.attnotnull)"
        )
    )


def _read_tables(pinned: Pinned) -> tuple[frozenset[str], frozenset[str]]:
    """Return which of the other tables may be read and which are there but may not."""
    names = list(_TABLES)
    found = pinned.rows(
        "SELECT name, has_table_privilege(to_regclass(name), 'SELECT') "
        "FROM unnest(%(names)s::text[]) AS name WHERE to_regclass(name) IS NOT NULL",
        {"names": names},
    )
    readable = frozenset(_text(name) for name, may in found if may)
    return readable, frozenset(_text(name) for name, may in found if not may)


def _read_version(pinned: Pinned) -> str | None:
    """Return the version that the migrations wrote down themselves, or None."""
    has = "to_regclass('alembic_version')"
    if not pinned.one(f"SELECT coalesce(has_table_privilege({has}, 'SELECT'), false)"):
        return None
    found = pinned.rows("SELECT max(version_num)::text FROM alembic_version")
    version = _text(found[0][0]) if found and found[0][0] is not None else ""
    return version if version.isdecimal() else None


def _infer_version(columns: Mapping[str, str], tables: frozenset[str]) -> str:
    seen = ["001"]
    seen += ["002"] if "user_id" in columns else []
    seen += ["003"] if "deleted_at" in columns else []
    return max([*seen, *(_TABLES[name] for name in tables)])


def _text(value: object) -> str:
    """Return a name; it comes as bytes from a database without an encoding."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# Whose a row of a claude-memory database is, and who else may read it.

DEFAULT_USER = "default"
"""Whom the server names where it has a single key (claude-memory, migration 002)."""


class Reader(NamedTuple):
    """What is read of one database, by whom."""

    schema: DatabaseSchema  # Its shape
    user: str | None  # Whose rows, and those shared with them; None reads everyone's
    # Whether the store knows several users: then every row is somebody's. Otherwise the server's
    # one user is nobody in particular.
    has_users: bool

    @property
    def scope_name(self) -> str:
        """Return by which rule rows are given to users; rows differ when it does."""
        if self.user is not None:
            return f"user:{self.user}"
        return "several" if self.has_users else "single"


def make_reader(pinned: Pinned, schema: DatabaseSchema, user: str) -> Reader:
    """Return what is read for a user; "" reads everyone's rows."""
    return Reader(schema, user or None, bool(user) or _knows_users(pinned, schema))


def user_sql(reader: Reader, table: str = "m") -> str:
    """Return an expression for whose a row of `memories` is; NULL where it is nobody's."""
    if not reader.has_users or "user_id" not in reader.schema.columns:
        return "NULL::text"
    # A row without a name is the server's own user's: never everyone's.
    return f"coalesce(nullif(btrim({table}.user_id), ''), '{DEFAULT_USER}')"


def visible_sql(reader: Reader, table: str = "m") -> str:
    """Return a condition on a row of `memories`: the reader's user may read it.

    It needs the value `user`. The rules are the server's own: a row of theirs, a share of the row,
    or one of a tag that its owner set, either for reading or for writing (claude-memory,
    api/permissions.py). Each row is judged by itself: a page of ids costs no more than its rows.
    """
    if reader.user is None:
        return "true"
    if "user_id" not in reader.schema.columns:
        return f"%(user)s = '{DEFAULT_USER}'"
    found = [f"{user_sql(reader, table)} = %(user)s"]
    for share, condition in _share_conditions(reader, table).items():
        found.append(
            f"EXISTS (SELECT 1 FROM {share} s WHERE s.shared_with = %(user)s AND {condition})"
        )
    return f"({' OR '.join(found)})"


def shares_sql(reader: Reader) -> str | None:
    """Return a query for who may read which row besides its owner: memory_id, shared_with.

    It needs the value `user`: with one, only what concerns that user. None where the store knows
    no shares.
    """
    condition = "true" if reader.user is None else "s.shared_with = %(user)s"
    found = [
        f"SELECT m.id AS memory_id, s.shared_with FROM {share} s JOIN {MEMORIES} m ON {rule} "
        f"WHERE {condition}"
        for share, rule in _share_conditions(reader, "m").items()
    ]
    return " UNION ".join(found) if found else None


def _share_conditions(reader: Reader, table: str) -> dict[str, str]:
    """Return by table of shares, as `s`, when one is about a row."""
    may_read = "s.permission IN ('read', 'write')"
    tags = f"unnest(string_to_array({table}.tags::text, ','))"
    rules = {
        "memory_shares": f"s.memory_id = {table}.id AND {may_read}",
        "tag_shares": (
            f"s.owner_id = {user_sql(reader, table)} AND {may_read} "
            f"AND EXISTS (SELECT 1 FROM {tags} t WHERE btrim(t) = s.tag)"
        ),
    }
    has_owners = "user_id" in reader.schema.columns
    return {
        name: rule for name, rule in rules.items() if has_owners and name in reader.schema.tables
    }


def _knows_users(pinned: Pinned, schema: DatabaseSchema) -> bool:
    """Say whether several people use the store: somebody is named, or something is shared."""
    if "user_id" not in schema.columns:
        return False
    tables = [name for name in ("memory_shares", "tag_shares") if name in schema.tables]
    # A table of shares that cannot be read may hold one.
    if NOTE_UNREADABLE in schema.notes:
        return True
    # The index on user_id has its ends; only where they differ are rows looked at.
    alone = f"SELECT min(user_id) = '{DEFAULT_USER}' AND max(user_id) = '{DEFAULT_USER}'"
    named = f"SELECT 1 FROM {MEMORIES} WHERE btrim(user_id) NOT IN ('', '{DEFAULT_USER}')"
    if pinned.one(f"{alone} FROM {MEMORIES}"):
        named = "SELECT 1 WHERE false"
    looks = [named, *(f"SELECT 1 FROM {name}" for name in tables)]
    return bool(pinned.one("SELECT " + " OR ".join(f"EXISTS ({look})" for look in looks)))


# Rows of `memories` as they may be read: in pages, the text of marked ones left out.
#
# Every expression is made of this module's constants and of names of columns that
# `noctuary.sources.postgres` knows; values are always sent apart from it.

MAX_ROW_BYTES = 16 * 2**20
"""A row with more text than this is not fetched: the store's own limit is 1,400 characters. Larger
keeps stranger rows in, smaller saves memory."""

PAGE_BYTES = 32 * 2**20
"""A page ends early once its texts reach this: larger saves statements, smaller memory."""

_TEXTS = ("content", "category", "tags", "expanded_keywords")
_MOMENTS = ("created_at", "updated_at", "deleted_at")


def mark_sql(schema: DatabaseSchema, table: str = "m") -> str:
    """Return an expression that is `FLAGGED`, `VAULTED` or NULL.

    At least as strict as `noctuary.text.secrets.find_mark` for every type of column.
    """
    words = ", ".join(f"'{word}'" for word in sorted(FALSE_WORDS))
    flags = [
        f"lower(btrim({table}.{name}::text)) NOT IN ({words})"
        for name in FLAG_FIELDS
        if name in schema.columns
    ]
    # Empty bytes are `\x` as text.
    vaults = [
        rf"{table}.{name}::text NOT IN ('', '\x')"
        for name in VAULT_FIELDS
        if name in schema.columns
    ]
    cases = [
        f"WHEN {' OR '.join(found)} THEN '{reason}'"
        for reason, found in ((FLAGGED, flags), (VAULTED, vaults))
        if found
    ]
    return f"CASE {' '.join(cases)} END" if cases else "NULL::text"


def field_names(schema: DatabaseSchema) -> tuple[str, ...]:
    """Return the columns whose values a row has, in order; those of marks are never among them."""
    moments = [name for name in _MOMENTS if name in schema.columns]
    return ("id", *_TEXTS, "importance", *moments, "user_id")


def read_pages(
    pinned: Pinned, reader: Reader, size: int, keys: Sequence[int] | None = None
) -> Iterator[list[RawRow]]:
    """Yield rows by ascending id, at most `size` and about PAGE_BYTES at once.

    Fields are text, float, None, or bytes where text is not in any encoding; moments are ISO 8601
    text with an offset, `infinity` as it is.

    Each page is one statement that starts after the last id (no offset): the primary key's index
    finds it. A row's length is known to the server without reading it, so that one that is too
    large is never fetched.
    """
    sql = _page_sql(reader, by_key=keys is not None)
    names = field_names(reader.schema)
    values: dict[str, object] = {"user": reader.user, "size": size, "keys": keys, "after": None}
    while found := pinned.rows(sql, values):
        yield [_row(names, row) for row in found]
        values["after"] = found[-1][0]


def _page_sql(reader: Reader, *, by_key: bool) -> str:
    names = field_names(reader.schema)
    lengths = " + ".join(f"coalesce(octet_length(m.{name}::text), 0)" for name in _TEXTS)
    where = ["(%(after)s::bigint IS NULL OR m.id > %(after)s)", visible_sql(reader)]
    where += ["m.id = ANY(%(keys)s::bigint[])"] if by_key else []
    shown = ", ".join(_shown(name, reader) for name in names[1:])
    is_sent = f"mark IS NULL AND bytes <= {MAX_ROW_BYTES}"
    return (
        f"WITH page AS MATERIALIZED (SELECT m.id, {mark_sql(reader.schema)} AS mark, "
        f"{lengths} AS bytes FROM {MEMORIES} m WHERE {' AND '.join(where)} "
        "ORDER BY m.id LIMIT %(size)s), "
        f"sized AS (SELECT *, CASE WHEN {is_sent} THEN bytes ELSE 0 END AS sent FROM page), "
        # Never falls: what is left out of a page is all that comes after a row.
        "placed AS (SELECT *, sum(sent) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - sent "
        "AS before FROM sized) "
        f"SELECT p.id, p.mark, p.bytes, {shown} FROM placed p LEFT JOIN {MEMORIES} m "
        f"ON m.id = p.id AND p.mark IS NULL AND p.bytes <= {MAX_ROW_BYTES} "
        f"WHERE p.before < {PAGE_BYTES} ORDER BY p.id"
    )


def _shown(name: str, reader: Reader) -> str:
    if name == "user_id":
        return user_sql(reader)
    return f"m.{name}::text" if name in _MOMENTS else f"m.{name}"


def _row(names: Sequence[str], values: Sequence[Any]) -> RawRow:
    key, mark, size, *rest = values
    key, locator = int(key), f"id {key}"
    if mark is not None:
        return RawRow(locator, key, {}, withheld=_text(mark))
    if size > MAX_ROW_BYTES:
        detail = f"row: {size} bytes of text, not fetched"
        return RawRow(locator, key, {}, QuarantineReason.CONTENT_TOO_LARGE, detail)
    fields = {name: _value(name, value) for name, value in zip(names[1:], rest, strict=True)}
    return RawRow(locator, key, {"id": key, **fields})


def _value(name: str, value: Any) -> object:
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            value = value.decode("utf-8")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str) and name in _MOMENTS and value.endswith("+00"):
        return f"{value[:10]}T{value[11:]}:00"
    return value
