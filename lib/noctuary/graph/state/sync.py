"""Bring the contributions up to date with the corpus: only what changed is written.

Belongs here: the difference between two nights and its order of work, in one transaction. Does not
belong here: extraction, adding up.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.corpus.record_file import column_batches, take_columns
from noctuary.graph.arrays import ROLES
from noctuary.graph.extraction import Extraction
from noctuary.graph.state.rematch import find_concerned, load_dictionary, update_dictionary
from noctuary.graph.state.rows import ANY_CASE, NEEDS_CASE, OwnRows
from noctuary.graph.state.schema import MATCH_TABLES, OWN_TABLES
from noctuary.graph.state.text_search import TextSearch, search_here, unpack_tables
from noctuary.graph.tables import ArrowTable
from noctuary.shards.task import RecordBatch
from noctuary.types import MemoryRecord

if TYPE_CHECKING:
    import duckdb

_ABOUT, _SPEAKER = ROLES.index("about"), ROLES.index("speaker")

Mids = NDArray[np.int64]
"""Numbers of memories in the state, shape (n,)."""

Load = Callable[[Sequence[int]], Iterable[Extraction]]
"""Gives the extractions of the memories at these ascending positions, in that order; read as slowly
as they are written."""

# What the chosen memories are about, and who speaks in them. The range lets blocks be skipped.
_OWN_NAMES = f"""
WITH own AS (
    SELECT mid, list_sort(list(DISTINCT name)) AS names FROM found SEMI JOIN chosen USING (mid)
    WHERE role IN ({_ABOUT}, {_SPEAKER}) AND mid BETWEEN ? AND ? GROUP BY mid)
SELECT coalesce(names, []::VARCHAR[]) AS names FROM chosen LEFT JOIN own USING (mid) ORDER BY place
"""


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
    fresh: NDArray[np.int64]
    """Positions of the memories to be read, ascending."""
    first_mid: int
    """Number of the first of them; the others follow."""


def sync(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    load: Load,
    search: TextSearch = search_here,
) -> SyncReport:
    """Make the contributions equal to the corpus; all or nothing.

    Args:
        connection: An opened state.
        records: The memories, by position; read in batches, so that they may lie in a file.
        keys: Their extraction keys: equal keys promise equal content and equal extraction.
        load: Called once, for added and edited memories only; not where there are none.
        search: Searches texts for names.

    Raises:
        ValueError: Keys and records do not line up, or positions have gaps.
    """
    with _transaction(connection):
        difference = _compare(connection, records, keys)
        if not len(difference.fresh) and not difference.deleted:
            return SyncReport(0, 0, 0, 0, 0)
        _remove_gone(connection)
        _add_findings(connection, records, keys, difference, load)
        changed = update_dictionary(connection)
        concerned = find_concerned(connection, changed)
        _match(connection, records, difference, concerned, search)
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
    _write_current(connection, records, keys)
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE gone AS
        SELECT mid, memory_id FROM memory ANTI JOIN current USING (memory_id, key)"""
    )
    fresh = _numbers(
        connection,
        """SELECT position FROM current ANTI JOIN memory USING (memory_id, key)
        ORDER BY position""",
    )
    edited = _value(connection, "SELECT count(*) FROM gone SEMI JOIN current USING (memory_id)")
    gone = _value(connection, "SELECT count(*) FROM gone")
    first = _value(connection, "SELECT coalesce(max(mid) + 1, 0) FROM memory")
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE touched_name AS
        SELECT DISTINCT name FROM found SEMI JOIN gone USING (mid)
        WHERE look IN ({ANY_CASE}, {NEEDS_CASE})"""
    )
    return _Difference(len(fresh) - edited, edited, gone - edited, fresh, first)


def _write_current(
    connection: duckdb.DuckDBPyConnection, records: Sequence[MemoryRecord], keys: Sequence[str]
) -> None:
    """Fill `current`: position, id and key of tonight's memories."""
    import pyarrow as pa

    if len(records) != len(keys):
        raise ValueError(
            f"found {len(keys)} extraction keys for {len(records)} memories, expected one each"
        )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE current (position BIGINT, memory_id VARCHAR, key VARCHAR)"
    )
    done = 0
    for batch in column_batches(records, ("position", "memory_id")):
        _check_positions(batch.column("position").to_numpy(), done)
        some = pa.array(keys[done : done + batch.num_rows], pa.string())
        _insert(connection, {"current": pa.table(batch.append_column("key", some))})
        done += batch.num_rows


def _check_positions(positions: NDArray[np.int64], first: int) -> None:
    wrong = np.flatnonzero(positions != np.arange(first, first + len(positions)))
    if len(wrong):
        raise ValueError(
            f"found position {positions[wrong[0]]} at index {first + wrong[0]}, expected the "
            "memories ordered by position without gaps"
        )


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
    difference: _Difference,
    load: Load,
) -> None:
    if not len(difference.fresh):
        return
    extractions = iter(load(difference.fresh.tolist()))
    mids = count(difference.first_mid)
    for batch in take_columns(records, difference.fresh, ("position", "memory_id", "content")):
        rows = OwnRows()
        columns = (batch.column(name).to_pylist() for name in ("position", "memory_id", "content"))
        for at, memory_id, content in zip(*columns, strict=True):
            position: int = at
            rows.add(next(mids), memory_id, keys[position], content, next(extractions))
        _insert(connection, rows.tables())
    connection.execute(
        f"""INSERT INTO touched_name SELECT DISTINCT name FROM found
        WHERE mid >= {difference.first_mid} AND look IN ({ANY_CASE}, {NEEDS_CASE})
        AND name NOT IN (SELECT name FROM touched_name)"""
    )


def _match(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    difference: _Difference,
    concerned: Sequence[int],
    search: TextSearch,
) -> None:
    """Search the texts of fresh memories and, again, of those that a changed name concerns."""
    names = load_dictionary(connection)
    fresh = difference.first_mid + np.arange(len(difference.fresh), dtype=np.int64)
    texts = _texts(connection, records, fresh, difference.fresh)
    for found in search(names, texts, len(fresh), words=True):
        _insert(connection, unpack_tables(found))
    _name_mids(connection, concerned)
    for table in MATCH_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM chosen)")
    placed = connection.execute(
        """SELECT mid, position FROM chosen JOIN memory USING (mid)
        JOIN current USING (memory_id) ORDER BY position"""
    ).fetchnumpy()
    texts = _texts(connection, records, *map(_as_array, (placed["mid"], placed["position"])))
    for found in search(names, texts, len(concerned), words=False):
        _insert(connection, unpack_tables(found))


def _texts(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    mids: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> Iterator[RecordBatch]:
    """Yield `mid`, `content` and `own` of memories, what `TextSearch` reads.

    Args:
        connection: The state.
        records: The memories.
        mids: Their numbers, shape (n,).
        positions: Their positions, ascending, shape (n,).
    """
    import pyarrow as pa

    done = 0
    for batch in take_columns(records, positions, ("content",)):
        some = mids[done : done + batch.num_rows]
        _name_mids(connection, some)
        own = connection.sql(_OWN_NAMES, params=[int(some.min()), int(some.max())])
        names = own.to_arrow_table().column("names").combine_chunks()
        yield pa.record_batch(
            {"mid": pa.array(some), "content": batch.column("content"), "own": names}
        )
        done += batch.num_rows


def _name_mids(connection: duckdb.DuckDBPyConnection, mids: Sequence[int] | Mids) -> None:
    """Fill `chosen`: the numbers and where they stand among the given ones."""
    import pyarrow as pa

    columns = {"mid": pa.array(mids, pa.int64()), "place": np.arange(len(mids))}
    connection.register("mids", pa.table(columns))
    connection.execute("CREATE OR REPLACE TEMP TABLE chosen AS SELECT mid, place FROM mids")
    connection.unregister("mids")


def _insert(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, ArrowTable]) -> None:
    for table, rows in tables.items():
        if rows.num_rows:
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
            connection.unregister("incoming")


def _value(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    return int(connection.execute(sql).fetchall()[0][0])


def _numbers(connection: duckdb.DuckDBPyConnection, sql: str) -> NDArray[np.int64]:
    (column,) = connection.execute(sql).fetchnumpy().values()
    return _as_array(column)


def _as_array(column: Any) -> NDArray[np.int64]:
    return np.asarray(column, dtype=np.int64)
