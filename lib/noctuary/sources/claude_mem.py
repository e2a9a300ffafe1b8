"""Read claude-mem's SQLite file while its worker runs.

Observations and session summaries are memories. Its copies of prompts are not: transcripts have
them with their answers. Schema: thedotmack/claude-mem, src/services/sqlite/SessionStore.ts, 4
to 49.
them with their answers. Shape: thedotmack/claude-mem, src/services/sqlite/SessionStore.ts, schema 4
to 49.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import NamedTuple

from noctuary.core.errors import SourceFormatError
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import Origin
from noctuary.sources.jsonl import usable_id
from noctuary.sources.source import QuarantineReason, RawRow, SourceIdentity, true_names
from noctuary.sources.sqlite import PinnedFile
from noctuary.text.flags import FLAGGED
from noctuary.text.stamps import read_stamp

KIND = "claude-mem-sqlite"
KNOWN_VERSION = 49
NOTE_NEWER_SCHEMA = "newer_schema_version"
FETCHED_ROWS = 100  # whose texts are held in memory at once
# The type that the owner's mode assigns to "Sensitive Info".
_SENSITIVE_TYPE = "sensitive"


class _Table(NamedTuple):
    """A table whose rows are memories, and how its columns map to one."""

    name: str
    prefix: str  # Of its ids
    texts: Mapping[str, str]  # Columns of the content, in order, with the prefix of each
    category: str  # Of rows without a column "type"


_OBSERVATIONS = _Table(
    "observations",
    "observation",
    {"title": "", "subtitle": "", "narrative": "", "text": "", "facts": "- "},
    "observation",
)
_SUMMARIES = _Table(
    "session_summaries",
    "summary",
    {
        "request": "Request: ", "investigated": "Investigated: ", "learned": "Learned: ",
        "completed": "Completed: ", "next_steps": "Next steps: ", "notes": "Notes: ",
    },
    "session_summary",
)  # fmt: skip
_TABLES = (_OBSERVATIONS, _SUMMARIES)
_REQUIRED = ("id", "memory_session_id", "project", "created_at")
_FILES = ("files_modified", "files_edited", "files_read")
# Read if the schema has them; other columns do not matter for a memory.
_OPTIONAL = (
    "type", "concepts", "merged_into_project", "metadata", "created_at_epoch", *_FILES,
)  # fmt: skip


def is_claude_mem(tables: frozenset[str]) -> bool:
    """Return whether a SQLite file with these tables is claude-mem's."""
    return {"observations", "sdk_sessions"} <= tables and "memories" not in tables


class ClaudeMemSource(PinnedFile):
    """A claude-mem database, pinned to one snapshot; ids are `observation-17` and `summary-3`."""

    def _read_schema(self) -> None:
        self._columns: dict[str, list[str]] = {}
        for table in _TABLES:
            held = self._columns_of(table.name)
            if missing := [name for name in _REQUIRED if name not in held]:
                raise SourceFormatError(
                    f"{self._path} is not a claude-mem database that can be read: expected the "
                    f"columns {', '.join(_REQUIRED)} in '{table.name}'; {', '.join(missing)} "
                    f"missing. Open it once with a current claude-mem."
                )
            known = (*_REQUIRED, *table.texts, *_OPTIONAL)
            self._columns[table.name] = [name for name in known if name in held]
        has_versions = "version" in self._columns_of("schema_versions")
        sql = "SELECT CAST(coalesce(max(version), 0) AS INTEGER) FROM schema_versions"
        self._version = int(self._db.execute(sql).fetchone()[0]) if has_versions else 0

    def identity(self) -> SourceIdentity:
        """Return the path, schema version, last ids and file size of the pinned state."""
        last = {
            f"last_{t.prefix}": int(self._one(f"SELECT coalesce(max(rowid), 0) FROM {t.name}"))
            for t in _TABLES
        }
        marker = {"rows": self.count(), **last, **self._size()}
        notes = true_names({NOTE_NEWER_SCHEMA: self._version > KNOWN_VERSION})
        return SourceIdentity(KIND, str(self._path), str(self._version), "str", marker, notes)

    def count(self) -> int:
        """Return the number of observations and summaries."""
        return sum(int(self._one(f"SELECT count(*) FROM {table.name}")) for table in _TABLES)

    def rows(self) -> Iterator[RawRow]:
        """Yield observations, then summaries, by id as text; rows without an id come first."""
        return chain.from_iterable(map(self._rows, _TABLES))

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the row with an id such as observation-17."""
        prefix, _, number = key.partition("-")
        found = (
            self._rows(t, "WHERE CAST(id AS TEXT) = ?", number)
            for t in _TABLES
            if t.prefix == prefix
        )
        return chain.from_iterable(found)

    def _rows(self, table: _Table, where: str = "", *values: str) -> Iterator[RawRow]:
        columns = self._columns[table.name]
        marked = f"lower(trim(type)) = '{_SENSITIVE_TYPE}'" if "type" in columns else "0"
        # Ids may repeat or be missing; rowid is unique.
        ids = {
            int(number): (None if usable_id(key) is None else f"{table.prefix}-{key}", bool(mark))
            for number, key, mark in self._stream(
                f"SELECT rowid, id, {marked} FROM {table.name} {where}", *values
            )
        }
        # Texts of marked rows stay in the database.
        shown = f"SELECT rowid, {', '.join(columns)} FROM {table.name}"
        sql = f"{shown} WHERE rowid IN (SELECT value FROM json_each(?))"
        ordered = iter(sorted(ids, key=lambda number: (ids[number][0] or "", number)))
        while page := list(islice(ordered, FETCHED_ROWS)):
            fetched = self._stream(sql, json.dumps([n for n in page if not ids[n][1]]))
            found = {number: dict(zip(columns, row, strict=True)) for number, *row in fetched}
            for number in page:
                (key, is_marked), locator = ids[number], f"{table.name} {number}"
                if is_marked:
                    yield RawRow(locator, key, {}, withheld=FLAGGED)
                else:
                    yield _row(table, locator, key, found[number])


def _row(table: _Table, locator: str, key: str | None, values: Mapping[str, object]) -> RawRow:
    broken = {n: v.decode("utf-8", "replace") for n, v in values.items() if isinstance(v, bytes)}
    if broken or key is None:
        why = QuarantineReason.NOT_UTF8 if key is not None else QuarantineReason.BAD_ID
        detail = ", ".join(broken) if key is not None else f"id: {type(values['id']).__name__}"
        texts = "\n".join(map(str, {**values, **broken}.values()))
        return RawRow(locator, key, {}, why, detail, texts)
    said = (_lines(values.get(name), mark) for name, mark in table.texts.items())
    project = values.get("merged_into_project") or values["project"]
    created = values["created_at"] or values.get("created_at_epoch")
    fields: dict[str, object] = {
        "id": key,
        "content": "\n".join(dict.fromkeys(chain.from_iterable(said))) or None,
        "category": values.get("type") or table.category,
        "tags": ",".join(tag for tag in _texts(values.get("concepts")) if ":" not in tag),
        "expanded_keywords": " ".join(_file_names(values)),
        "created_at": created if isinstance(created, str) else read_stamp(created) or created,
        "session_id": values["memory_session_id"],
        # A worktree's project is "repository/worktree".
        "wing": project.partition("/")[0] if isinstance(project, str) else project,
        "columns": values,
        "origin": Origin.ASSISTANT,
    }
    return RawRow(locator, key, fields)


def _lines(value: object, mark: str) -> Iterator[str]:
    for text in _texts(value):
        if text.strip():
            yield f"{mark}{text.strip()}"


def _file_names(values: Mapping[str, object]) -> Sequence[str]:
    """Return the file names that a row lists, without folders, which identify a machine."""
    paths = chain.from_iterable(_texts(values.get(name)) for name in _FILES)
    return list(dict.fromkeys(PurePosixPath(path).name for path in paths))


def _texts(value: object) -> list[str]:
    """Return the texts of a JSON list in a text, or the text itself; numbers become text."""
    if not isinstance(value, str):
        return [str(value)] if isinstance(value, int | float) else []
    if value.lstrip().startswith("["):
        try:
            return [text for text in parse_json(value) if isinstance(text, str)]
        except ValueError:
            pass
    return [value] if value.strip() else []
