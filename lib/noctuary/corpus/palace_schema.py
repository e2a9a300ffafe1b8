"""Where the drawers of a MemPalace palace lie in its Chroma file.

What belongs here: recognising such a file, its tables, and which of its collections holds the
drawers. What does not: reading drawers (`palace_source`), what their metadata mean (`palace_rows`).
Shape: chromadb 1.5 (migrations up to sysdb 10, metadb 6, embeddings_queue 2), looked at in files
that the library itself made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from noctuary.errors import SourceFormatError

CHROMA_FILE = "chroma.sqlite3"

DRAWERS = "mempalace_drawers"
"""The collection that MemPalace makes unless its configuration names another."""

DERIVED = frozenset({"mempalace_closets", "mempalace_compressed"})
"""Collections that MemPalace computes from the drawers: shortened texts that point back at them."""

KNOWN_MIGRATIONS: Mapping[str, int] = {"sysdb": 10, "metadb": 6, "embeddings_queue": 2}
"""Last known migration of each part of the file; a later one is read, and reported."""

_REQUIRED = {
    "collections": ("id", "name"),
    "segments": ("id", "scope", "collection"),
    "embeddings": ("id", "segment_id", "embedding_id"),
    "embedding_metadata": ("id", "key", "string_value", "int_value", "float_value"),
}
_METADATA_SCOPE = "METADATA"


@dataclass(frozen=True, slots=True)
class PalaceShape:
    """How one palace is to be read.

    Attributes:
        collection_id: Of the collection of drawers.
        segment_id: Of its rows in `embeddings`.
        value_columns: Columns of a metadata value, in the order in which they are tried.
        has_arrays: Whether lists are kept, in a table of their own.
        has_queue: Whether writes pass through a queue that can be looked at.
        schema_version: The last migration of each part, "sysdb 10, metadb 6, ...".
        is_newer: Whether any of them is later than KNOWN_MIGRATIONS.
    """

    collection_id: str
    segment_id: str
    value_columns: tuple[str, ...]
    has_arrays: bool
    has_queue: bool
    schema_version: str
    is_newer: bool


def holds_palace(file: Path) -> bool:
    """Say whether a SQLite file is Chroma's; one that cannot be read is none."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as db:
            names = _tables(db)
    except sqlite3.Error:
        return file.name == CHROMA_FILE
    return {"collections", "embedding_metadata"} <= names and "memories" not in names


def read_shape(db: sqlite3.Connection, path: Path) -> PalaceShape:
    """Find the drawers.

    Args:
        db: An open connection.
        path: The file, for messages.

    Raises:
        SourceFormatError: Tables or columns are missing, no collection can hold the drawers,
            several can, or the collection was never finished.
    """
    tables = _tables(db)
    for table, columns in _REQUIRED.items():
        _check_columns(db, path, table, columns, tables)
    collection_id = _find_collection(db, path)
    segments = db.execute(
        "SELECT id FROM segments WHERE collection = ? AND scope = ?",
        (collection_id, _METADATA_SCOPE),
    ).fetchall()
    if len(segments) != 1:
        raise SourceFormatError(
            f"{path}: the collection of drawers has {len(segments)} segments of metadata, expected "
            f"one: the palace is half-built. Open it once with MemPalace, or restore a backup."
        )
    values = ("string_value", "int_value", "float_value", "bool_value")
    held = _columns(db, "embedding_metadata")
    migrations = _migrations(db) if "migrations" in tables else {}
    return PalaceShape(
        collection_id=collection_id,
        segment_id=str(segments[0][0]),
        value_columns=tuple(name for name in values if name in held),
        has_arrays="embedding_metadata_array" in tables,
        has_queue={"embeddings_queue", "max_seq_id"} <= tables,
        schema_version=", ".join(f"{part} {last}" for part, last in sorted(migrations.items())),
        is_newer=any(last > KNOWN_MIGRATIONS.get(part, last) for part, last in migrations.items()),
    )


def _tables(db: sqlite3.Connection) -> frozenset[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return frozenset(str(name) for (name,) in rows)


def _columns(db: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(str(row[1]) for row in db.execute(f"PRAGMA table_info({table})"))


def _check_columns(
    db: sqlite3.Connection,
    path: Path,
    table: str,
    columns: tuple[str, ...],
    tables: frozenset[str],
) -> None:
    held = _columns(db, table) if table in tables else frozenset[str]()
    missing = [name for name in columns if name not in held]
    if missing:
        what = f"no column {', '.join(missing)} in '{table}'" if held else f"no table '{table}'"
        raise SourceFormatError(
            f"{path} is not a palace that can be read: found {what}, expected the tables "
            f"{', '.join(_REQUIRED)} of chromadb 0.5 to 1.5. Open it once with a newer MemPalace, "
            f"or point noctuary at another palace."
        )


def _find_collection(db: sqlite3.Connection, path: Path) -> str:
    """Return the id of the collection of drawers: the one so named, or else the only candidate."""
    named = [
        (str(name), str(collection_id))
        for collection_id, name in db.execute("SELECT id, name FROM collections ORDER BY name, id")
    ]
    own = [item for item in named if item[0] == DRAWERS]
    found = own or [item for item in named if item[0] not in DERIVED]
    if not found:
        raise SourceFormatError(
            f"{path} holds no collection of drawers: expected {DRAWERS!r}, found "
            f"{', '.join(name for name, _ in named) or 'none'}. Mine something into the palace "
            f"first, or point noctuary at another one."
        )
    if len(found) > 1:
        # Picking one silently could index a copy, or something that is no palace at all.
        raise SourceFormatError(
            f"{path} holds several collections that may be the drawers "
            f"({', '.join(name for name, _ in found)}); expected one, named {DRAWERS!r}. Rename "
            f"the others or move them into a palace of their own."
        )
    return found[0][1]


def _migrations(db: sqlite3.Connection) -> dict[str, int]:
    rows = db.execute("SELECT dir, max(version) FROM migrations GROUP BY dir")
    return {str(part): int(last) for part, last in rows}
