"""The content store: computed results by kind and content key, kept between nights.

A row is found by the hash of its inputs, so that an edited store recomputes only changed rows.
Rows are in immutable Arrow files, the fragments. A fragment counts once the
manifest names it; other files in the directory are left over from a killed night and are adopted
by the run that would compute them again, or removed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.errors import ShardError
from noctuary.core.files import hash_text, remove_tree, write_text
from noctuary.core.types import SILENT, Progress
from noctuary.work.shards import (
    SHARD_ROWS,
    BatchTask,
    RecordBatch,
    Runner,
    Shard,
    count_rows,
    fragment_path,
    list_shards,
    open_table,
    write_hashed,
)

KEY_BYTES = 32  # a SHA-256
KEY, VALUE = "key", "value"  # the columns of a fragment

MANIFEST_FILE = "MANIFEST.json"
FORMAT = formats.CONTENT.version

MERGE_ROWS = SHARD_ROWS // 2  # fragments below are merged by `prune`: nights are many and small
WAVE_SHARDS = 32  # listed at once: their rows lie on disk twice, and a wave waits for its last one
_BLOCK_BYTES = 1 << 20  # read at once for a checksum; more saves nothing
_ROW_BITS = (
    32  # of a handle: the low bits are the row inside its fragment, the high ones its number
)
Keys = Iterable[bytes] | NDArray[np.uint8]  # 32 bytes each, or as rows, shape (n, 32)
Names = NDArray[np.bytes_]  # the same as numpy compares them, shape (n,), of one length

Mask = NDArray[np.bool_]


def rows_of(column: Any) -> NDArray[np.uint8]:
    """Return a pyarrow column of 32-byte binaries, none of them null, as rows; a copy."""
    start = column.offset * KEY_BYTES
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return data[start : start + len(column) * KEY_BYTES].reshape(len(column), KEY_BYTES).copy()


def as_rows(keys: Keys) -> NDArray[np.uint8]:
    """Return keys as rows, uint8, shape (n, 32)."""
    if isinstance(keys, np.ndarray):
        return keys
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)


def _names(keys: Keys) -> Names:
    return np.ascontiguousarray(as_rows(keys)).view(f"S{KEY_BYTES}").ravel()


def _places(known: Names, asked: Names) -> NDArray[np.int64]:
    """Return the first place of each name among sorted ones, -1 where it is not there."""
    if not len(known):
        return np.full(len(asked), -1, dtype=np.int64)
    at = np.searchsorted(known, asked)
    at[at == len(known)] = 0
    return np.where(known[at] == asked, at, -1)


def read_manifest(directory: Path, kind: str) -> list[Shard]:
    """Return the fragments of the manifest; none if it is absent, damaged or old."""
    try:
        value = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
        if value["format"] == FORMAT and value["kind"] == kind:
            # A name only: a manifest cannot point outside its directory.
            named = ((directory / Path(name).name, n, crc) for name, n, crc in value["fragments"])
            return [Shard(path.stem, path, int(n), int(crc)) for path, n, crc in named]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []


def write_manifest(directory: Path, kind: str, listed: Sequence[Shard]) -> None:
    """Write the manifest: from now on the fragments it names count."""
    lines = [[item.path.name, item.rows, item.crc32] for item in listed]
    value = {"format": FORMAT, "kind": kind, "fragments": lines}
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / MANIFEST_FILE, json.dumps(value, indent=1) + "\n")


def store_directory(directory: Path, kind: str) -> Path:
    """Return the directory of a kind's fragments."""
    return directory / hash_text(kind)[:16]


def remove_unnamed(directory: Path, kind: str) -> None:
    """Remove files that the manifest does not name: leftovers of a killed night."""
    named = {listed.path.name for listed in read_manifest(directory, kind)}
    for path in directory.glob("*"):
        if path.name not in {*named, MANIFEST_FILE}:
            path.unlink()


def _checksum(path: Path) -> int:
    crc = 0
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc


class ContentStore:
    """Values by 32-byte key, of one kind (an algorithm and its version); one writer at a time."""

    def __init__(self, directory: Path, kind: str) -> None:
        """Open or make the store of a kind; damaged fragments are removed, and computed again."""
        self.directory = store_directory(directory, kind)
        self.kind = kind
        self._listed: list[Shard] = []
        for fragment in read_manifest(self.directory, kind):
            if _is_whole(fragment):
                self._listed.append(fragment)
            else:
                fragment.path.unlink(missing_ok=True)
        self._index: tuple[Names, NDArray[np.int64]] | None = None

    @property
    def rows(self) -> int:
        """Rows held, those of forgotten keys included until `prune`."""
        return sum(fragment.rows for fragment in self._listed)

    @property
    def fragments(self) -> Sequence[Shard]:
        """The fragments that count, oldest first."""
        return tuple(self._listed)

    def commit(self, fragments: Iterable[Shard]) -> None:
        """Add fragments durably; of several rows of a key the newest counts."""
        # One that is listed already becomes the newest: it may bring back replaced values.
        new = {fragment.key: fragment for fragment in fragments}
        older = [fragment for fragment in self._listed if fragment.key not in new]
        self._replace([*older, *map(_summed, new.values())])

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Return a handle of every key's row until the next write, -1 where it is not held."""
        names, handles = self._read_index()
        at = _places(names, _names(keys))
        found = np.full(len(at), -1, dtype=np.int64)
        found[at >= 0] = handles[at[at >= 0]]
        return found

    def take(self, handles: NDArray[np.int64]) -> Any:
        """Return a copy of the rows of `find`, one pyarrow array in that order; None for none."""
        import pyarrow as pa

        if not len(handles):
            return None
        fragments, rows = handles >> _ROW_BITS, handles & ((1 << _ROW_BITS) - 1)
        order = np.argsort(fragments, kind="stable")
        numbers, starts = np.unique(fragments[order], return_index=True)
        pieces: list[Any] = []
        for number, chosen in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            column = _column(self._listed[number], VALUE)
            pieces.append(column.take(pa.array(rows[chosen])))
        return pa.concat_arrays(pieces).take(pa.array(np.argsort(order)))

    def get(self, keys: Iterable[bytes]) -> dict[bytes, Any]:
        """Return the values of those keys that are held, as Python has them."""
        asked = list(dict.fromkeys(keys))
        handles = self.find(asked)
        held = handles >= 0
        values = self.take(handles[held])
        found = (key for key, is_held in zip(asked, held.tolist(), strict=True) if is_held)
        return {} if values is None else dict(zip(found, values.to_pylist(), strict=True))

    def keys(self) -> NDArray[np.uint8]:
        """Return every key, shape (n, 32), in no order."""
        return np.unique(self._read_index()[0]).view(np.uint8).reshape(-1, KEY_BYTES)

    def values(self) -> list[Any]:
        """Return every value that is held, in the order of `keys`."""
        values = self.take(self.find(self.keys()))
        return [] if values is None else values.to_pylist()

    def put(self, keys: Sequence[bytes], values: Any) -> None:
        """Keep values (bytes, or a pyarrow array) of distinct keys durably, replacing others."""
        if len(keys):
            self.commit([self._write(keys, values)])

    def replace(self, keys: Sequence[bytes], values: Any) -> None:
        """Keep only these rows; see `put`. A kill leaves either the former rows or these."""
        self._replace([_summed(self._write(keys, values))] if len(keys) else [])
        remove_unnamed(self.directory, self.kind)

    def prune(self, live: Keys) -> int:
        """Forget every key that is not in `live`, merge small fragments; return keys forgotten."""
        # Only fragments that hold a forgotten key, or are small, are rewritten; their old files
        # are gone from the directory when this returns, as are files that no manifest names.
        wanted = np.sort(_names(live))
        return self._keep(lambda names: _places(wanted, names) >= 0)

    def forget(self, keys: Keys) -> int:
        """Forget some keys, so that they are computed again; see `prune`."""
        unwanted = np.sort(_names(keys))
        return self._keep(lambda names: _places(unwanted, names) < 0)

    def _write(self, keys: Sequence[bytes], values: Any) -> Shard:
        import pyarrow as pa

        column = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
        rows = pa.table([pa.array(keys, pa.binary(KEY_BYTES)), column], names=[KEY, VALUE])
        return write_hashed(rows, self.directory)

    def _keep(self, choose: Callable[[Names], Mask]) -> int:
        kept: list[Shard] = []
        again: list[tuple[Shard, Mask]] = []
        forgotten = dropped = 0
        for number, fragment in enumerate(self._listed):
            keys = _read_keys(fragment)
            wanted = choose(_names(keys))
            # Those that `find` finds: others repeat a key.
            newest = self.find(keys) == ((number << _ROW_BITS) | np.arange(len(keys)))
            stays = wanted & newest
            forgotten += int((newest & ~wanted).sum())
            dropped += int((~stays).sum())
            if stays.all() and fragment.rows >= MERGE_ROWS:
                kept.append(fragment)
            else:
                again.append((fragment, stays))
        if dropped or len(again) > 1:
            self._replace([*kept, *map(_summed, _rewrite(again, self.directory))])
        remove_unnamed(self.directory, self.kind)
        return forgotten

    def _replace(self, listed: Sequence[Shard]) -> None:
        write_manifest(self.directory, self.kind, listed)
        self._listed = list(listed)
        self._index = None

    def _read_index(self) -> tuple[Names, NDArray[np.int64]]:
        """Return every row's key, sorted, the newest of equal ones first, and its handle."""
        if self._index is None:
            names: list[Names] = [_names(())]
            handles: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
            for number, fragment in reversed(list(enumerate(self._listed))):
                names.append(_names(_read_keys(fragment)))
                handles.append((number << _ROW_BITS) | np.arange(fragment.rows))
            joined = np.concatenate(names)
            order = np.argsort(joined, kind="stable")
            self._index = joined[order], np.concatenate(handles)[order]
        return self._index


def _is_whole(fragment: Shard) -> bool:
    try:
        return _checksum(fragment.path) == fragment.crc32
    except OSError:
        return False


def _summed(fragment: Shard) -> Shard:
    """Return a fragment that is whole on disk, with its checksum."""
    if count_rows(fragment.path) != fragment.rows:
        raise ShardError(
            f"{fragment.path} was written with {fragment.rows} rows and cannot be read: the disk "
            "is full or damaged. Look at the disk and run again."
        )
    return replace(fragment, crc32=_checksum(fragment.path))


def _rewrite(parts: Iterable[tuple[Shard, Mask]], directory: Path) -> Iterator[Shard]:
    """Write the chosen rows of fragments into new ones of at most SHARD_ROWS, one at a time."""
    import pyarrow as pa

    pending: list[Any] = []
    for fragment, stays in parts:
        pending.append(open_table(fragment.path).filter(pa.array(stays)))
        table = pa.concat_tables(pending)
        while table.num_rows >= SHARD_ROWS:
            yield write_hashed(table.slice(0, SHARD_ROWS), directory)
            table = table.slice(SHARD_ROWS)
        pending = [table]
    if pending and pending[0].num_rows:
        yield write_hashed(pending[0], directory)


def _column(fragment: Shard, name: str) -> Any:
    """Return a column over the mapped file; the file is unmapped when the column is gone."""
    import pyarrow as pa

    try:
        column = open_table(fragment.path)[name]
    except (OSError, pa.ArrowInvalid) as error:
        raise ShardError(
            f"{fragment.path} is gone or damaged since it was opened: run again to recompute "
            "its contents"
        ) from error
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _read_keys(fragment: Shard) -> NDArray[np.uint8]:
    return rows_of(_column(fragment, KEY))


class Filled(NamedTuple):
    """How many distinct keys were computed now, and how many were known."""

    computed: int
    reused: int


def fill(
    store: ContentStore,
    batches: Iterable[RecordBatch],  # with the 32-byte column `key` and the task's columns
    task: BatchTask,  # returns a batch of `key` and `value` for each
    runner: Runner,
    shards_dir: Path,
    progress: Progress = SILENT,
    *,
    total: int = 0,  # rows in all batches; 0 if unknown: progress is then reported per wave
    shard_rows: int = SHARD_ROWS,
) -> Filled:
    """Compute the value of every key that the store does not hold; each distinct key once."""
    # Every wave is durable when it ends, so that a killed night goes on with the wave it was in.
    filling = _Filling(store, progress, total)
    remove_tree(shards_dir)
    missing = filling.read_missing(batches)
    shards = list_shards(missing, shards_dir, f"{task.name}:{store.kind}", shard_rows)
    try:
        while wave := list(islice(shards, WAVE_SHARDS)):
            filling.begin_wave(wave)
            store.commit(runner.run(task, wave, store.directory, filling))
            for shard in wave:
                shard.path.unlink(missing_ok=True)
    finally:
        remove_tree(shards_dir)
    return Filled(filling.computed, filling.reused)


class _Filling:
    """Counts distinct keys, and is a progress over all waves, made of that of each."""

    def __init__(self, store: ContentStore, progress: Progress, total: int) -> None:
        self.computed = self.adopted = 0
        self._held = set[int]()  # rows of the store that were asked for
        self._store, self._progress, self._total = store, progress, total
        self._rows = self._behind = 0  # read so far, and those of them done before this wave

    def read_missing(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Yield rows whose key is new, each key once; new keys are remembered (110 bytes each)."""
        seen: set[bytes] = set()
        earlier = len(self._store.fragments) << _ROW_BITS  # what a wave adds comes behind
        for batch in batches:
            keys: list[bytes] = batch.column(KEY).to_pylist()
            handles = self._store.find(keys)
            self._held.update(handles[(handles >= 0) & (handles < earlier)].tolist())
            fresh = {keys[row]: row for row in np.flatnonzero(handles < 0)[::-1].tolist()}
            chosen = sorted(fresh[key] for key in fresh.keys() - seen)
            seen |= fresh.keys()
            self.computed += len(chosen)
            self._rows += batch.num_rows
            if chosen:
                yield batch.take(np.array(chosen))

    @property
    def reused(self) -> int:
        """Distinct keys that were known."""
        return len(self._held) + self.adopted

    def begin_wave(self, wave: Sequence[Shard]) -> None:
        """Adopt complete but uncommitted results of a killed night."""
        self._behind = self._rows - sum(shard.rows for shard in wave)
        for shard in wave:
            path = fragment_path(self._store.directory, shard.key)
            if path.exists() and count_rows(path) is not None:
                self.computed -= shard.rows
                self.adopted += shard.rows

    def update(self, task: str, done: int, total: int) -> None:
        if self._total:
            done, total = min(self._behind + done, self._total), self._total
        self._progress.update(task, done, total)
