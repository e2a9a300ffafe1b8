"""Shards and fragments on disk: Arrow IPC files, whole or absent.

What belongs here: cutting rows into shards, reading them, writing a fragment. What does not: who
calls it where (the runners), what becomes of fragments (`fragment_store`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mnemon.files import replacement
from mnemon.shards.task import BatchFunction, Fragment, RecordBatch, Shard

SHARD_ROWS = 8_192
"""Rows of a shard: more lose more work to a kill and need more memory in every worker (10 MB of
text, 13 MB of vectors at 384 dimensions), fewer make more files and more calls."""

BATCH_ROWS = 1_024
"""Rows of one call inside a shard: bounds what a worker holds beside the shard's result."""


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
    """Return a shard or fragment as a pyarrow.Table over the mapped file; nothing is copied."""
    import pyarrow as pa

    with pa.memory_map(str(path), "r") as source:
        return pa.ipc.open_file(source).read_all()


def count_rows(path: Path) -> int | None:
    """Return the rows of a fragment; None where it is absent or damaged."""
    import pyarrow as pa

    try:
        return int(open_table(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return None


def fragment_path(directory: Path, key: str) -> Path:
    """Return where the fragment of a shard lies."""
    return directory / f"{key}.arrow"


def write_fragment(function: BatchFunction, shard: Shard, directory: Path) -> Fragment:
    """Work on a shard and put its fragment in place; one that is there and whole is taken.

    Both runners call this in their workers.
    """
    path = fragment_path(directory, shard.key)
    held = count_rows(path)
    if held is None:
        made = [function(batch) for batch in read_batches(shard.path)]
        held = write_table(path, made)
    return Fragment(shard.key, path, held)


def write_table(path: Path, batches: Sequence[RecordBatch]) -> int:
    """Write batches of one schema durably and return the rows; at least one batch."""
    import pyarrow as pa

    with (
        replacement(path) as tmp,
        pa.OSFile(str(tmp), "wb") as sink,
        pa.ipc.new_file(sink, batches[0].schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    return sum(batch.num_rows for batch in batches)


def _write_shard(table: Any, directory: Path, salt: str) -> Shard:
    digest = hashlib.sha256(salt.encode("utf-8"))
    batches = table.combine_chunks().to_batches()
    for batch in batches:
        digest.update(batch.serialize())
    key = digest.hexdigest()[:32]
    path = directory / f"{key}.rows.arrow"
    write_table(path, batches)
    return Shard(key, path, table.num_rows)
