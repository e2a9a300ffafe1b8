"""The file of the contributions: one DuckDB database, rebuilt whenever it is not ours.

Belongs here: its tables, its version, opening and compacting it. Does not belong here: what the
rows mean.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from noctuary.files import fsync_dir, fsync_file, remove_tree
from noctuary.graph.extraction import EXTRACTOR_VERSION, KINDS
from noctuary.hashing import hash_text

if TYPE_CHECKING:
    import duckdb

STATE_VERSION = f"1:{EXTRACTOR_VERSION}:{hash_text(*KINDS)[:8]}"
"""Of the tables and of what is stored in them; another one means that the file is rebuilt."""

MEMORY_MB = 2_048
"""What DuckDB may hold before it spills, where no setting says; more keeps the sorts of a million
memories in memory."""

_RESTING_MB = 256
"""What DuckDB may keep once the sums are done, while supersessions and files need the memory; less
reads blocks of the file again."""

_LOG = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE memory (mid BIGINT, memory_id VARCHAR, key VARCHAR);
CREATE TABLE found (mid BIGINT, role UTINYINT, kind UTINYINT, look TINYINT, name VARCHAR,
    start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE stated (mid BIGINT, subject VARCHAR, relation VARCHAR, object VARCHAR,
    start INTEGER, stop INTEGER, subject_surface VARCHAR, object_surface VARCHAR);
CREATE TABLE stated_end (mid BIGINT, name VARCHAR, start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE alias (mid BIGINT, alias VARCHAR, canonical VARCHAR, detail VARCHAR);
CREATE TABLE word (mid BIGINT, word UINTEGER);
CREATE TABLE dictionary (name VARCHAR, cased BOOLEAN);
CREATE TABLE matched (mid BIGINT, name VARCHAR, start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE declined (mid BIGINT, script VARCHAR, runs INTEGER);
CREATE TABLE meta (version VARCHAR, has_leftovers BOOLEAN);
"""

OWN_TABLES = ("memory", "found", "stated", "stated_end", "alias", "word")
"""Tables whose rows rest on one memory's own extraction."""

MATCH_TABLES = ("matched", "declined")
"""Tables whose rows rest on one memory's text and on the dictionary."""


def open_database(path: Path, memory_mb: int = MEMORY_MB) -> duckdb.DuckDBPyConnection:
    """Open the file; what is damaged, foreign or of another version is dropped and made anew."""
    import duckdb

    path.parent.mkdir(parents=True, exist_ok=True)
    # A killed process leaves these, and both hold texts.
    remove_tree(_spill(path))
    drop_database(_fresh(path))
    existed = path.exists()
    try:
        connection = _connect(path, memory_mb)
    except duckdb.Error as error:
        return _make_anew(path, memory_mb, f"cannot be read ({type(error).__name__})")
    reason = _mismatch(connection) if existed else None
    if reason is not None:
        connection.close()
        return _make_anew(path, memory_mb, reason)
    if not existed:
        _create(connection)
    return connection


def release_memory(connection: duckdb.DuckDBPyConnection, memory_mb: int = MEMORY_MB) -> None:
    """Give back what the database holds beyond what it needs at rest; its limit stays."""
    import duckdb

    # A lower limit evicts at once; what is set again afterwards is only a permission. What cannot
    # be evicted stays.
    with suppress(duckdb.OutOfMemoryException):
        connection.execute(f"SET memory_limit = '{min(_RESTING_MB, memory_mb)}MB'")
    connection.execute(f"SET memory_limit = '{memory_mb}MB'")


def drop_database(path: Path) -> None:
    """Remove the file and what DuckDB keeps beside it."""
    for name in (path.name, f"{path.name}.wal"):
        path.with_name(name).unlink(missing_ok=True)


def compact_database(path: Path, memory_mb: int = MEMORY_MB) -> None:
    """Write the file anew without the blocks of deleted rows, which still hold their texts."""
    import duckdb

    fresh = _fresh(path)
    with duckdb.connect(config=_config(path, memory_mb)) as connection:
        connection.execute(f"ATTACH '{_quoted(path)}' AS old (READ_ONLY)")
        connection.execute(f"ATTACH '{_quoted(fresh)}' AS new")
        connection.execute("COPY FROM DATABASE old TO new")
        connection.execute("UPDATE new.meta SET has_leftovers = false")
        connection.execute("CHECKPOINT new")
    fsync_file(fresh)
    path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
    fresh.replace(path)
    fsync_dir(path.parent)


def _make_anew(path: Path, memory_mb: int, reason: str) -> duckdb.DuckDBPyConnection:
    _LOG.warning("the graph's state %s %s: it is rebuilt from the memories", path, reason)
    drop_database(path)
    connection = _connect(path, memory_mb)
    _create(connection)
    return connection


def _connect(path: Path, memory_mb: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(str(path), config=_config(path, memory_mb))


def _config(path: Path, memory_mb: int) -> dict[str, str | bool | int | float | list[str]]:
    # One thread: a parallel sort hands over the same rows in batches of varying size.
    return {
        "threads": 1,
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": str(_spill(path)),
        "autoinstall_known_extensions": "false",
    }


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    connection.begin()
    connection.execute(_TABLES)
    connection.execute("INSERT INTO meta VALUES (?, false)", [STATE_VERSION])
    connection.commit()


def _mismatch(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return what is wrong with an opened file, or None; reads one row of every table."""
    import duckdb

    try:
        rows = connection.execute("SELECT version FROM meta").fetchall()
        if rows != [(STATE_VERSION,)]:
            return f"is of version {rows!r} and not {STATE_VERSION}"
        for table in (*OWN_TABLES, *MATCH_TABLES, "dictionary"):
            connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
    except duckdb.Error as error:
        return f"is no state of this graph ({type(error).__name__})"
    return None


def _spill(path: Path) -> Path:
    return path.with_name(f"{path.name}.spill")


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.fresh")


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
