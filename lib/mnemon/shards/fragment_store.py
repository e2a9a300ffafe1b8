"""Results by content key, kept between nights in immutable fragments under one manifest.

What belongs here: which fragments count, finding rows by key, forgetting keys, merging small
fragments. What does not: making fragments (the runners).

The durable memory of the heavy steps: a row is found by the hash of what it was made from, so that
an edited store recomputes only what is new. A fragment counts from the moment the manifest names
it; whatever else lies in the directory is left over from a killed night and is taken over by the
run that makes it again, or removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon.files import write_text
from mnemon.hashing import hash_text
from mnemon.shards.files import SHARD_ROWS, open_table, write_table
from mnemon.shards.keys import KEY_BYTES, SortedKeys, as_rows
from mnemon.shards.task import Fragment, RecordBatch

KEY, VALUE = "key", "value"
MANIFEST_FILE = "MANIFEST.json"
FORMAT = 1

MERGE_ROWS = SHARD_ROWS // 2
"""Fragments below this are merged by `prune`: a year of nights with ten new memories each would
otherwise be 365 files."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where rows lie: of the sorted keys, the fragment and the row inside it."""

    keys: SortedKeys
    fragments: NDArray[np.int32]
    rows: NDArray[np.int32]


class FragmentStore:
    """Values by 32-byte key, of one kind; one writer at a time.

    A kind names the algorithm and its version or fingerprint, as in the memo.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        """Open or make the store of a kind below a directory; damaged fragments are left out."""
        self.directory = directory / hash_text(kind)[:16]
        self.kind = kind
        self._fragments: list[Fragment] = []
        self._tables: list[Any] = []
        for name, rows in _read_manifest(self.directory, kind):
            self._add(Fragment(name.removesuffix(".arrow"), self.directory / name, rows))
        self._place: _Place | None = None

    @property
    def rows(self) -> int:
        """Rows held, those of forgotten keys included until `prune`."""
        return sum(fragment.rows for fragment in self._fragments)

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments that count, oldest first."""
        return tuple(self._fragments)

    def commit(self, fragments: Iterable[Fragment]) -> None:
        """Let fragments count: durable when this returns. A key that is held already stays."""
        known = {fragment.key for fragment in self._fragments}
        for fragment in fragments:
            if fragment.key not in known:
                self._add(fragment)
        self._write_manifest()
        self._place = None

    def find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """Return a handle of every key's row for `take`, -1 where it is not held; shape (n,)."""
        place = self._placed()
        at = place.keys.find(as_rows(keys))
        found = np.full(len(keys), -1, dtype=np.int64)
        held = np.flatnonzero(at >= 0)
        fragments, rows = place.fragments[at[held]], place.rows[at[held]]
        found[held] = (fragments.astype(np.int64) << 32) | rows
        return found

    def take(self, handles: NDArray[np.int64]) -> Any:
        """Return the values of rows that `find` found, as one pyarrow array in that order."""
        import pyarrow as pa

        fragments, rows = handles >> 32, handles & 0xFFFFFFFF
        order = np.argsort(fragments, kind="stable")
        pieces: list[Any] = []
        for number in np.unique(fragments).tolist():
            chosen = order[fragments[order] == number]
            column = self._tables[number][VALUE].combine_chunks()
            pieces.append(column.take(pa.array(rows[chosen])))
        if not pieces:
            return None
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(back))

    def prune(self, live: Iterator[bytes] | Iterable[bytes]) -> int:
        """Forget every key that is not in `live` and merge small fragments; return keys forgotten.

        Only fragments that hold a forgotten key, or are small, are written again; what they held
        is gone from the directory when this returns.
        """
        wanted = SortedKeys(as_rows(live))
        kept: list[Fragment] = []
        again: list[RecordBatch] = []
        forgotten = 0
        for fragment, table in zip(self._fragments, self._tables, strict=True):
            stays = wanted.find(_keys_of(table)) >= 0
            if stays.all() and fragment.rows >= MERGE_ROWS:
                kept.append(fragment)
                continue
            forgotten += int((~stays).sum())
            again.append(table.filter(stays.tolist()))
        small = [f for f in self._fragments if f not in kept]
        if len(small) <= 1 and not forgotten:
            return 0
        self._fragments, self._tables = [], []
        for fragment in kept:
            self._add(fragment)
        for fragment in _rewrite(again, self.directory):
            self._add(fragment)
        self._write_manifest()
        self._place = None
        self.sweep()
        return forgotten

    def sweep(self) -> None:
        """Remove files that no manifest names."""
        named = {fragment.path.name for fragment in self._fragments} | {MANIFEST_FILE}
        for path in self.directory.glob("*"):
            if path.name not in named:
                path.unlink()

    def _add(self, fragment: Fragment) -> None:
        import pyarrow as pa

        try:
            table = open_table(fragment.path)
        except (OSError, pa.ArrowInvalid):
            return
        if table.num_rows == fragment.rows:
            self._fragments.append(fragment)
            self._tables.append(table)

    def _placed(self) -> _Place:
        if self._place is None:
            keys = [_keys_of(table) for table in self._tables]
            held = SortedKeys(np.concatenate([*keys, np.empty((0, KEY_BYTES), dtype=np.uint8)]))
            of = np.repeat(np.arange(len(keys), dtype=np.int32), [len(k) for k in keys])
            rows = np.concatenate([*(np.arange(len(k)) for k in keys), np.empty(0, np.int64)])
            self._place = _Place(held, of[held.order], rows[held.order].astype(np.int32))
        return self._place

    def _write_manifest(self) -> None:
        listed = [[fragment.path.name, fragment.rows] for fragment in self._fragments]
        told = {"format": FORMAT, "kind": self.kind, "fragments": listed}
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(self.directory / MANIFEST_FILE, json.dumps(told, indent=1) + "\n")


def _read_manifest(directory: Path, kind: str) -> list[tuple[str, int]]:
    try:
        told = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
        if told["format"] == FORMAT and told["kind"] == kind:
            return [(str(name), int(rows)) for name, rows in told["fragments"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []


def _rewrite(tables: Sequence[Any], directory: Path) -> Iterator[Fragment]:
    import pyarrow as pa

    if not tables:
        return
    table = pa.concat_tables(tables)
    for start in range(0, table.num_rows, SHARD_ROWS):
        piece = table.slice(start, SHARD_ROWS).combine_chunks()
        key = hash_text("merged", _keys_of(piece).tobytes().hex())[:32]
        path = directory / f"{key}.arrow"
        yield Fragment(key, path, write_table(path, piece.to_batches()))


def _keys_of(table: Any) -> NDArray[np.uint8]:
    column = table[KEY].combine_chunks()
    start = column.offset * KEY_BYTES
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return data[start : start + len(column) * KEY_BYTES].reshape(len(column), KEY_BYTES)
