"""Read a claude-memory PostgreSQL database in one read-only transaction.

Rows are read by COPY; the texts of marked rows never leave the server.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, cast

from noctuary.core.errors import ConfigError, SourceError, SourceFormatError
from noctuary.core.settings import SourceSettings
from noctuary.core.store import DatabaseName, name_source
from noctuary.core.types import UNDATED_US
from noctuary.sources import sqlite
from noctuary.sources.source import (
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    QuarantineReason,
    RawRow,
    Share,
    Source,
    SourceIdentity,
    Told,
    memory_row,
    true_names,
)
from noctuary.text.flags import FALSE_WORDS, FLAG_FIELDS, FLAGGED, VAULT_FIELDS, VAULTED

if TYPE_CHECKING:
    import psycopg

KIND = "claude-memory-postgres"

# The address of a PostgreSQL source, parsed by libpq; the password is never shown.


@dataclass(frozen=True, slots=True)
class Address:
    """The connection string of a database, and a form of it that is safe to show."""

    conninfo: str = field(repr=False)  # For libpq, password included; not shown by repr
    display: str  # Safe to show: user, host, port and database
    secrets: tuple[str, ...] = field(repr=False)  # Passwords, to be removed from messages

    def cleaned(self, message: str) -> str:
        """Return a message of libpq on one line, without the address and its secrets."""
        for secret in (self.conninfo, *self.secrets):
            if len(secret) > 2:  # replacing a shorter one would garble every word
                message = message.replace(secret, "***")
        return " ".join(message.split())


def read_address(source: str | DatabaseName, environ: Mapping[str, str] | None = None) -> Address:
    """Return the address of the database that a source names; ConfigError if it is invalid."""
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
        # psycopg's message quotes the address.
        raise ConfigError(
            "the address of the PostgreSQL source cannot be read; expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    secrets = tuple(str(parts[name]) for name in ("password", "sslpassword") if name in parts)
    return Address(named.conninfo, named.display, secrets)


# Connections: pinned, read-only, with timeouts, no row in a message. Poolers (PgBouncer) refuse
# startup parameters and prepared statements, so none are used.

_CONNECTION = {
    "application_name": "noctuary",  # shown to the server's administrator in pg_stat_activity
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
_TIMED_OUT = ("57014", "55P03")  # query_canceled by the server's own limit, lock_not_available
_DENIED = "42501"


def connect(address: Address, connect_s: int = 10, **options: Any) -> psycopg.Connection[Any]:
    """Open a connection; options in the address take precedence over those given here."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    wanted = {"connect_timeout": connect_s, **_CONNECTION, **options}
    given = conninfo_to_dict(address.conninfo)
    own: dict[str, Any] = {name: value for name, value in wanted.items() if name not in given}
    try:
        return psycopg.connect(address.conninfo, prepare_threshold=None, **own)
    except psycopg.Error as error:
        raise SourceError(
            f"{address.display} cannot be reached: {address.cleaned(str(error))} Check the address "
            f"and that the server runs."
        ) from None


class Limits(NamedTuple):
    """Timeouts of a connection and of its statements."""

    connect_s: int = 10  # To connect, unless the address sets it; libpq waits at least 2
    statement_ms: int = 300_000  # For a statement's answer, and for each BATCH_ROWS of a COPY


NIGHTLY = Limits()
BATCH_ROWS = 100  # of a COPY, held in memory at once
_GRACE_S = 1.0  # added to the server's own timeout for locks

Values = Mapping[str, object] | None


class Pinned:
    """A read-only transaction for one thread; its errors quote no row and no address."""

    def __init__(self, address: Address, limits: Limits = NIGHTLY) -> None:
        self.display = address.display
        self._limits = limits
        self._db = connect(address, limits.connect_s)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def rows(self, statement: str, values: Values = None) -> list[tuple[Any, ...]]:
        """Run a statement and return all of its rows."""
        with self._guarded():
            return self._db.execute(cast("LiteralString", statement), values).fetchall()

    def one(self, statement: str, values: Values = None) -> Any:
        """Run a statement and return its only value."""
        return self.rows(statement, values)[0][0]

    def copy(
        self, query: str, types: list[str], values: Values = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query by COPY; the connection can run nothing else meanwhile."""
        with ExitStack() as opened:
            with self._guarded():
                # In a savepoint: a reader that stops cancels only the COPY.
                opened.enter_context(self._db.transaction())
                cursor = opened.enter_context(self._db.cursor())
                statement = cast("LiteralString", f"COPY ({query}) TO STDOUT")
                copy = opened.enter_context(cursor.copy(statement, values))
                copy.set_types(types)
            rows = copy.rows()
            while True:
                with self._guarded():
                    batch = list(islice(rows, BATCH_ROWS))
                if not batch:
                    return
                yield from batch

    def close(self) -> None:
        """End the transaction and close the connection; safe to call twice."""
        self._db.close()

    def _begin(self) -> None:
        from psycopg import IsolationLevel

        self._db.isolation_level = IsolationLevel.REPEATABLE_READ
        self._db.read_only = True
        encoding = self._db.info.parameter_status("server_encoding")
        settings = {
            # A statement timeout would end a COPY whose reader is slow.
            "statement_timeout": "0",
            "lock_timeout": f"{self._limits.statement_ms}ms",
            # Text of a SQL_ASCII database is read as bytes; the server converts any other encoding.
            "client_encoding": "SQL_ASCII" if encoding == "SQL_ASCII" else "UTF8",
            "TimeZone": "UTC",
            "DateStyle": "ISO, YMD",
            "idle_in_transaction_session_timeout": "30min",
        }
        # Must be the first statement, so that `now()` is the moment before the state was pinned.
        calls = ", ".join(f"set_config('{name}', %({name})s, true)" for name in settings)
        self.rows(f"SELECT {calls}", settings)

    @contextmanager
    def _guarded(self) -> Generator[None]:
        """Shut the connection down on timeout; re-raise psycopg errors as SourceError."""
        import psycopg

        is_over = threading.Event()

        def cut() -> None:
            is_over.set()
            # A duplicate of the descriptor: the connection closes its own.
            with suppress(Exception), socket.socket(fileno=os.dup(self._db.fileno())) as way:
                way.shutdown(socket.SHUT_RDWR)

        # libpq alone would wait for ever. The server's lock timeout fires first.
        timer = threading.Timer(self._limits.statement_ms / 1000 + _GRACE_S, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.Error as error:
            raise self._describe_failure(error, is_late=is_over.is_set()) from None
        finally:
            timer.cancel()

    def _describe_failure(self, error: psycopg.Error, *, is_late: bool) -> SourceError:
        """Turn a psycopg error into a SourceError that quotes no row."""
        code, limit_s = error.sqlstate or "", self._limits.statement_ms / 1000
        if is_late or code in _TIMED_OUT:
            what = (
                f"{self.display} took longer than {limit_s:g} s for one statement "
                f"({code or 'no answer'}). Look for locks and for load on the server"
            )
        elif not code or code.startswith(_LOST) or self._db.closed:
            why = code or type(error).__name__
            what = f"The connection to {self.display} was lost ({why})"
        elif code == _DENIED:
            what = (
                f"{self.display} does not let this user read what noctuary needs ({code}): grant "
                f"SELECT on the tables of claude-memory and USAGE on their schema"
            )
        else:
            what = (
                f"{self.display} refused a statement ({code}). Check that it is a claude-memory "
                f"database, and report this if it is"
            )
        return SourceError(f"{what}. Nothing was published; the next run starts again.")


# The schema of a claude-memory database: the migrations it has applied (research/peers.md 2.2).

MEMORIES = "memories"
NEWEST_VERSION = "006"
NOTE_UNREADABLE = "tables_not_readable"
# The user that a server with a single key assigns (claude-memory, migration 002)
DEFAULT_USER = "default"
# The other tables that are read, and the migration that creates each.
_TABLES = {
    **dict.fromkeys(("memory_shares", "tag_shares"), "004"),
    **dict.fromkeys(("concepts", "concept_edges", "memory_concepts"), "005"),
    "memory_links": "006",
}
# Of migration 001, which had no sensitivity marks yet.
REQUIRED_COLUMNS = tuple(n for n in sqlite.REQUIRED_COLUMNS if n != "is_sensitive")
_KNOWN_COLUMNS = {*REQUIRED_COLUMNS, "user_id", "deleted_at", *FLAG_FIELDS, *VAULT_FIELDS}


class Reader(NamedTuple):
    """The readable parts of a database for the connected role, and whose rows."""

    version: str  # The last migration applied, "001" and later
    columns: Mapping[str, str]  # Of `memories`: name to type, as printed by `format_type`
    tables: frozenset[str]  # The other tables that exist and are readable
    notes: tuple[str, ...]  # Oddities, by name (docs/formats.md)
    user: str | None  # Read only this user's rows and those shared with them; None reads all
    has_users: bool  # Whether rows have owners; else there is a single, unnamed user

    @property
    def scope_name(self) -> str:
        """Return the name of the rule that assigns rows to users: user:NAME, several or single."""
        if self.user is not None:
            return f"user:{self.user}"
        return "several" if self.has_users else "single"


def make_reader(pinned: Pinned, user: str) -> Reader:
    """Read the schema and privileges of a database; for user "" all rows are read."""
    columns = _read_columns(pinned)
    found = pinned.rows(
        "SELECT name, has_table_privilege(to_regclass(name), 'SELECT') "
        "FROM unnest(%(names)s::text[]) AS name WHERE to_regclass(name) IS NOT NULL",
        {"names": [*_TABLES, "alembic_version"]},
    )
    tables, version = {_text(name): may for name, may in found}, ""
    if tables.pop("alembic_version", False):  # where migrations are recorded
        version = _text(pinned.one("SELECT max(version_num)::text FROM alembic_version"))
    added = {"user_id": "002", "deleted_at": "003", **_TABLES}
    if not version.isdecimal():
        version = max(["001", *(n for name, n in added.items() if name in {*columns, *tables})])
    readable = frozenset(name for name, may in tables.items() if may)
    notes = {
        "newer_schema_version": version > NEWEST_VERSION,
        "no_sensitivity_marks": not any(name in columns for name in FLAG_FIELDS),
        NOTE_UNREADABLE: len(readable) < len(tables),
    }
    own = user or None
    reader = Reader(version, columns, readable, true_names(notes), own, has_users=bool(user))
    return reader._replace(has_users=bool(user) or _has_several_users(pinned, reader))


def _read_columns(pinned: Pinned) -> dict[str, str]:
    """Return the columns of `memories` with their types; raise if one is missing or unreadable."""
    # Paging by ascending id loses no row only if ids are unique and never NULL.
    found = pinned.rows(
        "SELECT attname::text, format_type(atttypid, atttypmod), "
        "has_column_privilege(attrelid, attnum, 'SELECT'), attnotnull AND EXISTS (SELECT 1 "
        "FROM pg_index WHERE indrelid = attrelid AND indisunique AND indisvalid "
        "AND indpred IS NULL AND indnkeyatts = 1 AND indkey[0] = attnum) FROM pg_attribute "
        f"WHERE attrelid = to_regclass('{MEMORIES}') AND attnum > 0 AND NOT attisdropped"
    )
    known = {_text(name): (_text(kind), *flags) for name, kind, *flags in found}
    columns = {name: kind for name, (kind, *_) in known.items() if name in _KNOWN_COLUMNS}
    unreadable = sorted(name for name in columns if not known[name][1])
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        found = f"no column {', '.join(missing)} in it" if columns else "no such table"
        raise SourceFormatError(
            f"{pinned.display} is not a claude-memory database: expected a table '{MEMORIES}' with "
            f"{', '.join(REQUIRED_COLUMNS)}; found {found}. Check the database's name and that "
            f"this user has USAGE on its schema."
        )
    if unreadable:
        # An unreadable mark could be set.
        raise SourceError(
            f"{pinned.display}: this user may not read {', '.join(unreadable)} of "
            f"'{MEMORIES}'. Grant SELECT on the whole table; marked rows stay there."
        )
    if columns["id"] not in ("smallint", "integer", "bigint") or not known["id"][2]:
        raise SourceFormatError(
            f"{pinned.display}: '{MEMORIES}' must be a table with a whole number 'id' as its "
            f"primary key, found {columns['id']}. Export the store as JSON lines; other ids are "
            f"read from there."
        )
    return columns


def _has_several_users(pinned: Pinned, reader: Reader) -> bool:
    """Return whether several people use the store: a row has a user's name, or one is shared."""
    if "user_id" not in reader.columns:
        return False
    # An unreadable table of shares may have rows.
    if NOTE_UNREADABLE in reader.notes:
        return True
    # min and max are cheap by the index on user_id; rows are scanned only if they differ.
    alone = f"SELECT min(user_id) = '{DEFAULT_USER}' AND max(user_id) = '{DEFAULT_USER}'"
    named = f"SELECT 1 FROM {MEMORIES} WHERE btrim(user_id) NOT IN ('', '{DEFAULT_USER}')"
    looks = [] if pinned.one(f"{alone} FROM {MEMORIES}") else [named]
    shared = sorted(reader.tables & {"memory_shares", "tag_shares"})
    looks += [f"SELECT 1 FROM {name}" for name in shared]
    found = " OR ".join(f"EXISTS ({look})" for look in looks)
    return bool(found and pinned.one(f"SELECT {found}"))


def _text(value: object) -> str:
    """Return a text; undecodable bytes are replaced."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


# The owner of a row, and who else may read it.


def user_sql(reader: Reader, table: str = "m") -> str:
    """Return the SQL expression for the owner of a row of `memories`; NULL if it has none."""
    if not reader.has_users or "user_id" not in reader.columns:
        return "NULL::text"
    # A row without a name belongs to the server's own user, never to everyone.
    return f"coalesce(nullif(btrim({table}.user_id), ''), '{DEFAULT_USER}')"


def visible_sql(reader: Reader, table: str = "m") -> str:
    """Return the SQL condition that the user `user` may read a row of `memories`.

    As on the server (claude-memory, api/permissions.py): their own row, or one shared with them by
    itself or by its tag.
    """
    if reader.user is None:
        return "true"
    if "user_id" not in reader.columns:
        return f"%(user)s = '{DEFAULT_USER}'"
    shared = "EXISTS (SELECT 1 FROM {} s WHERE s.shared_with = %(user)s AND {})"
    found = [f"{user_sql(reader, table)} = %(user)s"]
    found += [shared.format(*rule) for rule in _share_conditions(reader, table).items()]
    return f"({' OR '.join(found)})"


def shares_sql(reader: Reader) -> str:
    """Return the SQL query for memory id and user of each share; "" if nothing can be shared."""
    condition = "true" if reader.user is None else "s.shared_with = %(user)s"
    found = [
        f"SELECT m.id::text AS memory_id, s.shared_with FROM {share} s JOIN {MEMORIES} m ON {rule} "
        f"WHERE {condition}"
        for share, rule in _share_conditions(reader, "m").items()
    ]
    return " UNION ".join(found)


def _share_conditions(reader: Reader, table: str) -> dict[str, str]:
    """Return the SQL join condition of each table of shares, aliased `s`."""
    may_read = "s.permission IN ('read', 'write')"
    tags = f"unnest(string_to_array({table}.tags::text, ','))"
    rules = {
        "memory_shares": f"s.memory_id = {table}.id AND {may_read}",
        "tag_shares": (
            f"s.owner_id = {user_sql(reader, table)} AND {may_read} "
            f"AND EXISTS (SELECT 1 FROM {tags} t WHERE btrim(t) = s.tag)"
        ),
    }
    has_owners = "user_id" in reader.columns
    return {name: rule for name, rule in rules.items() if has_owners and name in reader.tables}


# Rows of `memories`. SQL is built from constants and known columns; values are parameters.

# A row with more text is not fetched; the store's own limit is 1,400 characters.
MAX_ROW_BYTES = 16 * 2**20
_TEXTS = ("content", "category", "tags", "expanded_keywords")
_MOMENTS = ("created_at", "updated_at", "deleted_at")


def mark_sql(columns: Collection[str], table: str = "m") -> str:
    """Return the SQL expression for `FLAGGED`, `VAULTED` or NULL, as strict as `find_mark`."""
    words = ", ".join(f"'{word}'" for word in sorted(FALSE_WORDS))
    judged = (
        (FLAG_FIELDS, f"lower(btrim({table}.{{}}::text)) NOT IN ({words})", FLAGGED),
        # As text, empty bytea is `\x`.
        (VAULT_FIELDS, rf"{table}.{{}}::text NOT IN ('', '\x')", VAULTED),
    )
    cases = [
        f"WHEN {rule.format(name)} THEN '{reason}'"
        for names, rule, reason in judged
        for name in names
        if name in columns
    ]
    return f"CASE {' '.join(cases)} END" if cases else "NULL::text"


def read_rows(
    pinned: Pinned, reader: Reader, condition: str = "true", **values: object
) -> Iterator[RawRow]:
    """Yield the rows that the reader may see, by ascending id.

    Fields are text, float, None, or undecodable bytes; times are ISO 8601. The text of a row that
    is marked or too large is not sent.
    """
    lengths = " + ".join(f"coalesce(octet_length(m.{name}::text), 0)" for name in _TEXTS)
    moments = [name for name in _MOMENTS if name in reader.columns]
    names = (*_TEXTS, "importance", *moments, "user_id")
    kinds = ["text[]" if reader.columns.get(n, "").endswith("[]") else "text" for n in names]
    shown = [
        f"CASE WHEN s.mark IS NULL AND s.size <= {MAX_ROW_BYTES} THEN "
        f"({user_sql(reader) if name == 'user_id' else f'm.{name}'})::{kind} END"
        for name, kind in zip(names, kinds, strict=True)
    ]
    query = (
        f"SELECT m.id, s.mark, s.size, {', '.join(shown)} FROM {MEMORIES} m CROSS JOIN LATERAL "
        f"(SELECT {mark_sql(reader.columns)} AS mark, {lengths} AS size) s "
        f"WHERE {visible_sql(reader)} AND {condition} ORDER BY m.id"
    )
    found = pinned.copy(query, ["int8", "text", "int8", *kinds], {"user": reader.user, **values})
    for key, mark, size, *said in found:
        if mark is not None:
            yield memory_row(key, _text(mark), {})
        elif size > MAX_ROW_BYTES:
            detail = f"row: {size} bytes of text, not fetched"
            yield RawRow(f"id {key}", key, {}, QuarantineReason.CONTENT_TOO_LARGE, detail)
        else:
            fields = {n: _value(n, value) for n, value in zip(names, said, strict=True)}
            yield memory_row(key, None, {**fields, "id": key})


def _value(name: str, value: Any) -> object:
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            value = value.decode("utf-8")
    if not isinstance(value, str):
        return value
    if name in _MOMENTS and value.endswith("+00"):
        return f"{value[:10]}T{value[11:]}:00"
    with suppress(ValueError):
        return float(value) if name == "importance" else value
    return value


_MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"


class PostgresSource(Source):
    """A claude-memory database, pinned to one transaction."""

    def __init__(
        self, name: DatabaseName, settings: SourceSettings, limits: Limits = NIGHTLY
    ) -> None:
        self._pinned = Pinned(read_address(name), limits)
        try:
            self._reader = make_reader(self._pinned, settings.user)
        except BaseException:
            self.close()
            raise

    def identity(self) -> SourceIdentity:
        """Return address, migration, newest row, and as `users` how rows are assigned to users."""
        reader = self._reader
        has_moments = reader.columns["updated_at"].startswith("timestamp")
        # Without `infinity`, which has no number.
        updated = "m.updated_at) FILTER (WHERE isfinite(m.updated_at)" if has_moments else "NULL"
        last_id, updated_us = self._pinned.rows(
            f"SELECT max(m.id), {_MICROS.format(f'(max({updated}))::timestamptz')} "
            f"FROM {MEMORIES} m WHERE {visible_sql(reader)}",
            {"user": reader.user},
        )[0]
        marker: dict[str, int | str] = {
            "rows": self.count(),
            "last_id": int(last_id or 0),
            "last_updated_us": int(updated_us or 0),
            "users": reader.scope_name,
        }
        display, version = self._pinned.display, reader.version
        return SourceIdentity(KIND, display, version, "int", marker, reader.notes)

    def count(self) -> int:
        """Return the number of visible rows, soft-deleted and withheld ones included."""
        sql = f"SELECT count(*) FROM {MEMORIES} m WHERE {visible_sql(self._reader)}"
        return int(self._pinned.one(sql, {"user": self._reader.user}))

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows by ascending id."""
        return read_rows(self._pinned, self._reader)

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the row with an id, by primary key."""
        return read_rows(self._pinned, self._reader, "m.id = %(key)s::bigint", key=key)

    def changed_since(self, since_us: int) -> Iterator[RawRow]:
        """Yield rows updated at or after since_us, soft-deleted too; all without a timestamp."""
        if not self._reader.columns["updated_at"].startswith("timestamp"):
            return self.rows()
        condition = "m.updated_at >= 'epoch'::timestamptz + %(since)s * interval '1 microsecond'"
        return read_rows(self._pinned, self._reader, condition, since=since_us)

    def close(self) -> None:
        """End the transaction and close the connection."""
        self._pinned.close()

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield the relations between visible rows; concepts are visible to every user."""
        tables, sql = self._queries()[noun]
        if sql and self._reader.tables.issuperset(tables):
            for row in self._pinned.rows(sql, {"user": self._reader.user}):
                yield noun(*map(_plain, row))

    def _queries(self) -> dict[type[Any], tuple[set[str], str]]:
        """Return the tables and the SQL query of each relation type."""
        reader, shares = self._reader, shares_sql(self._reader)
        own = "true" if reader.user is None else "l.user_id = %(user)s"

        def join(table: str, key: str) -> str:
            """Return the SQL join with a visible row of `memories` on an id."""
            visible = visible_sql(reader, table)
            return f"JOIN {MEMORIES} {table} ON {table}.id = {key} AND {visible}"

        links = (
            "SELECT l.src_id::text, l.dst_id::text, l.link_type, coalesce(CASE WHEN "
            f"isfinite(l.created_at) THEN {_MICROS.format('l.created_at')} END, {UNDATED_US}), "
            f"{user_sql(reader, 'l')} FROM memory_links l {join('a', 'l.src_id')} "
            f"{join('b', 'l.dst_id')} WHERE {own} ORDER BY l.id"
        )
        concepts = (
            'SELECT canonical_name, ARRAY(SELECT DISTINCT u COLLATE "C" FROM unnest(aliases) u '
            "WHERE u IS NOT NULL ORDER BY 1), coalesce(category, '') FROM concepts ORDER BY id"
        )
        mentions = (
            "SELECT x.memory_id::text, c.canonical_name, coalesce(x.relation, '') "
            "FROM memory_concepts x JOIN concepts c ON c.id = x.concept_id "
            f"{join('m', 'x.memory_id')} ORDER BY x.id"
        )
        edges = (
            "SELECT f.canonical_name, t.canonical_name, coalesce(e.relation, ''), "
            "greatest(0, coalesce(e.weight, 0))::bigint, x.ids::text[] FROM ("
            "SELECT e.id, array_agg(DISTINCT m.id ORDER BY m.id) AS ids FROM concept_edges e "
            f"CROSS JOIN unnest(e.evidence_memory_ids) AS u {join('m', 'u')} GROUP BY e.id"
            ") AS x JOIN concept_edges e ON e.id = x.id JOIN concepts f ON f.id = e.src_id "
            "JOIN concepts t ON t.id = e.dst_id ORDER BY e.id"
        )
        return {
            MemoryLink: ({"memory_links"}, links),
            KnownConcept: ({"concepts"}, concepts),
            KnownMention: ({"memory_concepts", "concepts"}, mentions),
            KnownEdge: ({"concept_edges", "concepts"}, edges),
            Share: (set(), shares and f"{shares} ORDER BY memory_id, shared_with"),
        }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, cast("list[Any]", value)))
    return _text(value) if isinstance(value, bytes) else value


# The change marker: newest id, newest time, write counters.

# Timeouts of a sensor.
_SENSOR = Limits(connect_s=5, statement_ms=10_000)

_NEWEST = "SELECT max(id), max(updated_at)::text FROM memories"
_COUNTED = """
SELECT schemaname, relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables
WHERE relname = ANY(%(tables)s) ORDER BY schemaname, relname
"""


def look_at_database(source: DatabaseName) -> list[list[Any]]:
    """Return the newest id and time, and PostgreSQL's write counters of the tables read.

    The counters reveal deleted rows, about a second late; a crash of the server resets them.
    """
    with closing(Pinned(read_address(source), _SENSOR)) as database:
        newest = database.rows(_NEWEST)
        counted = database.rows(_COUNTED, {"tables": [MEMORIES, *_TABLES]})
    return [list(row) for row in (*newest, *counted)]
