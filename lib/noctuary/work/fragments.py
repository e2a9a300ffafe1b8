"""Results by content key, kept between nights in immutable fragments."""

from __future__ import annotations

import hashlib
import importlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import ShardError
from noctuary.core.files import hash_text, remove_tree, replacement, write_text
from noctuary.core.types import SILENT, Progress

# pyarrow's functions on columns, where a type checker can see them.


def arrow_compute() -> Any:
    """Return `pyarrow.compute`, which makes its functions when it is imported."""
    return importlib.import_module("pyarrow.compute")


# The seam between heavy steps and whoever runs them: nouns and protocols only.


RecordBatch = Any
"""A pyarrow.RecordBatch; pyarrow ships no usable types and is imported where it is used."""

BatchFunction = Callable[[RecordBatch], RecordBatch]
"""Pure: equal batches give equal results, wherever, whenever and after whatever it is called."""


class BatchTask(Protocol):
    """A heavy step, cut so that a row's result depends on nothing but that row's batch.

    Instances travel to other processes and machines: frozen dataclasses of paths, numbers and
    texts, importable by name, picklable, without open files or models.
    """

    @property
    def name(self) -> str:
        """What it is called in progress and errors, in a file name's characters."""
        ...

    @property
    def row_ms(self) -> float:
        """About how long one row takes on one core; decides whether other processes pay."""
        ...

    def open(self, threads: int) -> BatchFunction:
        """Return the function; called once per process, so that models are loaded once.

        Args:
            threads: Threads that it may use at once, at least 1.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows that one call works on: an Arrow IPC file.

    Attributes:
        key: 32 hex digits, of the task and of the rows: names the fragment that it becomes.
        path: Where the rows lie; every worker must be able to read it.
        rows: How many.
    """

    key: str
    path: Path
    rows: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a shard became: an Arrow IPC file, whole or absent.

    Attributes:
        key: Of its shard.
        path: Where it lies, `<key>.arrow`.
        rows: How many rows it holds; not always those of the shard.
    """

    key: str
    path: Path
    rows: int


VECTOR = "vector"
"""The column of a LanceDB table that an index is of."""

IndexKind = Literal["IVF_RQ", "IVF_SQ"]


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An approximate index of a table's vectors, by cosine.

    Attributes:
        kind: Its name in Lance.
        partitions: Cells of the coarse quantizer, at least 1.
        bits: Of a dimension's code, 1 to 8; IVF_RQ only.
    """

    kind: IndexKind
    partitions: int
    bits: int = 1


class Runner(Protocol):
    """Whoever runs a task over shards, and tends tables. No other code knows which one does."""

    def run(
        self,
        task: BatchTask,
        shards: Sequence[Shard],
        directory: Path,
        progress: Progress = SILENT,
    ) -> list[Fragment]:
        """Write the fragment of every shard and return them, in the order of the shards.

        A fragment that is there already is taken as it is, so that a killed run goes on where it
        was. A worker that dies is replaced and its shard run again: nothing is written twice,
        because a fragment is named by its shard's key and put in place whole.

        Args:
            task: What to do.
            shards: With distinct keys.
            directory: Where fragments are written; made where absent.
            progress: Told of rows done, under the task's name.

        Raises:
            ShardError: A shard failed, or its worker died, again and again; what the others made
                stays.
        """
        ...

    def build_index(self, table: Any, spec: IndexSpec) -> None:
        """Index the vectors, in place of any index that they have; all rows are covered.

        Args:
            table: A LanceDB handle; at the latest version afterwards.
            spec: What to build.

        Raises:
            OSError, RuntimeError, ValueError: As LanceDB says it.
        """
        ...

    def compact(self, table: Any, keep_versions: timedelta) -> None:
        """Merge small files, let the index cover every row, remove versions older than that.

        Args:
            table: A LanceDB handle; at the latest version afterwards.
            keep_versions: How long replaced versions stay.

        Raises:
            OSError, RuntimeError, ValueError: As LanceDB says it.
        """
        ...

    def close(self) -> None:
        """End what the runner started; it may be closed twice, and used again after."""
        ...


# 32-byte keys as arrays: sorting them and finding some among them. No file is opened here.


KEY_BYTES = 32
"""A SHA-256."""

Keys = Iterable[bytes] | NDArray[np.uint8]
"""Digests of 32 bytes, or the same as rows, shape (n, 32)."""


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


class SortedKeys:
    """Keys by their first 128 bits, which tell any two SHA-256 apart.

    Attributes:
        order: Which of the given keys stands at each place, shape (n,); equal keys keep their
            order.
    """

    def __init__(self, keys: NDArray[np.uint8]) -> None:
        high, low = _half(keys, 0), _half(keys, 1)
        self.order: NDArray[np.int64] = np.lexsort((low, high))
        self._high, self._low = high[self.order], low[self.order]

    def find(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the first place of each key, -1 where it is not there; shape (len(keys),)."""
        high, low = _half(keys, 0), _half(keys, 1)
        at = np.searchsorted(self._high, high).astype(np.int64)
        found = np.full(len(keys), -1, dtype=np.int64)
        asked = np.arange(len(keys))
        while len(asked):
            asked = asked[at[asked] < len(self._high)]
            asked = asked[self._high[at[asked]] == high[asked]]
            same = self._low[at[asked]] == low[asked]
            found[asked[same]] = at[asked[same]]
            asked = asked[~same]
            at[asked] += 1
        return found


def _half(keys: NDArray[np.uint8], half: int) -> NDArray[np.uint64]:
    part = np.ascontiguousarray(keys[:, 8 * half : 8 * half + 8])
    return part.view(">u8").ravel().astype(np.uint64)


# The manifest of a fragment store: which fragments count, and what their bytes must be.


MANIFEST_FILE = "MANIFEST.json"
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Listed:
    """A fragment that counts.

    Attributes:
        fragment: Where it lies and how many rows it holds.
        crc32: Of its file's bytes.
    """

    fragment: Fragment
    crc32: int


def read_manifest(directory: Path, kind: str) -> list[Listed]:
    """Return what the manifest names, in its order; nothing where it is absent, damaged or old."""
    try:
        told = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
        if told["format"] == FORMAT and told["kind"] == kind:
            return [_read_line(directory, *line) for line in told["fragments"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []


def write_manifest(directory: Path, kind: str, listed: Sequence[Listed]) -> None:
    """Put a manifest in place: what it names counts from now on."""
    lines = [[item.fragment.path.name, item.fragment.rows, item.crc32] for item in listed]
    told = {"format": FORMAT, "kind": kind, "fragments": lines}
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / MANIFEST_FILE, json.dumps(told, indent=1) + "\n")


def store_directory(directory: Path, kind: str) -> Path:
    """Return where the fragments of a kind lie below a directory."""
    return directory / hash_text(kind)[:16]


def remove_unnamed(directory: Path, kind: str) -> None:
    """Remove what the manifest does not name: a killed night left it, and it may hold texts."""
    named = {listed.fragment.path.name for listed in read_manifest(directory, kind)}
    for path in directory.glob("*"):
        if path.name not in {*named, MANIFEST_FILE}:
            path.unlink()


def _read_line(directory: Path, name: str, rows: int, crc32: int) -> Listed:
    # A name only: a manifest cannot point outside its directory.
    path = directory / Path(name).name
    return Listed(Fragment(path.stem, path, int(rows)), int(crc32))


# Shards and fragments on disk: Arrow IPC files, whole or absent.


SHARD_ROWS = 8_192
"""Rows of a shard: more lose more work to a kill and need more memory in every worker (10 MB of
text, 13 MB of vectors at 384 dimensions), fewer make more files and more calls."""

BATCH_ROWS = 1_024
"""Rows of one call inside a shard: bounds what a worker holds beside the shard's result."""

_BLOCK_BYTES = 1 << 20
"""Read at once for a checksum; more saves nothing."""


def list_shards(
    batches: Iterable[RecordBatch], directory: Path, salt: str, rows: int = SHARD_ROWS
) -> Iterator[Shard]:
    """Write rows as shards of at most so many rows and yield them; equal input, equal shards.

    Args:
        batches: Of one schema, of any length.
        directory: Where the shards go; made where absent.
        salt: Says which task, of which version, works on them; part of every key.
        rows: Most rows of a shard, at least 1.
    """
    import pyarrow as pa

    held: list[RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, rows - count)
            held.append(piece)
            count += piece.num_rows
            start += piece.num_rows
            if count == rows:
                yield _write_shard(pa.Table.from_batches(held), directory, salt)
                held, count = [], 0
    if count:
        yield _write_shard(pa.Table.from_batches(held), directory, salt)


def read_batches(path: Path, rows: int = BATCH_ROWS) -> Iterator[RecordBatch]:
    """Yield the rows of a shard or fragment, at most so many at once, memory-mapped."""
    yield from open_table(path).to_batches(max_chunksize=rows)


def open_table(path: Path) -> Any:
    """Return a shard or fragment as a pyarrow.Table over the mapped file; nothing is copied.

    Raises:
        OSError, pyarrow.ArrowInvalid: There is none, or its frame is damaged.
    """
    import pyarrow as pa

    with pa.memory_map(str(path), "r") as source:
        return pa.ipc.open_file(source).read_all()


def count_rows(path: Path) -> int | None:
    """Return the rows of a fragment; None where it is absent or its frame is damaged."""
    import pyarrow as pa

    try:
        table = open_table(path)
        # What a killed night left has no checksum: offsets that point outside would end a reader.
        table.validate(full=True)
    except (OSError, pa.ArrowInvalid):
        return None
    return int(table.num_rows)


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file's bytes.

    Raises:
        OSError: It cannot be read.
    """
    crc = 0
    with path.open("rb") as handle:
        while block := handle.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc


def fragment_path(directory: Path, key: str) -> Path:
    """Return where the fragment of a shard lies."""
    return directory / f"{key}.arrow"


def write_table(path: Path, batches: Sequence[RecordBatch]) -> int:
    """Write batches of one schema durably as one and return the rows; at least one batch.

    One batch, because rows can be taken out of it in any order without putting it together first.
    """
    import pyarrow as pa

    table = pa.Table.from_batches(batches).combine_chunks()
    with (
        replacement(path) as tmp,
        pa.OSFile(str(tmp), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return int(table.num_rows)


def _write_shard(table: Any, directory: Path, salt: str) -> Shard:
    digest = hashlib.sha256(salt.encode("utf-8"))
    batches = table.combine_chunks().to_batches()
    for batch in batches:
        digest.update(batch.serialize())
    key = digest.hexdigest()[:32]
    path = directory / f"{key}.rows.arrow"
    write_table(path, batches)
    return Shard(key, path, table.num_rows)


# Results by content key, kept between nights in immutable fragments under one manifest.
#
# The durable memory of the heavy steps: a row is found by the hash of what it was made from, so
# that an edited store recomputes only what is new. A fragment counts from the moment the manifest
# names it; whatever else lies in the directory is left over from a killed night and is taken over
# by the run that makes it again, or removed.


KEY, VALUE = "key", "value"

MERGE_ROWS = SHARD_ROWS // 2
"""Fragments below this are merged by `prune`: a year of nights with ten new memories each would
otherwise be 365 files."""

_ROW_BITS = 32
"""Of a handle: the row inside its fragment; the fragment's number stands above."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where rows lie: of the sorted keys, the fragment and the row inside it."""

    keys: SortedKeys
    fragments: NDArray[np.int32]
    rows: NDArray[np.int32]


class FragmentStore:
    """Values by 32-byte key, of one kind; one writer at a time.

    A kind names the algorithm and its version or fingerprint, as in the memo. No file stays open
    or mapped between calls.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        """Open or make the store of a kind below a directory.

        Fragments that are not what the manifest says are removed: their keys are computed again.
        """
        self.directory = store_directory(directory, kind)
        self.kind = kind
        self._listed: list[Listed] = []
        for listed in read_manifest(self.directory, kind):
            if _is_whole(listed):
                self._listed.append(listed)
            else:
                listed.fragment.path.unlink(missing_ok=True)
        self._place: _Place | None = None

    @property
    def rows(self) -> int:
        """Rows held, those of forgotten keys included until `prune`."""
        return sum(listed.fragment.rows for listed in self._listed)

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments that count, oldest first."""
        return tuple(listed.fragment for listed in self._listed)

    def commit(self, fragments: Iterable[Fragment]) -> None:
        """Let fragments count: durable when this returns. A key that is held already stays.

        Raises:
            ShardError: One is not there, or cannot be read.
        """
        known = {fragment.key for fragment in self.fragments}
        new = [fragment for fragment in fragments if fragment.key not in known]
        self._replace([*self._listed, *map(_listed, new)])

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Return a handle of every key's row for `take`, -1 where it is not held; shape (n,).

        A handle holds until the next `commit`, `prune` or `forget`.
        """
        place = self._placed()
        at = place.keys.find(as_rows(keys))
        found = np.full(len(at), -1, dtype=np.int64)
        held = np.flatnonzero(at >= 0)
        fragments, rows = place.fragments[at[held]], place.rows[at[held]]
        found[held] = (fragments.astype(np.int64) << _ROW_BITS) | rows
        return found

    def take(self, handles: NDArray[np.int64]) -> Any:
        """Return the values of rows that `find` found, as one pyarrow array in that order.

        It is a copy; None where there are no handles.

        Raises:
            ShardError: A fragment is gone.
        """
        import pyarrow as pa

        if not len(handles):
            return None
        fragments, rows = handles >> _ROW_BITS, handles & ((1 << _ROW_BITS) - 1)
        order = np.argsort(fragments, kind="stable")
        numbers, starts = np.unique(fragments[order], return_index=True)
        pieces: list[Any] = []
        for number, chosen in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            column = _column(self._listed[number].fragment, VALUE)
            pieces.append(column.take(pa.array(rows[chosen])))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(back))

    def prune(self, live: Keys) -> int:
        """Forget every key that is not in `live` and merge small fragments; return keys forgotten.

        Only fragments that hold a forgotten key, or are small, are written again; what they held
        is gone from the directory when this returns, with whatever no manifest names.
        """
        wanted = SortedKeys(as_rows(live))
        return self._keep(lambda keys: wanted.find(keys) >= 0)

    def forget(self, keys: Keys) -> int:
        """Forget some keys, so that they are computed again; see `prune`."""
        unwanted = SortedKeys(as_rows(keys))
        return self._keep(lambda held: unwanted.find(held) < 0)

    def _keep(self, choose: Callable[[NDArray[np.uint8]], Mask]) -> int:
        kept: list[Listed] = []
        again: list[tuple[Fragment, Mask]] = []
        forgotten = dropped = 0
        for number, listed in enumerate(self._listed):
            keys = _read_keys(listed.fragment)
            wanted = choose(keys)
            stays = wanted & self._is_found_in(number, keys)
            forgotten += int((~wanted).sum())
            dropped += int((~stays).sum())
            if stays.all() and listed.fragment.rows >= MERGE_ROWS:
                kept.append(listed)
            else:
                again.append((listed.fragment, stays))
        if dropped or len(again) > 1:
            self._replace([*kept, *map(_listed, _rewrite(again, self.directory))])
        remove_unnamed(self.directory, self.kind)
        return forgotten

    def _is_found_in(self, number: int, keys: NDArray[np.uint8]) -> Mask:
        """Tell which rows of a fragment are those that `find` finds: others repeat a key."""
        return self.find(keys) == ((number << _ROW_BITS) | np.arange(len(keys)))

    def _replace(self, listed: Sequence[Listed]) -> None:
        write_manifest(self.directory, self.kind, listed)
        self._listed = list(listed)
        self._place = None

    def _placed(self) -> _Place:
        if self._place is None:
            keys = [_read_keys(fragment) for fragment in self.fragments]
            held = SortedKeys(np.concatenate([*keys, np.empty((0, KEY_BYTES), dtype=np.uint8)]))
            of = np.repeat(np.arange(len(keys), dtype=np.int32), [len(k) for k in keys])
            rows = np.concatenate([*(np.arange(len(k)) for k in keys), np.empty(0, np.int64)])
            self._place = _Place(held, of[held.order], rows[held.order].astype(np.int32))
        return self._place


def _is_whole(listed: Listed) -> bool:
    try:
        return checksum(listed.fragment.path) == listed.crc32
    except OSError:
        return False


def _listed(fragment: Fragment) -> Listed:
    if count_rows(fragment.path) != fragment.rows:
        raise ShardError(
            f"{fragment.path} was written with {fragment.rows} rows and cannot be read: the disk "
            "is full or damaged. Look at the disk and run again."
        )
    return Listed(fragment, checksum(fragment.path))


def _rewrite(parts: Iterable[tuple[Fragment, Mask]], directory: Path) -> Iterator[Fragment]:
    """Write the chosen rows of fragments into new ones of at most SHARD_ROWS, one at a time."""
    import pyarrow as pa

    pending: list[Any] = []
    for fragment, stays in parts:
        pending.append(open_table(fragment.path).filter(pa.array(stays)))
        table = pa.concat_tables(pending)
        while table.num_rows >= SHARD_ROWS:
            yield _write_merged(table.slice(0, SHARD_ROWS), directory)
            table = table.slice(SHARD_ROWS)
        pending = [table]
    if pending and pending[0].num_rows:
        yield _write_merged(pending[0], directory)


def _write_merged(table: Any, directory: Path) -> Fragment:
    piece = table.combine_chunks()
    # Named by what it holds and not by the keys alone: its values may be other ones, made again.
    digest = hashlib.sha256(b"merged")
    for batch in piece.to_batches():
        digest.update(batch.serialize())
    key = digest.hexdigest()[:32]
    path = fragment_path(directory, key)
    return Fragment(key, path, write_table(path, piece.to_batches()))


def _column(fragment: Fragment, name: str) -> Any:
    """Return a column over the mapped file; the file is unmapped when the column is gone."""
    import pyarrow as pa

    try:
        column = open_table(fragment.path)[name]
    except (OSError, pa.ArrowInvalid) as error:
        raise ShardError(
            f"{fragment.path} is gone or damaged since it was opened: run again, what it held is "
            "computed again"
        ) from error
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _read_keys(fragment: Fragment) -> NDArray[np.uint8]:
    """Return a fragment's keys as rows, copied; shape (rows, 32)."""
    return rows_of(_column(fragment, KEY))


# Bring a fragment store in step with what tonight needs: only what is missing is computed.


WAVE_SHARDS = 32
"""Shards listed at once: their rows lie on disk twice meanwhile, and a wave waits for its last
shard."""


class Filled(NamedTuple):
    """What a filling did: distinct keys computed now, and those that were known."""

    computed: int
    reused: int


def fill(
    store: FragmentStore,
    batches: Iterable[RecordBatch],
    task: BatchTask,
    runner: Runner,
    shards_dir: Path,
    progress: Progress = SILENT,
    *,
    total: int = 0,
    shard_rows: int = SHARD_ROWS,
) -> Filled:
    """Compute the value of every key that the store does not hold; each distinct key once.

    Every wave is durable when it ends, so that a killed night goes on with the wave it was in.

    Args:
        store: Of the task's kind.
        batches: Rows with the 32-byte column `key` and whatever the task reads.
        task: Gives a batch of `key` and `value` for a batch of rows.
        runner: Who runs it.
        shards_dir: For the shards' files, removed at the end.
        progress: Told of rows done, those that were known among them.
        total: Rows in all batches; 0 where it is not known, which tells every wave's own.
        shard_rows: Most rows of a shard.

    Raises:
        ShardError: The task failed, or its workers died again and again; what was committed stays.
        NoctuaryError: That the task raised.
    """
    counts = _Counts()
    remove_tree(shards_dir)
    missing = _missing(store, batches, counts)
    shards = list_shards(missing, shards_dir, f"{task.name}:{store.kind}", shard_rows)
    try:
        while wave := list(islice(shards, WAVE_SHARDS)):
            behind = counts.rows - sum(shard.rows for shard in wave)
            counts.take_over(_taken(store, wave))
            told = _FromStart(progress, behind, total) if total else progress
            store.commit(runner.run(task, wave, store.directory, told))
            for shard in wave:
                shard.path.unlink(missing_ok=True)
    finally:
        remove_tree(shards_dir)
    return Filled(counts.computed, counts.reused)


@dataclass(slots=True)
class _Counts:
    """Distinct keys computed and reused, and rows read so far."""

    computed: int = 0
    reused: int = 0
    rows: int = 0

    def take_over(self, rows: int) -> None:
        """Count rows that a killed night computed, and nobody committed, as known."""
        self.computed -= rows
        self.reused += rows


@dataclass(frozen=True, slots=True)
class _FromStart:
    """A progress over all waves, made of that of one.

    Attributes:
        progress: Who is told.
        behind: Rows done before this wave, up to those that were listed with it.
        total: Rows in all.
    """

    progress: Progress
    behind: int
    total: int

    def update(self, task: str, done: int, total: int) -> None:
        """Pass on what a wave reports."""
        self.progress.update(task, min(self.behind + done, self.total), self.total)


def _taken(store: FragmentStore, wave: Sequence[Shard]) -> int:
    """Return the rows of shards whose fragment a killed night left, whole."""
    paths = [(fragment_path(store.directory, shard.key), shard.rows) for shard in wave]
    return sum(rows for path, rows in paths if path.exists() and count_rows(path) is not None)


def _missing(
    store: FragmentStore, batches: Iterable[RecordBatch], counts: _Counts
) -> Iterator[RecordBatch]:
    """Yield the rows whose key is new, each key once; every key is remembered (110 bytes each)."""
    seen: set[bytes] = set()
    for batch in batches:
        keys: list[bytes] = batch.column(KEY).to_pylist()
        held = store.find(keys) >= 0
        chosen: list[int] = []
        for row, key in enumerate(keys):
            if key in seen:
                continue
            seen.add(key)
            if held[row]:
                counts.reused += 1
            else:
                counts.computed += 1
                chosen.append(row)
        counts.rows += batch.num_rows
        if chosen:
            yield batch.take(np.array(chosen))
