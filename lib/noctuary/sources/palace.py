"""Read a MemPalace palace (Chroma's SQLite file) while its writer runs.

Chroma is never imported, and its vectors, of another model, are not read. Marked drawers never
leave the database. Schema: chromadb 1.5 (sysdb 10, metadb 6, embeddings_queue 2).
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import cast

from noctuary.core.errors import SourceFormatError
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import UNDATED_US
from noctuary.sources.source import (
    PART_OF,
    SUPERSEDES,
    MemoryLink,
    QuarantineReason,
    RawRow,
    SourceIdentity,
    Told,
    true_names,
)
from noctuary.sources.sqlite import PinnedFile, tables_of
from noctuary.text.flags import FLAG_FIELDS, FLAGGED, VAULT_FIELDS, mark_sql
from noctuary.text.stamps import read_stamp

KIND = "mempalace-chroma"
CHROMA_FILE = "chroma.sqlite3"
DRAWERS = "mempalace_drawers"  # the collection that MemPalace creates by default
# Collections that MemPalace derives from the drawers: shortened texts that refer to them.
DERIVED = frozenset({"mempalace_closets", "mempalace_compressed"})
# Last known migration of each part of the file; a newer one is read, with a note.
KNOWN_MIGRATIONS: Mapping[str, int] = {"sysdb": 10, "metadb": 6, "embeddings_queue": 2}
# Drawers whose metadata are fetched at once; a low number bounds memory if documents are huge.
FETCHED_ROWS = 100
NOTE_NEWER_SCHEMA = "newer_schema_version"
# Writes that Chroma has queued; it applies them the next time it is opened.
NOTE_QUEUED = "drawers_in_queue"
_REQUIRED = {
    "collections": ("id", "name"),
    "segments": ("id", "scope", "collection"),
    "embeddings": ("id", "segment_id", "embedding_id"),
    "embedding_metadata": ("id", "key", "string_value", "int_value", "float_value"),
}
# Columns of a metadata value, in the order they are tried; older files lack the last.
_VALUES = ("string_value", "int_value", "float_value", "bool_value")


def is_palace(file: Path, tables: frozenset[str]) -> bool:
    """Return whether a SQLite file is Chroma's, by its tables, or by name if it is unreadable."""
    if not tables:
        return file.name == CHROMA_FILE
    return {"collections", "embedding_metadata"} <= tables and "memories" not in tables


class PalaceSource(PinnedFile):
    """A MemPalace palace, pinned to one read transaction."""

    def _read_schema(self) -> None:
        tables = set(tables_of(self._db))
        for table, columns in _REQUIRED.items():
            held = self._columns_of(table)
            if missing := [name for name in columns if name not in held]:
                lacks = f"no column {', '.join(missing)} in '{table}'"
                raise SourceFormatError(
                    f"{self._path} is not a palace that can be read: found "
                    f"{lacks if held else f'no table {table!r}'}, expected the tables "
                    f"{', '.join(_REQUIRED)} of chromadb 0.5 to 1.5. Open it once with a newer "
                    f"MemPalace, or point noctuary at another palace."
                )
        self._collection = _find_collection(self._db, self._path)
        sql = "SELECT id FROM segments WHERE collection = ? AND scope = 'METADATA'"
        segments = self._db.execute(sql, (self._collection,)).fetchall()
        if len(segments) != 1:
            raise SourceFormatError(
                f"{self._path}: the collection of drawers has {len(segments)} segments of metadata,"
                f" expected one: the palace is half-built. Open it once with MemPalace, or restore "
                f"a backup."
            )
        self._segment = str(segments[0][0])
        held = self._columns_of("embedding_metadata")
        self._values = [name for name in _VALUES if name in held]
        self._has_arrays = "embedding_metadata_array" in tables
        self._has_queue = {"embeddings_queue", "max_seq_id"} <= tables
        sql = "SELECT dir, max(version) FROM migrations GROUP BY dir ORDER BY dir"
        found = self._db.execute(sql) if "migrations" in tables else ()
        self._migrations = {str(part): int(last) for part, last in found}

    def identity(self) -> SourceIdentity:
        """Return the path, migration versions, row count and file size of the pinned state."""
        migrations, last_seq = self._migrations.items(), self._last_seq()
        notes = {
            NOTE_NEWER_SCHEMA: any(n > KNOWN_MIGRATIONS.get(part, n) for part, n in migrations),
            NOTE_QUEUED: self._has_queue and self._queued(last_seq) > 0,
        }
        version = ", ".join(f"{part} {last}" for part, last in migrations)
        marker = {"rows": self.count(), "last_seq": last_seq, **self._size()}
        return SourceIdentity(KIND, str(self._path), version, "str", marker, true_names(notes))

    def count(self) -> int:
        """Return the number of drawers, including those the miner keeps for itself."""
        return int(self._one("SELECT count(*) FROM embeddings WHERE segment_id = ?", self._segment))

    def rows(self) -> Iterator[RawRow]:
        """Yield the drawers by ascending id."""
        return self._rows("")

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the drawers with an id, by the index."""
        return self._rows("AND embedding_id = ?", key)

    def _rows(self, where: str, *values: str) -> Iterator[RawRow]:
        for row_id, drawer_id, mark, metadata in self._drawers((), where, *values):
            if mark is None:
                yield drawer_row(row_id, drawer_id, metadata)
            else:
                key = drawer_id if isinstance(drawer_id, str) and drawer_id else None
                yield RawRow(f"row {row_id}", key, {}, withheld=mark)

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield the distinct links stated by consolidated and superseded drawers."""
        drawers = self._drawers(MARKS) if noun is MemoryLink else ()
        links = (
            cast("Told", link)
            for _, drawer_id, _, metadata in drawers
            if isinstance(drawer_id, str)
            for link in drawer_links(drawer_id, metadata)
        )
        yield from dict.fromkeys(links)

    def _drawers(
        self, keys: Sequence[str], where: str = "", *values: str
    ) -> Iterator[tuple[int, object, str | None, Mapping[str, object]]]:
        """Yield row number, id, mark and metadata of drawers by id; no metadata if marked."""
        # The index on (segment_id, embedding_id) gives the order; rows of other collections and
        # texts are not read.
        pages = self._stream(self._page_sql(where), self._segment, *values)
        while page := list(islice(pages, FETCHED_ROWS)):
            metadata = self._metadata([row_id for row_id, _, mark in page if mark is None], keys)
            for row_id, drawer_id, mark in page:
                yield int(row_id), drawer_id, mark, metadata.get(row_id, {})

    def _metadata(
        self, row_ids: Sequence[int], keys: Sequence[str]
    ) -> Mapping[int, Mapping[str, object]]:
        """Return the metadata of drawers by row number, all or only those under `keys`."""
        found: defaultdict[int, dict[str, object]] = defaultdict(dict)
        where = "WHERE id IN (SELECT value FROM json_each(?))"
        where += f" AND key IN ({_quoted(keys)})" if keys else ""
        names = ", ".join(self._values)
        sql = f"SELECT id, key, 0, {names} FROM embedding_metadata {where}"
        wanted = [json.dumps([*row_ids])]
        if self._has_arrays:
            sql += (
                f" UNION ALL SELECT id, key, rowid, {names} FROM embedding_metadata_array {where}"
            )
            wanted *= 2
        for row_id, key, place, *typed in self._stream(f"{sql} ORDER BY 3", *wanted):
            value, fields = self._value(typed), found[row_id]
            if not place:
                fields[str(key)] = value
            elif isinstance(items := fields.setdefault(str(key), []), list):
                items.append(value)
        return found

    def _value(self, typed: Sequence[object]) -> object:
        """Return the first typed value that is not None, or None."""
        for name, value in zip(self._values, typed, strict=True):
            if value is not None:
                return bool(value) if name == "bool_value" else value
        return None

    def _last_seq(self) -> int:
        if not self._has_queue:
            return 0
        sql = "SELECT coalesce(max(seq_id), 0) FROM max_seq_id WHERE segment_id = ?"
        last = self._one(sql, self._segment)
        # Before metadb 5 it was stored as bytes.
        return int.from_bytes(last, "big") if isinstance(last, bytes) else int(last)

    def _queued(self, last_seq: int) -> int:
        """Return the number of writes to the collection waiting in Chroma's queue."""
        where = "seq_id > ? AND substr(topic, -length(?)) = ?"
        sql = f"SELECT count(*) FROM embeddings_queue WHERE {where}"
        return int(self._one(sql, last_seq, self._collection, self._collection))

    def _page_sql(self, where: str) -> str:
        """Return the query for number, id and mark of every drawer of a segment, by id."""
        flags, vaults = _quoted(FLAG_FIELDS), _quoted(VAULT_FIELDS)
        value = f"coalesce({', '.join(self._values)})"
        # A flag that is a list counts as set.
        listed = (
            "EXISTS (SELECT 1 FROM embedding_metadata_array a WHERE a.id = e.id "
            f"AND lower(a.key) IN ({flags}, {vaults}))"
        )
        # Marks are judged by the rule for columns: each row of metadata is treated as a column.
        marks = (
            f"SELECT CASE WHEN lower(key) IN ({flags}) THEN {value} END AS {FLAG_FIELDS[0]}, "
            f"CASE WHEN lower(key) IN ({vaults}) THEN {value} END AS {VAULT_FIELDS[0]} "
            f"FROM embedding_metadata WHERE id = e.id AND lower(key) IN ({flags}, {vaults})"
        )
        judged = mark_sql((FLAG_FIELDS[0], VAULT_FIELDS[0]), "v")
        is_listed = listed if self._has_arrays else "0"
        return (
            f"SELECT id, embedding_id, CASE WHEN {is_listed} THEN '{FLAGGED}' "
            f"ELSE (SELECT min({judged}) FROM ({marks}) v) END "
            f"FROM embeddings e WHERE segment_id = ? {where} ORDER BY embedding_id"
        )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _find_collection(db: sqlite3.Connection, path: Path) -> str:
    """Return the id of the drawers' collection: the one named so, else the only candidate."""
    rows = db.execute("SELECT name, id FROM collections ORDER BY name, id")
    named = [(str(name), str(collection_id)) for name, collection_id in rows]
    own = [item for item in named if item[0] == DRAWERS]
    found = own or [item for item in named if item[0] not in DERIVED]
    if not found:
        raise SourceFormatError(
            f"{path} holds no collection of drawers: expected {DRAWERS!r}, found "
            f"{', '.join(name for name, _ in named) or 'none'}. Mine something into the palace "
            f"first, or point noctuary at another one."
        )
    if len(found) > 1:
        # Picking one silently could index a copy, or a collection that is not a palace.
        raise SourceFormatError(
            f"{path} holds several collections that may be the drawers "
            f"({', '.join(name for name, _ in found)}); expected one, named {DRAWERS!r}. Rename "
            f"the others or move them into a palace of their own."
        )
    return found[0][1]


# Drawers as memories, and the links in their metadata (docs/decisions/0020): consolidated and
# superseded drawers remain memories, linked to their replacements.

DOCUMENT_KEY = "chroma:document"  # metadata key under which Chroma keeps a document
# Room and mode of drawers in which the miner records files without content.
REGISTRY_ROOM = "_registry"
REGISTRY_MODE = "registry"
# Keys that hold ids of other drawers: link type, and whether this drawer is its start.
_LINKS = {
    "consolidated_into": (PART_OF, True),
    "source_drawers": (PART_OF, False),
    "superseded_by": (SUPERSEDES, False),
    "synapse_superseded_by": (SUPERSEDES, False),
    "supersedes": (SUPERSEDES, True),
    "synapse_supersedes": (SUPERSEDES, True),
}
MARKS = tuple(_LINKS)
# The type that the writer chose wins over the hall a file was sorted into.
_CATEGORY_KEYS = ("type", "hall")
_CONSOLIDATION = "consolidated_summary"
_TAG_KEYS = ("topic", "entities", "keywords")
_TAG_SEPARATORS = str.maketrans(";|", ",,")
# Scopes and the soft-delete field, named as `normalize` expects them.
_KEPT_KEYS = ("wing", "room", "user", "user_id", "session_id", "session", "deleted_at")

Metadata = Mapping[str, object]


def drawer_row(row_id: int, drawer_id: object, metadata: Metadata) -> RawRow:
    """Convert a drawer to a RawRow; the miner's registry drawers have a problem."""
    locator = f"row {row_id}"
    if not isinstance(drawer_id, str) or not drawer_id:
        detail = f"drawer id: {type(drawer_id).__name__}"
        return RawRow(locator, None, {"metadata": metadata}, QuarantineReason.BAD_ID, detail)
    fields: dict[str, object] = {
        **{key: metadata[key] for key in _KEPT_KEYS if key in metadata},
        "content": metadata.get(DOCUMENT_KEY),
        "created_at": _written_at(metadata),
        "category": _category(metadata),
        "tags": ",".join(_tags(metadata)),
        "expanded_keywords": _file_name(metadata.get("source_file")),
        "id": drawer_id,
        "metadata": metadata,
    }
    if metadata.get("room") == REGISTRY_ROOM or metadata.get("ingest_mode") == REGISTRY_MODE:
        return RawRow(locator, drawer_id, fields, QuarantineReason.BOOKKEEPING, "a registry drawer")
    return RawRow(locator, drawer_id, fields)


def drawer_links(drawer_id: str, metadata: Metadata) -> Iterator[MemoryLink]:
    """Yield the links in a drawer's metadata: parts of summaries, and replacements."""
    for key, (link_type, points) in _LINKS.items():
        for other in _ids(metadata.get(key)):
            ends = (drawer_id, other) if points else (other, drawer_id)
            yield MemoryLink(*ends, link_type, UNDATED_US, None)


# Keys of a drawer's own time, by how it was mined: `sweep` keeps that of each message, `convos`
# that of the last message of a whole file (of a file without times the time of mining), `projects`
# and `extract` a day from the file's name, front matter, body or mtime; a diary its day.
_OWN_TIMES = ("timestamp", "authored_at", "content_date", "date")


def _written_at(metadata: Metadata) -> object:
    """Return when a drawer's text was written, if it is known, else when it was filed."""
    # Times without a zone are the machine's local ones; they are read as UTC, like all others.
    filed = metadata.get("filed_at")
    filed_at, changed_at = read_stamp(filed), read_stamp(metadata.get("source_mtime"))
    for key in _OWN_TIMES:
        said = read_stamp(metadata.get(key))
        if said is None or metadata[key] == filed:
            continue
        is_of_body = key == "content_date" and metadata.get("content_date_source") in _OF_BODY
        # A day after the writing is a deadline mentioned in the text.
        if _is_later(said, (changed_at if is_of_body else None) or filed_at):
            continue
        # Of the same day, prefer the more precise time.
        finer = (stamp for stamp in (changed_at, filed_at) if stamp and stamp[:10] == said)
        return next(finer, said)
    return changed_at or filed


_OF_BODY = ("body", "unknown", None)  # before 3.10 the source of a day was not recorded


def _is_later(stamp: str, other: str | None) -> bool:
    """Return whether a day is later than another by more than time zones can explain."""
    if other is None:
        return False
    return datetime.fromisoformat(stamp[:10]) > datetime.fromisoformat(other[:10]) + timedelta(1)


def _category(metadata: Metadata) -> str:
    if metadata.get("status") == _CONSOLIDATION:
        return _CONSOLIDATION
    found = (metadata.get(key) for key in _CATEGORY_KEYS)
    return next((value for value in found if isinstance(value, str) and value.strip()), "")


def _tags(metadata: Metadata) -> list[str]:
    """Return the distinct topics, entities and keywords of a drawer, in order."""
    texts = [text for key in _TAG_KEYS for text in _texts(metadata.get(key))]
    tags = [tag.strip() for tag in ",".join(texts).translate(_TAG_SEPARATORS).split(",")]
    # A colon would turn it into a scope (`normalize`).
    return [tag for tag in dict.fromkeys(tags) if tag and ":" not in tag]


def _file_name(value: object) -> str:
    """Return the last part of a path; its folders would identify a machine."""
    if not isinstance(value, str):
        return ""
    return PurePosixPath(PureWindowsPath(value).name).name


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return [item for item in cast("list[object]", value) if isinstance(item, str)]
    return [value] if isinstance(value, str) else []


def _ids(value: object) -> list[str]:
    """Parse the drawer ids of a link key: a list, a JSON list in a text, or one id."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse_json(value)
        except ValueError:
            return []
    return list(dict.fromkeys(text.strip() for text in _texts(value) if text.strip()))
