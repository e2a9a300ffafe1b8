"""Reading a MemPalace palace (Chroma's SQLite file) beside its live writer.

What belongs here: the queries. What does not: where the drawers lie (`palace_schema`), what their
metadata mean (`palace_rows`). Chroma itself is never imported, and its vectors are not read: they
are of a model of its own. A drawer that is marked sensitive never leaves the database: the query
gives its id and the mark alone.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from noctuary.corpus.evidence import KnownConcept, KnownEdge, KnownMention, MemoryLink, Share
from noctuary.corpus.palace_rows import MARKS, drawer_links, drawer_row
from noctuary.corpus.palace_schema import read_shape
from noctuary.corpus.pinned_file import PinnedFile
from noctuary.corpus.source import DEFAULT_BATCH_ROWS, RawRow, SourceIdentity, batch_rows
from noctuary.text.sensitivity_marks import FLAG_FIELDS, FLAGGED, VAULT_FIELDS
from noctuary.text.sensitivity_sql import mark_sql

KIND = "mempalace-chroma"

FETCHED_ROWS = 100
"""Drawers whose metadata are fetched at once: more saves queries, fewer bounds memory when
documents are huge."""

NOTE_NEWER_SCHEMA = "newer_schema_version"
NOTE_QUEUED = "drawers_in_queue"
"""Chroma has taken writes in that it has not yet filed; it files them when it is opened next."""


class PalaceSource(PinnedFile):
    """A palace, pinned to one snapshot; see `Source` and `HasEvidence`."""

    def __init__(self, path: Path) -> None:
        """Open `chroma.sqlite3`.

        Raises:
            SourceError: It cannot be opened, or a writer holds it.
            SourceFormatError: It is no palace, a half-built one, or its drawers are ambiguous.
        """
        super().__init__(path)
        try:
            self._shape = read_shape(self._db, self._path)
        except sqlite3.Error as error:
            self.close()
            raise self._damaged(error) from None
        except BaseException:
            self.close()
            raise
        self._page_sql = _page_sql(self._shape.value_columns, has_arrays=self._shape.has_arrays)

    def identity(self) -> SourceIdentity:
        """Return path, schema version and the size of the snapshot that is being read."""
        shape, stat = self._shape, self._path.stat()
        notes = (NOTE_NEWER_SCHEMA,) if shape.is_newer else ()
        notes += (NOTE_QUEUED,) if self._queued() else ()
        return SourceIdentity(
            kind=KIND,
            location=str(self._path),
            schema_version=shape.schema_version,
            id_kind="str",
            marker={
                "rows": self.count(),
                "last_seq": self._last_seq(),
                "size_bytes": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
            },
            notes=notes,
        )

    def count(self) -> int:
        """Return the number of drawers of the snapshot, the miner's own among them."""
        segment = self._shape.segment_id
        return int(self._one("SELECT count(*) FROM embeddings WHERE segment_id = ?", segment))

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the drawers by ascending id; a batch is cut short when its texts are long."""
        yield from batch_rows(self._rows(), size)

    def links(self) -> Iterator[MemoryLink]:
        """Yield what the marks of consolidation and supersession say, each link once."""
        seen: set[MemoryLink] = set()
        for drawer_id, metadata in self._marked():
            for link in drawer_links(drawer_id, metadata):
                if link not in seen:
                    seen.add(link)
                    yield link

    def concepts(self) -> Iterator[KnownConcept]:
        """Yield nothing: a palace's file has none."""
        yield from ()

    def mentions(self) -> Iterator[KnownMention]:
        """Yield nothing, as above."""
        yield from ()

    def edges(self) -> Iterator[KnownEdge]:
        """Yield nothing, as above."""
        yield from ()

    def shares(self) -> Iterator[Share]:
        """Yield nothing: a palace has one owner."""
        yield from ()

    def _rows(self) -> Iterator[RawRow]:
        try:
            for page in self._pages():
                clean = [row_id for row_id, _, mark in page if mark is None]
                metadata = self._metadata(clean)
                for row_id, drawer_id, mark in page:
                    if mark is None:
                        yield drawer_row(row_id, drawer_id, metadata[row_id])
                    else:
                        yield _withheld(row_id, drawer_id, str(mark))
            self._check_unchanged()
        except sqlite3.Error as error:
            # Its text may quote the row it failed on.
            raise self._damaged(error) from None

    def _pages(self) -> Iterator[list[tuple[int, object, object]]]:
        """Yield number, id and mark of the drawers, FETCHED_ROWS at a time, by ascending id."""
        # The index on (segment_id, embedding_id) gives the order; rows of other collections and
        # texts are not touched.
        cursor = self._db.execute(self._page_sql, (self._shape.segment_id,))
        while page := list(islice(cursor, FETCHED_ROWS)):
            yield [(int(row_id), drawer_id, mark) for row_id, drawer_id, mark in page]

    def _metadata(
        self, row_ids: Sequence[int], keys: Sequence[str] = ()
    ) -> Mapping[int, dict[str, object]]:
        """Return all metadata of some drawers, or those under some keys."""
        found: defaultdict[int, dict[str, object]] = defaultdict(dict)
        values = self._shape.value_columns
        where = "WHERE id IN (SELECT value FROM json_each(?))"
        where += f" AND key IN ({_quoted(keys)})" if keys else ""
        chosen = (json.dumps(list(row_ids)),)
        sql = f"SELECT id, key, {', '.join(values)} FROM embedding_metadata {where}"
        for row_id, key, *typed in self._db.execute(sql, chosen):
            found[row_id][str(key)] = _value(values, typed)
        if not self._shape.has_arrays:
            return found
        names = ", ".join(values)
        sql = f"SELECT id, key, {names} FROM embedding_metadata_array {where} ORDER BY rowid"
        for row_id, key, *typed in self._db.execute(sql, chosen):
            items = found[row_id].setdefault(str(key), [])
            if isinstance(items, list):
                items.append(_value(values, typed))
        return found

    def _marked(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Yield id and marks of the drawers that have any, by ascending id."""
        try:
            for page in self._pages():
                ids = {row_id: drawer_id for row_id, drawer_id, mark in page if mark is None}
                metadata = self._metadata(list(ids), MARKS)
                for row_id, drawer_id in ids.items():
                    if row_id in metadata and isinstance(drawer_id, str):
                        yield drawer_id, metadata[row_id]
        except sqlite3.Error as error:
            raise self._damaged(error) from None

    def _last_seq(self) -> int:
        if not self._shape.has_queue:
            return 0
        segment = self._shape.segment_id
        sql = "SELECT coalesce(max(seq_id), 0) FROM max_seq_id WHERE segment_id = ?"
        last = self._one(sql, segment)
        # Before metadb 5 it was stored as bytes.
        return int.from_bytes(last, "big") if isinstance(last, bytes) else int(last)

    def _queued(self) -> int:
        """Return how many writes to the collection wait in Chroma's queue."""
        if not self._shape.has_queue:
            return 0
        sql = (
            "SELECT count(*) FROM embeddings_queue WHERE seq_id > ? "
            "AND substr(topic, -length(?2)) = ?2"
        )
        return int(self._one(sql, self._last_seq(), self._shape.collection_id))


def _page_sql(value_columns: Sequence[str], *, has_arrays: bool) -> str:
    """Return the query for number, id and mark of every drawer of a segment, by id."""
    flags, vaults = _quoted(FLAG_FIELDS), _quoted(VAULT_FIELDS)
    value = f"coalesce({', '.join(value_columns)})"
    listed = "0"
    if has_arrays:
        # A flag that is a list is not plainly false.
        listed = (
            "EXISTS (SELECT 1 FROM embedding_metadata_array a WHERE a.id = e.id "
            f"AND lower(a.key) IN ({flags}, {vaults}))"
        )
    # The marks are judged by the rule for columns: one row of metadata is one column of it.
    marks = (
        f"SELECT CASE WHEN lower(key) IN ({flags}) THEN {value} END AS {FLAG_FIELDS[0]}, "
        f"CASE WHEN lower(key) IN ({vaults}) THEN {value} END AS {VAULT_FIELDS[0]} "
        f"FROM embedding_metadata WHERE id = e.id AND lower(key) IN ({flags}, {vaults})"
    )
    judged = mark_sql((FLAG_FIELDS[0], VAULT_FIELDS[0]), "v")
    return (
        f"SELECT id, embedding_id, CASE WHEN {listed} THEN '{FLAGGED}' "
        f"ELSE (SELECT min({judged}) FROM ({marks}) v) END "
        "FROM embeddings e WHERE segment_id = ? ORDER BY embedding_id"
    )


def _quoted(names: Sequence[str]) -> str:
    """Return constants of this package as SQL."""
    return ", ".join(f"'{name}'" for name in names)


def _value(columns: Sequence[str], typed: Sequence[object]) -> object:
    """Return the one value of the typed columns, None where there is none."""
    for name, value in zip(columns, typed, strict=True):
        if value is not None:
            return bool(value) if name == "bool_value" else value
    return None


def _withheld(row_id: int, drawer_id: object, mark: str) -> RawRow:
    key = drawer_id if isinstance(drawer_id, str) and drawer_id else None
    return RawRow(f"row {row_id}", key, fields={}, withheld=mark)
