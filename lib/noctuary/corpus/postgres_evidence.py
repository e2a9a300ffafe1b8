"""Links, concepts and shares of a claude-memory PostgreSQL database.

What belongs here: asking for them (migrations 004 to 006), within what the reader may see. What
does not: which of it leaves the store (`noctuary.corpus.evidence_tables`), what the graph makes of
it.

A database of an older migration, or one whose tables may not be read, says nothing. Nothing here
needs pgvector: vectors are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noctuary.corpus.evidence import (
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
)
from noctuary.postgres.connecting import Pinned
from noctuary.postgres.schema import MEMORIES
from noctuary.postgres.users import DEFAULT_USER, Reader, shares_sql, visible_sql
from noctuary.types import UNDATED_US


class PostgresEvidence:
    """What the database says about its memories; see `noctuary.corpus.evidence.HasEvidence`."""

    _pinned: Pinned
    _reader: Reader

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
