"""Memories in and out of memories.parquet.

What belongs here: rows to `MemoryRecord` and back. Builders that want columns read the file
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

from noctuary.corpus.tables import MEMORIES_FILE, column_names
from noctuary.errors import StoreError
from noctuary.types import MemoryRecord

_COLUMNS = column_names(MEMORIES_FILE)
# Rows are built by position; a field added to one side only must not go unseen.
assert tuple(f.name for f in fields(MemoryRecord)) == _COLUMNS

record_row = attrgetter(*_COLUMNS)
"""MemoryRecord to a tuple in column order."""

DEFAULT_READ_ROWS = 4_096
"""Records per batch when streaming; a record costs about a kilobyte as an object."""


def read_records(path: Path) -> list[MemoryRecord]:
    """Return every memory of an export in position order.

    Args:
        path: memories.parquet, or the directory that holds it.

    Raises:
        StoreError: There is no such file, or it is not an export's.
    """
    return [record for batch in iter_records(path) for record in batch]


def iter_records(path: Path, batch: int = DEFAULT_READ_ROWS) -> Iterator[list[MemoryRecord]]:
    """Yield the memories of an export in position order, at most `batch` at a time.

    Raises:
        StoreError: As for `read_records`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = path / MEMORIES_FILE if path.is_dir() else path
    if not file.is_file():
        raise StoreError(f"There is no corpus at {file}: run the export first.")
    try:
        with pq.ParquetFile(file) as parquet:
            for rows in parquet.iter_batches(batch_size=batch, columns=list(_COLUMNS)):
                columns = [rows.column(name).to_pylist() for name in _COLUMNS]
                yield [MemoryRecord(*values) for values in zip(*columns, strict=True)]
    except (pa.ArrowInvalid, KeyError):
        # Arrow's message may quote bytes of the file.
        raise StoreError(
            f"{file} is not a readable corpus of this version. Run the export again."
        ) from None
