"""The LanceDB directory: opening it quietly, listing its tables. Their content is elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def connect(lance_dir: Path) -> Any:
    """Return the LanceDB connection of a directory; lancedb is imported here."""
    # LanceDB reads its log level once, when imported; its Rust warnings do not belong on stderr.
    unset = "LANCEDB_LOG" not in os.environ
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        import lancedb
    finally:
        if unset:
            del os.environ["LANCEDB_LOG"]
    return lancedb.connect(str(lance_dir))


def list_tables(lance_dir: Path, prefix: str) -> list[str]:
    """Return the names of the tables on disk that start with a prefix, sorted."""
    return sorted(path.stem for path in lance_dir.glob(f"{prefix}*.lance"))
