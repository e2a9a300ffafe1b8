"""Extractions read back from the state, as far as supersession needs them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from noctuary.graph.arrays import ROLES
from noctuary.graph.extraction import KINDS, Extraction, Found, Stated

if TYPE_CHECKING:
    import duckdb

_READ_ROWS = 50_000
"""Rows held as objects at once."""

_ABOUT, _TAG, _KEY = ROLES.index("about"), KINDS.index("tag"), KINDS.index("key")
_TELLING = f"""
SELECT mid FROM stated UNION
SELECT mid FROM found WHERE role = {_ABOUT} AND kind = {_KEY}
"""
_FOUND = f"""
SELECT position, {list(ROLES)!r}[role + 1] AS role, {list(KINDS)!r}[kind + 1] AS kind, name, start,
    stop, surface
FROM found JOIN place USING (mid)
WHERE (role = {_ABOUT} OR kind = {_TAG}) AND (NOT $stated_only OR mid IN ({_TELLING}))
ORDER BY position, start, stop, role, kind, name, surface
"""
_STATED = """
SELECT position, stated.* EXCLUDE (mid) FROM stated JOIN place USING (mid)
ORDER BY position, start, stop, relation, subject, object
"""


def iter_outlines(
    connection: duckdb.DuckDBPyConnection, *, stated_only: bool = False
) -> Iterator[tuple[int, Extraction]]:
    """Yield position, subjects, tags and statements of memories that hold any, by position.

    Both queries are done before the first is yielded, so that others may follow meanwhile.

    Args:
        connection: A state with `place`.
        stated_only: Leave out memories that neither state anything nor are a `key: value`.
    """
    limits = {"stated_only": stated_only}
    found = _by_position(connection.sql(_FOUND, params=limits).to_arrow_table())
    stated = _by_position(connection.sql(_STATED).to_arrow_table())
    nothing: tuple[int, list[Any]] = (-1, [])
    mine, said = next(found, None), next(stated, None)
    while mine is not None or said is not None:
        at = min(item[0] for item in (mine, said) if item is not None)
        here = mine if mine is not None and mine[0] == at else nothing
        told = said if said is not None and said[0] == at else nothing
        yield at, Extraction(tuple(Found(*v) for v in here[1]), tuple(Stated(*v) for v in told[1]))
        mine = next(found, None) if here is mine else mine
        said = next(stated, None) if told is said else said


def _by_position(table: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield the other columns' rows, grouped by the first column, which is sorted."""
    rows = (
        row
        for batch in table.to_batches(max_chunksize=_READ_ROWS)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for position, group in groupby(rows, key=itemgetter(0)):
        yield position, [row[1:] for row in group]
