"""Reading a claude-memory PostgreSQL database beside its live server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from noctuary.core.settings import SourceSettings
from noctuary.core.store import DatabaseName
from noctuary.core.types import UNDATED_US
from noctuary.sources.postgres import (
    DEFAULT_USER,
    MEMORIES,
    NIGHTLY,
    Limits,
    Pinned,
    make_reader,
    read_address,
    read_pages,
    read_schema,
    shares_sql,
    visible_sql,
)
from noctuary.sources.source import (
    DEFAULT_BATCH_ROWS,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    RawRow,
    Share,
    Source,
    SourceIdentity,
)

# Reading a claude-memory PostgreSQL database beside its live server.
#
# Everything is read in one read-only transaction of one state, from the first look to `close`. The
# text of a row that is marked sensitive never leaves the server.

KIND = "claude-memory-postgres"

_MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"


class PostgresSource(Source):
    """A claude-memory database, pinned to one state."""

    def __init__(
        self, name: DatabaseName, settings: SourceSettings, limits: Limits = NIGHTLY
    ) -> None:
        """Connect, pin the state and look at its shape."""
        self._pinned = Pinned(read_address(name), limits)
        try:
            schema = read_schema(self._pinned)
            self._reader = make_reader(self._pinned, schema, settings.user)
        except BaseException:
            self.close()
            raise

    def identity(self) -> SourceIdentity:
        """Return address, migration and the marks of the state that is being read.

        The mark `users` says by which rule rows are given to users: `single` where the store knows
        one (its rows are nobody's in particular), `several`, or `user:NAME` where only that
        user's rows are read. Under another rule the same rows differ.
        """
        reader = self._reader
        has_moments = reader.schema.columns["updated_at"].startswith("timestamp")
        # Not of `infinity`: that is no number.
        updated = "m.updated_at) FILTER (WHERE isfinite(m.updated_at)" if has_moments else "NULL"
        last_id, updated_us = self._pinned.rows(
            f"SELECT max(m.id), {_MICROS.format(f'(max({updated}))::timestamptz')} "
            f"FROM {MEMORIES} m WHERE {visible_sql(reader)}",
            {"user": reader.user},
        )[0]
        return SourceIdentity(
            kind=KIND,
            location=self._pinned.display,
            schema_version=reader.schema.version,
            id_kind="int",
            marker={
                "rows": self.count(),
                "last_id": int(last_id or 0),
                "last_updated_us": int(updated_us or 0),
                "users": reader.scope_name,
            },
            notes=reader.schema.notes,
        )

    def count(self) -> int:
        """Return the number of rows, tombstones and withheld ones included."""
        sql = f"SELECT count(*) FROM {MEMORIES} m WHERE {visible_sql(self._reader)}"
        return int(self._pinned.one(sql, {"user": self._reader.user}))

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows by ascending id; a batch is cut short where its texts are large."""
        yield from read_pages(self._pinned, self._reader, size)

    def changed_since(
        self, since_us: int, size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield the rows with updated_at >= since_us by ascending id, tombstones included.

        A row whose updated_at is NULL is none of them; a column that holds no moments excludes no
        row. The index on updated_at finds them.
        """
        since = ""
        if self._reader.schema.columns["updated_at"].startswith("timestamp"):
            since = (
                " AND m.updated_at >= 'epoch'::timestamptz + %(since)s * interval '1 microsecond'"
            )
        visible = visible_sql(self._reader)
        sql = f"SELECT m.id FROM {MEMORIES} m WHERE {visible}{since} ORDER BY m.id"
        values = {"user": self._reader.user, "since": since_us}
        for page in self._pinned.stream(sql, values, size=size):
            keys = [int(key) for (key,) in page]
            yield from read_pages(self._pinned, self._reader, size, keys)

    def close(self) -> None:
        """End the transaction and the connection."""
        self._pinned.close()

    def links(self) -> Iterator[MemoryLink]:
        """Yield every link between two rows that the reader may see, of their own where one is.

        A link is a statement of the user who made it (migration 006).
        """
        if not self._has("memory_links"):
            return
        own = "true" if self._reader.user is None else "l.user_id = %(user)s"
        for from_id, to_id, kind, created_us, user in self._stream(
            "SELECT l.src_id, l.dst_id, l.link_type, CASE WHEN isfinite(l.created_at) THEN "
            "(extract(epoch FROM l.created_at) * 1000000)::bigint END, l.user_id "
            f"FROM memory_links l {self._join('a', 'l.src_id')} {self._join('b', 'l.dst_id')} "
            f"WHERE {own} ORDER BY l.id"
        ):
            yield MemoryLink(
                from_id=str(from_id),
                to_id=str(to_id),
                link_type=_text(kind),
                created_at_us=UNDATED_US if created_us is None else int(created_us),
                user=self._user(user),
            )

    def concepts(self) -> Iterator[KnownConcept]:
        """Yield every concept; the store keeps them for all its users together."""
        if not self._has("concepts"):
            return
        for name, aliases, category in self._stream(
            "SELECT canonical_name, aliases, category FROM concepts ORDER BY id"
        ):
            others = sorted({_text(alias) for alias in aliases or () if alias is not None})
            yield KnownConcept(_text(name), tuple(others), _text(category))

    def mentions(self) -> Iterator[KnownMention]:
        """Yield which row that the reader may see is about which concept."""
        if not self._has("memory_concepts", "concepts"):
            return
        for memory_id, name, relation in self._stream(
            "SELECT x.memory_id, c.canonical_name, x.relation FROM memory_concepts x "
            f"JOIN concepts c ON c.id = x.concept_id {self._join('m', 'x.memory_id')} ORDER BY x.id"
        ):
            yield KnownMention(str(memory_id), _text(name), _text(relation))

    def edges(self) -> Iterator[KnownEdge]:
        """Yield every relation between concepts, with those of its rows that may be seen."""
        if not self._has("concept_edges", "concepts"):
            return
        for source, target, relation, weight, evidence in self._stream(
            "SELECT f.canonical_name, t.canonical_name, e.relation, e.weight, x.ids FROM ("
            "SELECT e.id, array_agg(DISTINCT m.id ORDER BY m.id) AS ids FROM concept_edges e "
            f"CROSS JOIN unnest(e.evidence_memory_ids) AS u {self._join('m', 'u')} GROUP BY e.id"
            ") AS x JOIN concept_edges e ON e.id = x.id JOIN concepts f ON f.id = e.src_id "
            "JOIN concepts t ON t.id = e.dst_id ORDER BY e.id"
        ):
            yield KnownEdge(
                source=_text(source),
                target=_text(target),
                relation=_text(relation),
                weight=max(0, int(weight or 0)),
                evidence=tuple(map(str, evidence)),
            )

    def shares(self) -> Iterator[Share]:
        """Yield who else may read which row; of a reader's store, only what concerns them."""
        query = shares_sql(self._reader)
        if query is None:
            return
        for memory_id, shared_with in self._stream(f"{query} ORDER BY memory_id, shared_with"):
            yield Share(str(memory_id), _text(shared_with))

    def _has(self, *tables: str) -> bool:
        return self._reader.schema.tables.issuperset(tables)

    def _join(self, table: str, key: str) -> str:
        """Return a join on an id, with a row that is there and may be seen."""
        visible = visible_sql(self._reader, table)
        return f"JOIN {MEMORIES} {table} ON {table}.id = {key} AND {visible}"

    def _user(self, user: object) -> str | None:
        if not self._reader.has_users:
            return None
        return _text(user).strip() or DEFAULT_USER

    def _stream(self, sql: str) -> Iterator[tuple[Any, ...]]:
        for batch in self._pinned.stream(sql, {"user": self._reader.user}):
            yield from batch


def _text(value: object) -> str:
    """Return a text; bytes of a database without an encoding are read as far as they go."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


# What changes once there may be something new to read: newest id, newest time, counters.

_CONNECT_S = 5
_STATEMENT_MS = 10_000
"""What a sensor waits for a database: a look that takes longer is one that failed."""

_TABLES = ("memories", "memory_shares", "tag_shares", "memory_links", "concepts", "concept_edges",
           "memory_concepts")  # fmt: skip
_NEWEST = "SELECT max(id), max(updated_at)::text FROM memories"
_COUNTED = """
SELECT schemaname, relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables
WHERE relname = ANY(%(tables)s) ORDER BY schemaname, relname
"""


def look_at_database(source: DatabaseName) -> list[list[Any]]:
    """Return newest id, newest time, and what PostgreSQL counts of the tables that a night reads.

    Deleting a row moves neither id nor time: the counters tell it. They come about a second after
    the commit, count what was rolled back as well, and begin anew after a crash of the server.
    """
    database = Pinned(read_address(source), Limits(_CONNECT_S, _STATEMENT_MS))
    try:
        newest = database.rows(_NEWEST)
        counted = database.rows(_COUNTED, {"tables": list(_TABLES)})
    finally:
        database.close()
    return [list(row) for row in (*newest, *counted)]
