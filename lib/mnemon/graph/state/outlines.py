"""Extractions read back from the state, as far as supersession needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mnemon.graph.arrays import ROLES
from mnemon.graph.extraction import KINDS, Extraction, Found, Stated

if TYPE_CHECKING:
    import duckdb

_READ_ROWS = 50_000

_FOUND = f"""
SELECT position, {list(ROLES)!r}[role + 1] AS role, {list(KINDS)!r}[kind + 1] AS kind, name, start,
    stop, surface
FROM found JOIN place USING (mid)
WHERE role = {ROLES.index("about")} OR kind = {KINDS.index("tag")}
ORDER BY position, start, stop, role, kind, name, surface
"""
_STATED = """
SELECT position, stated.* EXCLUDE (mid) FROM stated JOIN place USING (mid)
ORDER BY position, start, stop, relation, subject, object
"""


def read_outlines(connection: duckdb.DuckDBPyConnection, memories: int) -> list[Extraction]:
    """Return the subjects, tags and statements of every memory, by position; needs `place`."""
    found: list[list[Found]] = [[] for _ in range(memories)]
    reader = connection.execute(_FOUND)
    while rows := reader.fetchmany(_READ_ROWS):
        for position, *values in rows:
            found[position].append(Found(*values))
    stated: list[list[Stated]] = [[] for _ in range(memories)]
    reader = connection.execute(_STATED)
    while rows := reader.fetchmany(_READ_ROWS):
        for position, *values in rows:
            stated[position].append(Stated(*values))
    return [Extraction(tuple(f), tuple(s)) for f, s in zip(found, stated, strict=True)]
