"""The shape of a claude-memory database: which migrations it has seen (research/peers.md 2.2).

What belongs here: what is there and may be read. What does not: statements about rows
(`noctuary.postgres.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping

from noctuary.errors import SourceError, SourceFormatError
from noctuary.postgres.connecting import Pinned
from noctuary.text.sensitivity_marks import FLAG_FIELDS, VAULT_FIELDS
from noctuary.values import dataclass

MEMORIES = "memories"
REQUIRED_COLUMNS = (
    "id",
    "content",
    "category",
    "tags",
    "expanded_keywords",
    "importance",
    "created_at",
    "updated_at",
)
"""Columns of migration 001."""

OPTIONAL_COLUMNS = ("user_id", "is_sensitive", "vault_path", "encrypted_content", "deleted_at")
"""Columns of migrations 002 and 003."""

NEWEST_VERSION = "006"

NOTE_NEWER = "newer_schema_version"
NOTE_UNMARKED = "no_sensitivity_marks"
NOTE_UNREADABLE = "tables_not_readable"

_TABLES = {
    "memory_shares": "004",
    "tag_shares": "004",
    "concepts": "005",
    "concept_edges": "005",
    "memory_concepts": "005",
    "memory_links": "006",
}
_INTEGERS = ("smallint", "integer", "bigint")


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """What of a database may be read.

    Attributes:
        version: The migration that it has seen last, "001" and later.
        columns: Of `memories`: name to type, as `format_type` has it.
        tables: Of the others that noctuary reads: those that are there and may be read.
        notes: Oddities, by name (docs/formats.md).
    """

    version: str
    columns: Mapping[str, str]
    tables: frozenset[str]
    notes: tuple[str, ...] = ()


def read_schema(pinned: Pinned) -> DatabaseSchema:
    """Return the shape of a database, of any migration from 001 on.

    Vectors are of no use here, so that it does not matter whether the server has pgvector. A table
    that this user may not read counts as one that is not there: nobody reads a share that cannot
    be seen.

    Raises:
        SourceFormatError: It is no claude-memory database.
        SourceError: This user may not read `memories`, or not its marks of sensitivity.
    """
    columns, unreadable = _read_columns(pinned)
    _check_columns(pinned, columns, unreadable)
    readable, hidden = _read_tables(pinned)
    version = _read_version(pinned) or _infer_version(columns, readable | hidden)
    notes = {
        NOTE_NEWER: version > NEWEST_VERSION,
        NOTE_UNMARKED: not any(name in columns for name in FLAG_FIELDS),
        NOTE_UNREADABLE: bool(hidden),
    }
    return DatabaseSchema(
        version, columns, readable, tuple(n for n, is_so in notes.items() if is_so)
    )


def _read_columns(pinned: Pinned) -> tuple[dict[str, str], set[str]]:
    """Return the columns of `memories` with their types, and which of them may not be read."""
    found = pinned.rows(
        "SELECT attname::text, format_type(atttypid, atttypmod), "
        "has_column_privilege(attrelid, attnum, 'SELECT') FROM pg_attribute "
        f"WHERE attrelid = to_regclass('{MEMORIES}') AND attnum > 0 AND NOT attisdropped"
    )
    known = {*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS, *FLAG_FIELDS, *VAULT_FIELDS}
    rows = [(_text(name), _text(kind), may) for name, kind, may in found]
    columns = {name: kind for name, kind, _ in rows if name in known}
    return columns, {name for name, _, may in rows if name in known and not may}


def _check_columns(pinned: Pinned, columns: Mapping[str, str], unreadable: set[str]) -> None:
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        found = f"no column {', '.join(missing)} in it" if columns else "no such table"
        raise SourceFormatError(
            f"{pinned.display} is no claude-memory database: expected a table '{MEMORIES}' with "
            f"{', '.join(REQUIRED_COLUMNS)}; found {found}. Check the database's name and that "
            f"this user has USAGE on its schema."
        )
    if unreadable:
        # A mark that cannot be read could be set.
        raise SourceError(
            f"{pinned.display}: this user may not read {', '.join(sorted(unreadable))} of "
            f"'{MEMORIES}'. Grant SELECT on the whole table; what is marked sensitive stays there."
        )
    if columns["id"] not in _INTEGERS or not _is_unique(pinned):
        raise SourceFormatError(
            f"{pinned.display}: '{MEMORIES}' must be a table with a whole number 'id' as its "
            f"primary key, found {columns['id']}. Export the store as JSON lines; other ids are "
            f"read from there."
        )


def _is_unique(pinned: Pinned) -> bool:
    """Say whether ids are distinct and never NULL: pages of ascending ids lose nothing."""
    return bool(
        pinned.one(
            "SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = "
            f"i.indrelid AND a.attname = 'id' WHERE i.indrelid = to_regclass('{MEMORIES}') "
            "AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 "
            "AND i.indkey[0] = a.attnum AND a.attnotnull)"
        )
    )


def _read_tables(pinned: Pinned) -> tuple[frozenset[str], frozenset[str]]:
    """Return which of the other tables may be read and which are there but may not."""
    names = list(_TABLES)
    found = pinned.rows(
        "SELECT name, has_table_privilege(to_regclass(name), 'SELECT') "
        "FROM unnest(%(names)s::text[]) AS name WHERE to_regclass(name) IS NOT NULL",
        {"names": names},
    )
    readable = frozenset(_text(name) for name, may in found if may)
    return readable, frozenset(_text(name) for name, may in found if not may)


def _read_version(pinned: Pinned) -> str | None:
    """Return the version that the migrations wrote down themselves, or None."""
    has = "to_regclass('alembic_version')"
    if not pinned.one(f"SELECT coalesce(has_table_privilege({has}, 'SELECT'), false)"):
        return None
    found = pinned.rows("SELECT max(version_num)::text FROM alembic_version")
    version = _text(found[0][0]) if found and found[0][0] is not None else ""
    return version if version.isdecimal() else None


def _infer_version(columns: Mapping[str, str], tables: frozenset[str]) -> str:
    seen = ["001"]
    seen += ["002"] if "user_id" in columns else []
    seen += ["003"] if "deleted_at" in columns else []
    return max([*seen, *(_TABLES[name] for name in tables)])


def _text(value: object) -> str:
    """Return a name; it comes as bytes from a database without an encoding."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
