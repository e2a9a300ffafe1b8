"""The memories of an export as a sequence that lies on disk and not in memory.

What belongs here: walking, taking and picking columns of memories.parquet, and the same columns of
records that are held. What does not: writing (`tables`), whole lists (`records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from noctuary.corpus.columns import READ_ROWS, iter_batches
from noctuary.corpus.records import iter_records
from noctuary.corpus.tables import MEMORIES_FILE, arrow_schema, column_names
from noctuary.errors import StoreError
from noctuary.types import MemoryRecord


class RecordFile(Sequence[MemoryRecord]):
    """Memories by position. A million records are 1.5 GB as objects: none of them is kept.

    One look at a single memory reads a row group, some 16,000 rows, of which the last is held:
    callers go through it in order.
    """

    def __init__(self, path: Path) -> None:
        """Open an export's memories.parquet.

        Raises:
            StoreError: It is missing or damaged.
        """
        self.path = path
        self._group = -1
        self._held: list[MemoryRecord] = []
        self._ends = list(accumulate(_group_rows(path)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[MemoryRecord]:
        for records in iter_records(self.path):
            yield from records

    @overload
    def __getitem__(self, index: int) -> MemoryRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MemoryRecord]: ...
    def __getitem__(self, index: int | slice) -> MemoryRecord | Sequence[MemoryRecord]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        group = int(np.searchsorted(self._ends_array, at, side="right"))
        if group != self._group:
            columns = column_names(MEMORIES_FILE)
            self._held = _records_of(_read_group(self.path, group, columns))
            self._group = group
        return self._held[at - (self._ends[group - 1] if group else 0)]

    def batches(self, columns: Sequence[str], rows: int = READ_ROWS) -> Iterator[Any]:
        """Yield pyarrow.RecordBatches of some columns, by position.

        Raises:
            StoreError: As `iter_batches`.
        """
        return iter_batches(self.path, columns, rows)

    def take(self, positions: NDArray[np.int64], columns: Sequence[str]) -> Iterator[Any]:
        """Yield pyarrow.RecordBatches of some memories; row groups without any are not read.

        Args:
            positions: Ascending, shape (n,).
            columns: Which.
        """
        begins = np.searchsorted(positions, [0, *self._ends])
        for group, (begin, end) in enumerate(pairwise(begins.tolist())):
            if begin < end:
                first = self._ends[group - 1] if group else 0
                rows = _read_group(self.path, group, columns)
                yield rows.take(np.asarray(positions[begin:end] - first))

    @cached_property
    def _ends_array(self) -> NDArray[np.int64]:
        return np.array(self._ends, dtype=np.int64)


def column_batches(
    records: Sequence[MemoryRecord], columns: Sequence[str], rows: int | None = None
) -> Iterator[Any]:
    """Yield pyarrow.RecordBatches of some columns of records, wherever they lie.

    Args:
        records: By position.
        columns: Which.
        rows: Of a batch, at most; None means READ_ROWS.
    """
    rows = rows or READ_ROWS
    if isinstance(records, RecordFile):
        yield from records.batches(columns, rows)
        return
    for start in range(0, len(records), rows):
        yield _columns_of(records[start : start + rows], columns)


def take_columns(
    records: Sequence[MemoryRecord], positions: NDArray[np.int64], columns: Sequence[str]
) -> Iterator[Any]:
    """Yield pyarrow.RecordBatches of the memories at ascending positions, wherever they lie."""
    if isinstance(records, RecordFile):
        yield from records.take(positions, columns)
        return
    for start in range(0, len(positions), READ_ROWS):
        chosen = positions[start : start + READ_ROWS].tolist()
        yield _columns_of([records[at] for at in chosen], columns)


def _columns_of(records: Sequence[MemoryRecord], columns: Sequence[str]) -> Any:
    import pyarrow as pa

    schema = pa.schema([arrow_schema(MEMORIES_FILE).field(name) for name in columns])
    arrays = [
        pa.array([getattr(record, field.name) for record in records], field.type)
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)


def _records_of(batch: Any) -> list[MemoryRecord]:
    columns = [batch.column(name).to_pylist() for name in column_names(MEMORIES_FILE)]
    return [MemoryRecord(*values) for values in zip(*columns, strict=True)]


def _group_rows(path: Path) -> list[int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        raise _unreadable(path) from None
    return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]


def _read_group(path: Path, group: int, columns: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            rows = table.read_row_group(group, columns=list(columns)).combine_chunks()
            return rows.select(list(columns)).to_batches()[0]
    except (OSError, pa.ArrowException):
        raise _unreadable(path) from None


def _unreadable(path: Path) -> StoreError:
    # Arrow's message may quote bytes of the file.
    return StoreError(
        f"{path} is missing or not a readable corpus of this version: run the nightly job again"
    )
