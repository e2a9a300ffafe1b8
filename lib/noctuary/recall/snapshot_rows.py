"""One opened snapshot without its arrays: rows, words, thresholds, and which one serves.

Standard library only: a prompt that no server answers reads a snapshot without numpy.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError, StoreError
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import Manifest, Pointer, quick_check, read_manifest, read_pointer
from noctuary.core.store import OWN_FILE, StorePaths, is_snapshot_id
from noctuary.core.tombstones import open_rows, read_tombstones
from noctuary.core.types import published_text
from noctuary.graph.fold import Name, NameTable
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import Calibration

ROW_COLUMNS = (
    "position", "memory_id", "content", "category", "tags", "importance", "created_at_us",
    "session_id", "wing", "room", "user", "is_turn", "expanded_keywords", "updated_at_us",
    "content_hash", "origin", "valid_until_us",
)  # fmt: skip
_SQL_VARIABLES = 500  # below SQLite's oldest limit of 999
# Tables that are asked by words, one row a word: a recall asks each of them several times for the
# words of its question, and questions share their words.
_BY_WORD = frozenset({"terms", "summary_terms", "near_words", "link_starts", "links"})
_KEPT_WORDS = 8_192  # some 2 MB


class SnapshotRows:
    """The rows of one snapshot directory, without forgotten ones; safe to share between threads."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.count: int = manifest.counts["memories"]
        self.id_kind = manifest.id_kind
        self._lock = threading.Lock()
        self._words: dict[tuple[str, str], tuple[Any, ...] | None] = {}
        # Of the store that the snapshot, or a candidate, lies in.
        self.forgotten = read_tombstones(directory.parents[1])
        self._rows = open_rows(directory, self.forgotten, check_same_thread=False)
        # A connection that has run a statement refers to itself: its file would stay open until
        # the collector comes by.
        weakref.finalize(self, self._rows.close).atexit = False
        self.meta: Mapping[str, str] = dict(self._query("SELECT key, value FROM meta"))
        # Positions of forgotten memories, hidden from everyone.
        self.gone: tuple[int, ...] = ()
        if self.forgotten.ids:
            self.gone = tuple(p for (p,) in self._query("SELECT position FROM temp.hidden"))
        # Where and when memories end, of those that do. An ORDER BY would read every row.
        self.ends: tuple[tuple[int, int], ...] = tuple(
            self._query(
                "SELECT position, valid_until_us FROM memories WHERE valid_until_us IS NOT NULL"
            )
        )
        ranking, calibration = self._text(layout.RANKING_FILE), self._text(layout.ABSTENTION_FILE)
        # What the evaluation adopted for this snapshot, and the night's thresholds for abstaining.
        self.adopted: dict[str, Any] = {} if ranking is None else parse_json(ranking)["adopted"]
        if self.adopted:
            RetrievalProfile(**self.adopted)
        self.calibration = None if calibration is None else Calibration.parse(calibration)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open a snapshot; SnapshotCorruptError if anything is missing, damaged or inconsistent."""
        manifest = read_manifest(directory)
        quick_check(directory, manifest)
        try:
            return cls(directory, manifest)
        except StoreError:
            raise  # its message names the remedy: the tombstones cannot be read
        except Exception as error:
            # numpy parses a damaged header as Python and lets every parser error through.
            raise SnapshotCorruptError(
                f"snapshot {directory.name} cannot be opened ({type(error).__name__}): "
                "run `noctuary doctor`, then `noctuary rollback` or the nightly job"
            ) from error

    def look_up_terms(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        """Return the posting slice [start, stop) of every known term, in the order asked."""
        return self._slices("terms", terms)

    def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """Return how many memories of the snapshot contain each term; 0 for an unknown one."""
        found = self.look_up("terms", "term", "term, start, stop", terms)
        return {**dict.fromkeys(terms, 0), **{term: stop - start for term, start, stop in found}}

    def near_words(self, asked: Sequence[str]) -> list[tuple[str, str, float]]:
        """Return (term, near term, share of its scores); no near term is asked itself."""
        if "near_words" not in self.manifest.counts:
            return []  # no word has any, and nothing need be asked
        return [
            (term, near, share)
            for term, found in self.look_up("near_words", "term", "term, near", asked)
            for near, share in parse_json(found)
            if near not in asked
        ]

    def name_table(self) -> NameTable:
        """Return how the names of concepts are looked up."""
        return NameTable(self._longest, self._named)

    def _longest(self, words: Sequence[str]) -> Mapping[str, int]:
        rows = self.look_up("link_starts", "word", "word, words", words)
        return {str(word): int(count) for word, count in rows}

    def _named(self, names: Sequence[str]) -> Mapping[str, Name]:
        rows = self.look_up("links", "name", "name, ordinal, weight, cased", names)
        return {
            str(name): Name(int(ordinal), float(weight), bool(cased))
            for name, ordinal, weight, cased in rows
        }

    def positions_of(self, memory_ids: Iterable[str]) -> dict[str, int]:
        """Return the position of every known id, in the order asked."""
        wanted = list(dict.fromkeys(memory_ids))
        found = dict(self.look_up("memories", "memory_id", "memory_id, position", wanted))
        return {m: found[m] for m in wanted if m in found}

    def other_ids(self, memory_id: str) -> list[str]:
        """Return the ids that another spelling of one may mean: 17 for own:17, and the reverse."""
        # Of several stores a bare number may be of any; `remember` gives own:17 since it knows.
        members: Mapping[str, Any] = self.manifest.source.get("members") or {}
        if members:
            return [] if ":" in memory_id else [f"{name}:{memory_id}" for name in members]
        is_own = Path(str(self.manifest.source.get("location", ""))).name == OWN_FILE
        number = memory_id.removeprefix("own:")
        return [number] if is_own and number != memory_id else []

    def content_hashes(self, memory_ids: Iterable[str]) -> dict[str, str]:
        """Return the content hash of every known id (as text)."""
        asked = list(memory_ids)
        return dict(self.look_up("memories", "memory_id", "memory_id, content_hash", asked))

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id (as text)."""
        return dict(self.look_up("memories", "memory_id", "memory_id, content", memory_ids))

    def all_memory_ids(self) -> list[str]:
        """Return every id, as text, in any order."""
        # A condition that all rows meet: the ids are read off their index, in no order.
        return [str(i) for (i,) in self.look_up("memories", "'all'", "memory_id", ["all"])]

    def concept_name(self, ordinal: int) -> str | None:
        """Return the canonical name of a concept, or None for a structural edge (ordinal < 0)."""
        if ordinal < 0:
            return None
        rows = self._query("SELECT canonical_name FROM concepts WHERE ordinal = ?", [ordinal])
        return rows[0][0] if rows else None

    def public_id(self, memory_id: str) -> int | str:
        """Return a memory's id in the source's own type."""
        return int(memory_id) if self.id_kind == "int" else memory_id

    def close(self) -> None:
        """Release the SQLite handle; arrays go with the last reference."""
        with self._lock:
            self._rows.close()

    def _slices(self, table: str, terms: Sequence[str]) -> list[tuple[int, int]]:
        distinct = list(dict.fromkeys(terms))
        rows = self.look_up(table, "term", "term, start, stop", distinct)
        found = {term: (start, stop) for term, start, stop in rows}
        return [found[t] for t in distinct if t in found]

    def look_up(
        self, table: str, key: str, columns: str, values: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Return columns of the rows of a table whose key is one of the values."""
        if table in _BY_WORD:
            return self._look_up_words(table, key, columns, values)
        return self._select(table, key, columns, values)

    def _look_up_words(
        self, table: str, key: str, columns: str, words: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of words, from memory where they were asked before."""
        kept = self._words
        found = {word: kept[table, word] for word in words if (table, word) in kept}
        if missing := [word for word in words if word not in found]:
            rows = {row[0]: row for row in self._select(table, key, columns, missing)}
            found.update((word, rows.get(word)) for word in missing)
            if len(kept) > _KEPT_WORDS:
                kept = self._words = {}  # others may still read the old one
            kept.update(((table, word), found[word]) for word in missing)
        return [row for row in found.values() if row is not None]

    def _select(
        self, table: str, key: str, columns: str, values: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(values), _SQL_VARIABLES):
            chunk = values[start : start + _SQL_VARIABLES]
            marks = ",".join("?" * len(chunk))
            found += self._query(f"SELECT {columns} FROM {table} WHERE {key} IN ({marks})", chunk)
        return found

    def rows_of(self, positions: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return ROW_COLUMNS and no sources of each memory, by position and name."""
        rows: dict[int, dict[str, Any]] = {}
        columns = ", ".join(ROW_COLUMNS)
        for values in self.look_up("memories", "position", columns, sorted(positions)):
            row: dict[str, Any] = dict(zip(ROW_COLUMNS, values, strict=True))
            row["content"] = published_text(row)
            row["tags"] = tuple(t.strip() for t in row["tags"].split(",") if t.strip())
            row["sources"] = ()
            rows[row["position"]] = row
        return rows

    def _text(self, name: str) -> str | None:
        """Return the text of a file; None where the snapshot has no such file."""
        if name not in self.manifest.files:
            return None
        return (self.directory / name).read_text(encoding="utf-8")

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._rows.execute(sql, values).fetchall()


Rows = TypeVar("Rows", bound=SnapshotRows)


# Finding the snapshot to serve: the pointer's, or the newest one that may take its place.

# A retention sweep may remove the snapshot between reading the pointer and opening it; the pointer
# has moved by then.
_OPEN_ATTEMPTS = 3


def open_published(paths: StorePaths, kind: type[Rows]) -> tuple[Rows, str, str | None]:
    """Open the serving snapshot, or the newest other one that may serve and opens.

    Returns:
        It, its id, and why it is not the one that the pointer names (or None).

    Raises:
        SnapshotMissingError: If nothing was ever published.
        SnapshotCorruptError: If nothing published opens.
    """
    failure: StoreError | None = None
    pointer: Pointer | None = None
    for _ in range(_OPEN_ATTEMPTS):
        try:
            pointer = read_pointer(paths)
            named = pointer.snapshot_id
            return _open(paths, kind, named, pointer.digest), named, None
        except SnapshotMissingError as error:
            if not paths.snapshots.is_dir():
                raise
            failure = error
            break
        except SnapshotCorruptError as error:
            failure = error
    for name in _fallbacks(paths, pointer):
        try:
            return _open(paths, kind, name, name.rpartition("-")[2]), name, str(failure)
        except SnapshotCorruptError:
            continue
    raise failure or SnapshotMissingError(f"nothing has been published in {paths.root}")


def _fallbacks(paths: StorePaths, pointer: Pointer | None) -> list[str]:
    """Return the published snapshots that may serve in another's place, best first.

    Where the pointer can be believed these are the older ones: newer ones were rolled back from, or
    a killed night never pointed at them. A flipped bit in the time of its name leads to no
    snapshot, but the digest still says which one was meant.
    """
    names = sorted(p.name for p in paths.snapshots.glob("*") if is_snapshot_id(p.name))[::-1]
    if pointer is None:
        return names
    meant = [n for n in names if pointer.digest.startswith(n.rpartition("-")[2])]
    newest = meant[0] if meant and pointer.snapshot_id not in meant else pointer.snapshot_id
    return [name for name in names if name <= newest]


def _open(paths: StorePaths, kind: type[Rows], name: str, digest: str) -> Rows:
    """Open a published snapshot that must have this digest, or start with it."""
    reader = kind.open(paths.snapshots / name)
    if not reader.manifest.digest.startswith(digest):
        reader.close()
        raise SnapshotCorruptError(f"snapshot {name} is not the one that was published")
    return reader
