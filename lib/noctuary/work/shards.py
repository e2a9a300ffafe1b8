"""Shards: the interface between heavy tasks and their runners, and the files of both."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

from noctuary.core.files import replacement
from noctuary.core.types import SILENT, Progress


def arrow_compute() -> Any:
    """Return `pyarrow.compute`, which makes its functions when it is imported."""
    return importlib.import_module("pyarrow.compute")


RecordBatch = Any  # a pyarrow.RecordBatch: pyarrow ships no usable types
BatchFunction = Callable[[RecordBatch], RecordBatch]  # pure, wherever and whenever it is called


class BatchTask(Protocol):
    """A heavy step, cut so that a row's result depends on nothing but that row's batch."""

    # Instances travel to other processes and machines: frozen dataclasses of paths, numbers and
    # texts, importable by name, picklable, without open files or models.
    @property
    def name(self) -> str:
        """Its name in progress and errors, in a file name's characters."""
        ...

    @property
    def row_ms(self) -> float:
        """About how long one row takes on one core; decides whether other processes pay."""
        ...

    def open(self, threads: int) -> BatchFunction:
        """Return the function; called once per process, so that models are loaded once."""
        ...


@dataclass(frozen=True, slots=True)
class Shard:
    """An Arrow IPC file of rows for one call; or of its results, a fragment."""

    key: str  # 32 hex digits of the task and the rows; a fragment has that of its shard
    path: Path
    rows: int  # of a fragment not always those of its shard
    crc32: int = 0  # of the file, where a content store lists it


VECTOR = "vector"  # the column of a LanceDB table that an index is of

IndexKind = Literal["IVF_RQ", "IVF_SQ"]


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An approximate index of a table's vectors, by cosine."""

    kind: IndexKind  # its name in Lance
    partitions: int  # cells of the coarse quantizer, at least 1
    bits: int = 1  # of a dimension's code, 1 to 8; IVF_RQ only


class Runner(Protocol):
    """Runs a task over shards and maintains tables; other code does not know which one it is."""

    def run(
        self, task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress = SILENT
    ) -> list[Shard]:
        """Write the fragment of every shard and return them in order, or raise a ShardError."""
        # One that is there is taken as it is, so that a killed run goes on where it was; a worker
        # that dies is replaced. A fragment is named by its shard's key: nothing is written twice.
        ...

    def build_index(self, table: Any, spec: IndexSpec) -> None:
        """Index the vectors, in place of any index that they have; all rows are covered."""
        ...

    def compact(self, table: Any, keep_versions: timedelta) -> None:
        """Merge small files, let the index cover every row, remove versions older than that."""
        ...

    def close(self) -> None:
        """Stop everything the runner started; it may be closed twice, and used again after."""
        ...


SHARD_ROWS = 8_192
"""Rows of a shard: more lose more work to a kill and need more memory in every worker (10 MB of
text, 13 MB of vectors at 384 dimensions), fewer make more files and more calls."""

BATCH_ROWS = 1_024  # of one call inside a shard: bounds a worker's memory besides the result


def list_shards(
    batches: Iterable[RecordBatch], directory: Path, salt: str, rows: int = SHARD_ROWS
) -> Iterator[Shard]:
    """Write rows as shards of at most so many rows and yield them; equal input, equal shards."""
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
                yield write_hashed(pa.Table.from_batches(held), directory, salt, ".rows.arrow")
                held, count = [], 0
    if count:
        yield write_hashed(pa.Table.from_batches(held), directory, salt, ".rows.arrow")


def read_batches(path: Path, rows: int = BATCH_ROWS) -> Iterator[RecordBatch]:
    """Yield the rows of a shard or fragment, at most so many at once, memory-mapped."""
    yield from open_table(path).to_batches(max_chunksize=rows)


def open_table(path: Path) -> Any:
    """Return a shard or fragment as a pyarrow.Table over the mapped file; nothing is copied."""
    import pyarrow as pa

    with pa.memory_map(str(path), "r") as source:
        return pa.ipc.open_file(source).read_all()


def count_rows(path: Path) -> int | None:
    """Return the rows of a fragment; None where it is absent or its frame is damaged."""
    import pyarrow as pa

    try:
        table = open_table(path)
        # Files of a killed night have no checksum: bad offsets would crash a reader.
        table.validate(full=True)
    except (OSError, pa.ArrowInvalid):
        return None
    return int(table.num_rows)


def fragment_path(directory: Path, key: str) -> Path:
    """Return the path of a shard's fragment."""
    return directory / f"{key}.arrow"


def write_table(path: Path, batches: Sequence[RecordBatch]) -> int:
    """Write batches of one schema durably as one and return the rows; at least one batch."""
    # One batch, because rows can be taken out of it in any order without putting it together first.
    import pyarrow as pa

    table = pa.Table.from_batches(batches).combine_chunks()
    with (
        replacement(path) as tmp,
        pa.OSFile(str(tmp), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return int(table.num_rows)


def write_hashed(table: Any, directory: Path, salt: str = "", ending: str = ".arrow") -> Shard:
    """Write a table under a name that is the hash of its rows, and of a salt."""
    digest = hashlib.sha256(salt.encode("utf-8"))
    batches = table.combine_chunks().to_batches()
    for batch in batches:
        digest.update(batch.serialize())
    key = digest.hexdigest()[:32]
    path = directory / f"{key}{ending}"
    return Shard(key, path, write_table(path, batches))
