"""The rows that no night exports, read out of the store itself and into this process alone.

Which rows are sensitive, the export's rules say. Readers of the night leave such rows in the store
by their query, so here are queries of their own; connections are theirs, read-only and pinned.
Nothing of the question is sent to a server, which may log its statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.errors import SourceError
from noctuary.settings import SourceSettings
from noctuary.source_name import DatabaseName, SourceName
from noctuary.text.sensitivity_marks import FLAG_FIELDS, VAULT_FIELDS, find_fields_sensitivity
from noctuary.text.sensitivity_sql import mark_sql

if TYPE_CHECKING:
    from noctuary.postgres.users import Reader

VAULT_PATH = "vault_path"

BATCH_ROWS = 1_000
"""Rows read at once: larger saves statements, smaller memory."""

_MARKS = frozenset((*FLAG_FIELDS, *VAULT_FIELDS))
_Row = tuple[object, object, Mapping[str, object]]
"""What its query says of a row: its mark, its vault path, its columns."""


class HeldRow(NamedTuple):
    """A row that never leaves its store: its id, why, its columns without marks, its vault path."""

    key: Any
    reason: str
    fields: Mapping[str, object]
    vault_path: str | None


def read_sensitive(
    source: SourceName, kind: str, settings: SourceSettings, user: str | None
) -> Iterator[HeldRow]:
    """Yield every sensitive row of a store that a user may see, as far as its query can tell.

    Args:
        source: The store.
        kind: What the manifest calls it.
        settings: Whose rows of a database are read.
        user: Who asks; a caller compares again, because tags may name a user too.

    Raises:
        SourceError: The store cannot be read, or its kind gives no sensitive text away.
    """
    if isinstance(source, DatabaseName):
        rows = _of_database(source, settings, user)
    elif kind == "claude-memory-sqlite":
        rows = _of_sqlite(source)
    elif kind in ("jsonl", "jsonl.gz"):
        rows = _of_lines(source)
    else:
        raise SourceError(
            f"sensitive rows of a store of the kind {kind} cannot be recalled: only "
            "claude-memory stores (SQLite, PostgreSQL) and JSON lines can"
        )
    for mark, vault, fields in rows:
        reason = mark or find_fields_sensitivity(fields)
        if reason is not None:
            shown = {name: value for name, value in fields.items() if name not in _MARKS}
            path = vault if isinstance(vault, str) else None
            yield HeldRow(fields["id"], str(reason), shown, path)


def _of_sqlite(path: Path) -> Iterator[_Row]:
    from noctuary.corpus.pinned_file import PinnedFile
    from noctuary.corpus.sqlite_source import OPTIONAL_COLUMNS, REQUIRED_COLUMNS

    class Reading(PinnedFile):
        """All rows, marked ones included."""

        def rows(self) -> Iterator[_Row]:
            info = self._db.execute("PRAGMA table_info(memories)").fetchall()
            there = {str(row[1]) for row in info}
            wanted = (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
            names = [n for n in wanted if n in there and n not in _MARKS]
            vault = VAULT_PATH if VAULT_PATH in there else "NULL"
            # The interpolated names are constants of noctuary.
            sql = f"SELECT {mark_sql(there)}, {vault}, {', '.join(names)} FROM memories ORDER BY id"
            for mark, path, *values in self._db.execute(sql):
                yield mark, path, dict(zip(names, values, strict=True))

    with Reading(path) as reading:
        yield from reading.rows()


def _of_lines(path: Path) -> Iterator[_Row]:
    from noctuary.corpus.jsonl_source import JsonlSource

    with JsonlSource(path) as source:
        for batch in source.batches(BATCH_ROWS):
            for row in batch:
                if row.problem is None and row.key is not None:
                    yield None, row.fields.get(VAULT_PATH), {**row.fields, "id": row.key}


def _of_database(name: DatabaseName, settings: SourceSettings, user: str | None) -> Iterator[_Row]:
    from noctuary.postgres.address import read_address
    from noctuary.postgres.connecting import Pinned
    from noctuary.postgres.rows import read_pages
    from noctuary.postgres.schema import read_schema
    from noctuary.postgres.users import Reader, make_reader

    with closing(Pinned(read_address(name))) as pinned:
        known = make_reader(pinned, read_schema(pinned), settings.user)
        names, sql = _marked_sql(known)
        for page in pinned.stream(sql, {"user": user}, size=BATCH_ROWS):
            for mark, vault, *values in page:
                yield mark, vault, dict(zip(names, values, strict=True))
        if known.has_users and user is None:
            return  # every row is somebody's
        # What only its text betrays is not marked: these rows the night's own query gives.
        reader = Reader(known.schema, user if known.has_users else None, known.has_users)
        for rows in read_pages(pinned, reader, BATCH_ROWS):
            for row in rows:
                if row.withheld is None and not row.too_large:
                    yield None, None, {**row.fields, "id": row.key}


def _marked_sql(reader: Reader) -> tuple[tuple[str, ...], str]:
    """Return the columns and the query of the marked rows of one user and of nobody."""
    from noctuary.postgres.rows import field_names, mark_sql
    from noctuary.postgres.schema import MEMORIES
    from noctuary.postgres.users import user_sql

    names, owner = field_names(reader.schema), user_sql(reader)
    dates = ("created_at", "updated_at", "deleted_at")
    shown = [owner if n == "user_id" else f"m.{n}::text" if n in dates else f"m.{n}" for n in names]
    vault = f"m.{VAULT_PATH}::text" if VAULT_PATH in reader.schema.columns else "NULL::text"
    mark = mark_sql(reader.schema)
    return names, (
        f"SELECT {mark}, {vault}, {', '.join(shown)} FROM {MEMORIES} m WHERE {mark} IS NOT NULL "
        f"AND ({owner} IS NULL OR {owner} = %(user)s::text) ORDER BY m.id"
    )
