"""Shards and fragments on disk: Arrow IPC files, whole or absent.

What belongs here: cutting rows into shards, reading and writing such files, their checksums. What
does not: who works on them where (`working`), what becomes of fragments (`fragment_store`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from noctuary.files import replacement
from noctuary.shards.task import RecordBatch, Shard

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
