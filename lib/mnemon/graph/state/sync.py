"""Bring the contributions up to date with the corpus: only what changed is written.

Belongs here: the difference between two nights and its order of work, in one transaction. Does not
belong here: extraction, adding up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mnemon.graph.arrays import ROLES
from mnemon.graph.dictionary import Dictionary, Tokens
from mnemon.graph.extraction import Extraction
from mnemon.graph.state.rematch import find_concerned, load_dictionary, update_dictionary
from mnemon.graph.state.rows import (
    ANY_CASE,
    NEEDS_CASE,
    OwnRows,
    TextRows,
)
from mnemon.graph.state.schema import MATCH_TABLES, OWN_TABLES
from mnemon.graph.tables import ArrowTable
from mnemon.types import MemoryRecord

if TYPE_CHECKING:
    import duckdb

BATCH_MEMORIES = 20_000
"""Memories whose findings are held as Python objects at once: some hundred MB at most."""

_ABOUT, _SPEAKER = ROLES.index("about"), ROLES.index("speaker")

Load = Callable[[Sequence[int]], Sequence[Extraction]]
"""Gives the extractions of the memories at these positions, in that order."""


_Item = TypeVar("_Item")


class SyncReport(NamedTuple):
    """What a sync did.

    Attributes:
        added: Memories that were not there before.
        edited: Memories whose findings may differ from before.
        deleted: Memories that are no longer there.
        rematched: Other memories whose text was searched again, because a name changed.
        changed_names: Dictionary names that appeared, vanished or changed their case rule.
    """

    added: int
    edited: int
    deleted: int
    rematched: int
    changed_names: int

    @property
    def touched(self) -> int:
        """Memories of which any row was written or removed."""
        return self.added + self.edited + self.deleted + self.rematched


class _Difference(NamedTuple):
    added: int
    edited: int
    deleted: int
    fresh: list[tuple[int, int]]
    """Number and position of every memory to be read."""


def sync(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    load: Load,
) -> SyncReport:
    """Make the contributions equal to the corpus; all or nothing.

    Args:
        connection: An opened state.
        records: The memories, by position.
        keys: Their extraction keys: equal keys promise equal content and equal extraction.
        load: Called for added and edited memories only.
    """
    with _transaction(connection):
        difference = _compare(connection, records, keys)
        if not difference.fresh and not difference.deleted:
            return SyncReport(0, 0, 0, 0, 0)
        _remove_gone(connection)
        _add_findings(connection, records, keys, difference.fresh, load)
        changed = update_dictionary(connection)
        concerned = find_concerned(connection, changed)
        _match(connection, records, difference.fresh, concerned)
    return SyncReport(
        difference.added, difference.edited, difference.deleted, len(concerned), len(changed)
    )


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Generator[None]:
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _compare(
    connection: duckdb.DuckDBPyConnection, records: Sequence[MemoryRecord], keys: Sequence[str]
) -> _Difference:
    """Fill `gone` and `touched_name`, and return what is to be read."""
    import pyarrow as pa

    current = pa.table(
        {
            "position": pa.array(range(len(records)), pa.int64()),
            "memory_id": pa.array([r.memory_id for r in records], pa.string()),
            "key": pa.array(keys, pa.string()),
        }
    )
    connection.register("current_rows", current)
    connection.execute("CREATE OR REPLACE TEMP TABLE current AS SELECT * FROM current_rows")
    connection.unregister("current_rows")
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE gone AS
        SELECT mid, memory_id FROM memory ANTI JOIN current USING (memory_id, key)"""
    )
    fresh = connection.execute(
        """SELECT position FROM current ANTI JOIN memory USING (memory_id, key)
        ORDER BY position"""
    ).fetchall()
    edited = _value(connection, "SELECT count(*) FROM gone SEMI JOIN current USING (memory_id)")
    gone = _value(connection, "SELECT count(*) FROM gone")
    first = _value(connection, "SELECT coalesce(max(mid) + 1, 0) FROM memory")
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE touched_name AS
        SELECT DISTINCT name FROM found SEMI JOIN gone USING (mid)
        WHERE look IN ({ANY_CASE}, {NEEDS_CASE})"""
    )
    numbered = [(first + i, position) for i, (position,) in enumerate(fresh)]
    return _Difference(len(fresh) - edited, edited, gone - edited, numbered)


def _remove_gone(connection: duckdb.DuckDBPyConnection) -> None:
    removed = 0
    for table in (*OWN_TABLES, *MATCH_TABLES):
        counted = connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM gone)")
        removed += counted.fetchall()[0][0]
    if removed:
        # The blocks of deleted rows keep their texts until the file is written anew.
        connection.execute("UPDATE meta SET has_leftovers = true")


def _add_findings(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    fresh: Sequence[tuple[int, int]],
    load: Load,
) -> None:
    for batch in _batches(fresh):
        rows = OwnRows()
        extractions = load([position for _, position in batch])
        for (mid, position), found in zip(batch, extractions, strict=True):
            record = records[position]
            rows.add(mid, record.memory_id, keys[position], record.content, found)
        _insert(connection, rows.tables())
    if fresh:
        connection.execute(
            f"""INSERT INTO touched_name SELECT DISTINCT name FROM found
            WHERE mid >= {fresh[0][0]} AND look IN ({ANY_CASE}, {NEEDS_CASE})
            AND name NOT IN (SELECT name FROM touched_name)"""
        )


def _match(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    fresh: Sequence[tuple[int, int]],
    concerned: Sequence[int],
) -> None:
    """Search the texts of fresh memories and, again, of those that a changed name concerns."""
    dictionary = load_dictionary(connection)
    for batch in _batches(fresh):
        _write_text_rows(connection, records, batch, dictionary, with_words=True)
    for mids in _batches(concerned):
        _name_mids(connection, mids)
        for table in MATCH_TABLES:
            connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM chosen)")
        placed = connection.execute(
            """SELECT mid, position FROM chosen JOIN memory USING (mid)
            JOIN current USING (memory_id) ORDER BY mid"""
        ).fetchall()
        _write_text_rows(connection, records, placed, dictionary, with_words=False)


def _write_text_rows(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    batch: Sequence[tuple[int, int]],
    dictionary: Dictionary,
    *,
    with_words: bool,
) -> None:
    _name_mids(connection, [mid for mid, _ in batch])
    own = _own_names(connection)
    rows = TextRows()
    for mid, position in batch:
        content = records[position].content
        tokens = Tokens(content)
        rows.add_matches(mid, content, tokens, dictionary, own.get(mid, frozenset()))
        if with_words:
            rows.add_words(mid, tokens)
    _insert(connection, rows.tables())


def _own_names(connection: duckdb.DuckDBPyConnection) -> dict[int, frozenset[str]]:
    """Return what the chosen memories are about, and who speaks in them."""
    table = connection.sql(
        f"""SELECT mid, name FROM found SEMI JOIN chosen USING (mid)
        WHERE role IN ({_ABOUT}, {_SPEAKER})"""
    ).to_arrow_table()
    mids, names = (column.to_numpy(zero_copy_only=False).tolist() for column in table.columns)
    own: defaultdict[int, set[str]] = defaultdict(set)
    for mid, name in zip(mids, names, strict=True):
        own[mid].add(name)
    return {mid: frozenset(found) for mid, found in own.items()}


def _name_mids(connection: duckdb.DuckDBPyConnection, mids: Sequence[int]) -> None:
    import pyarrow as pa

    connection.register("mids", pa.table({"mid": pa.array(mids, pa.int64())}))
    connection.execute("CREATE OR REPLACE TEMP TABLE chosen AS SELECT mid FROM mids")
    connection.unregister("mids")


def _insert(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, ArrowTable]) -> None:
    for table, rows in tables.items():
        if rows.num_rows:
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
            connection.unregister("incoming")


def _value(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    return int(connection.execute(sql).fetchall()[0][0])


def _batches(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), BATCH_MEMORIES):
        yield items[start : start + BATCH_MEMORIES]
