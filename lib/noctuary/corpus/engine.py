"""A DuckDB connection for set work over the corpus: deterministic, offline, spilling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "1GB"
"""What DuckDB may hold before it spills: sorts of some ten million turns stay in memory."""


def open_duckdb(spill_dir: Path) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database that spills into `spill_dir` and never fetches an extension.

    One thread: a parallel sort hands over the same rows in batches of varying size.
    """
    import duckdb

    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(spill_dir),
            "autoinstall_known_extensions": "false",
        }
    )
