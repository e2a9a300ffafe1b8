"""A closed DuckDB database in memory: the tables that a query names, filled, and then no way out.

What belongs here: making it, filling it, refusing what is no query, running one. What does not:
where rows come from (`snapshot_rows`, `store_rows`), printing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noctuary.errors import NoctuaryError
from noctuary.sql import snapshot_rows, store_rows
from noctuary.sql.schema import FLAG, MOMENT, REAL, TABLES, TEXT, TEXTS, VECTOR, WHOLE, Table
from noctuary.sql.view import Rows, SnapshotView

if TYPE_CHECKING:
    import duckdb

FETCH_ROWS = 2_000
"""Rows of an answer that are Python objects at once."""

MEMORY_LIMIT = "4GB"
"""What a query may use, tables included; nothing is ever spilled to disk, where texts would lie."""

LOADERS: Mapping[str, Callable[[SnapshotView], Rows]] = {
    "memories": snapshot_rows.memories,
    "concepts": snapshot_rows.concepts,
    "mentions": snapshot_rows.mentions,
    "edges": snapshot_rows.edges,
    "concept_edges": snapshot_rows.concept_edges,
    "supersessions": snapshot_rows.supersessions,
    "clusters": snapshot_rows.clusters,
    "summaries": snapshot_rows.summaries,
    "summary_sources": snapshot_rows.summary_sources,
    "vectors": snapshot_rows.vectors,
    "access": store_rows.access,
    "usage": store_rows.usage,
    "archived": store_rows.archived,
    "evaluation": store_rows.evaluation,
    "snapshot": store_rows.snapshot,
}

_CONFIG: Mapping[str, str] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Else a name that is no table would be looked for among the variables of this program.
    "python_enable_replacements": "false",
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",
}
_INTERRUPTED = "Query interrupted"  # in a RuntimeError: how DuckDB hands Ctrl-C on
_ADVICE = "Please try installing"
_QUERIES = frozenset({"SELECT", "EXPLAIN"})
_BY_TEXT = re.compile(r"\bquery(_table)?\s*\(", re.IGNORECASE)
"""Functions of DuckDB that read tables named by a text: the parser does not see which."""


class QueryError(NoctuaryError, ValueError):
    """A query that cannot be run: what is wrong with it, in DuckDB's words or ours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query came to.

    Attributes:
        columns: Names.
        types: DuckDB's, aligned.
        batches: The rows, at most `FETCH_ROWS` at a time; raises QueryError like `run_query`.
    """

    columns: Sequence[str]
    types: Sequence[str]
    batches: Iterator[Sequence[tuple[Any, ...]]]


def run_query(view: SnapshotView, query: str) -> Answer:
    """Run one query on the tables of a view.

    Only the tables that it names are filled. The database can reach neither files nor the network
    nor variables, and the query cannot change that.

    Raises:
        QueryError: It is none, or more than one, or DuckDB refuses it.
        ModuleNotFoundError: DuckDB is not installed; the command line says what to install.
    """
    import duckdb

    db = duckdb.connect(":memory:", config=dict(_CONFIG))
    try:
        _require_one_query(db, query)
        named = _named_tables(db, query)
        for table in TABLES:
            _make_table(db, table)
            if table.name in named:
                _fill(db, table, LOADERS[table.name](view))
        # Else DuckDB draws one into the answer of a long query.
        db.execute("SET enable_progress_bar = false")
        # Last: registering what was read is an access from outside as well.
        db.execute("SET enable_external_access = false")
        db.execute("SET lock_configuration = true")
        found = db.execute(query)
        described = found.description or []
        columns = [str(column[0]) for column in described]
        types = [str(column[1]) for column in described]
    except (duckdb.Error, RuntimeError) as error:
        db.close()
        raise _refused(error) from None
    except BaseException:
        db.close()
        raise
    return Answer(columns, types, _fetch(db))


def _require_one_query(db: duckdb.DuckDBPyConnection, query: str) -> None:
    statements = db.extract_statements(query)
    if len(statements) != 1:
        raise QueryError(f"expected one query, found {len(statements)}")
    kind = statements[0].type.name
    # PIVOT and the like become several statements; they begin with a type of their own.
    if kind not in _QUERIES:
        raise QueryError(
            f"{kind} is no query: the tables are read-only; write SELECT, WITH, FROM, DESCRIBE, "
            "SUMMARIZE or EXPLAIN"
        )


def _named_tables(db: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """Return the tables that a query may read; all of them where that cannot be told."""
    import duckdb

    known = {table.name for table in TABLES}
    if _BY_TEXT.search(query):
        return known
    try:
        return {name.lower() for name in db.get_table_names(query)} & known
    except duckdb.Error:
        return known


def _make_table(db: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
    db.execute(f'CREATE TABLE "{table.name}" ({columns})')


def _fill(db: duckdb.DuckDBPyConnection, table: Table, rows: Rows) -> None:
    import pyarrow as pa

    types = _arrow_types()
    fields = [pa.field(column.name, types[column.type]) for column in table.columns]
    for batch in rows:
        if not batch:
            continue
        columns = [
            pa.array(list(values), field.type)
            for values, field in zip(zip(*batch, strict=True), fields, strict=True)
        ]
        db.register("batch", pa.Table.from_arrays(columns, schema=pa.schema(fields)))
        db.execute(f'INSERT INTO "{table.name}" SELECT * FROM batch')
        db.unregister("batch")


def _arrow_types() -> Mapping[str, Any]:
    import pyarrow as pa

    return {
        TEXT: pa.string(),
        TEXTS: pa.list_(pa.string()),
        WHOLE: pa.int64(),
        REAL: pa.float64(),
        FLAG: pa.bool_(),
        MOMENT: pa.timestamp("us"),
        VECTOR: pa.list_(pa.float32()),
    }


def _fetch(db: duckdb.DuckDBPyConnection) -> Iterator[Sequence[tuple[Any, ...]]]:
    import duckdb

    try:
        while batch := db.fetchmany(FETCH_ROWS):
            yield batch
    except (duckdb.Error, RuntimeError) as error:
        raise _refused(error) from None
    finally:
        db.close()


def _refused(error: Exception) -> BaseException:
    """Return what to raise: DuckDB's message without its blank lines, or that Ctrl-C was pressed.

    Its long advice about extensions is left out: they cannot be installed here.
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    if lines == [_INTERRUPTED]:
        return KeyboardInterrupt()
    end = next((i for i, line in enumerate(lines) if line.startswith(_ADVICE)), len(lines))
    return QueryError("\n".join(lines[:end]))
