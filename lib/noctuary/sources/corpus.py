"""The exported corpus: read and write memories as Parquet, by record, column or row group."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import StoreError
from noctuary.core.types import MemoryRecord
from noctuary.text.marks import find_speaker

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

# A DuckDB connection for set operations over the corpus: deterministic, offline, spilling to disk.


def open_duckdb(spill_dir: Path) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB that spills into `spill_dir`; one thread, so batches are stable."""
    import duckdb

    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": "1GB",  # sorts of some ten million turns do not spill
            "temp_directory": str(spill_dir),
            "autoinstall_known_extensions": "false",
        }
    )


# The Parquet files of an export; their bytes depend on the rows alone (`noctuary.sources.export`).

MEMORIES_FILE = "memories.parquet"
TURNS_FILE = "turns.parquet"
QUARANTINE_FILE = "quarantine.parquet"
ROW_GROUP_ROWS = 16_384  # larger compresses better, smaller lets readers skip more, hold less
ROW_GROUP_BYTES = 64 * 2**20  # of text: bounds memory when rows have the largest allowed size
ZSTD_LEVEL = 3  # zstd's own default; 9 saves about 5 % of the bytes for three times the time
_COLUMNS = {
    MEMORIES_FILE: MemoryRecord._fields,
    TURNS_FILE: (
        "position", "memory_id", "session_id", "user", "ordinal", "speaker", "created_at_us",
    ),
    QUARANTINE_FILE: ("locator", "reason", "detail"),
}  # fmt: skip
# Arrow types of the columns that are not text.
_TYPES = {
    "position": "int64", "ordinal": "int64", "created_at_us": "int64", "updated_at_us": "int64",
    "importance": "float64", "is_turn": "bool_", "valid_until_us": "int64",
}  # fmt: skip
_NULLABLE = {
    MEMORIES_FILE: {"session_id", "wing", "room", "user", "valid_until_us"},
    TURNS_FILE: {"user", "speaker"},
    QUARANTINE_FILE: set[str](),
}
# Dictionary encoding pays only where values repeat.
_REPEATING = ("category", "session_id", "wing", "room", "user", "speaker", "reason", "origin")


def column_names(file_name: str) -> tuple[str, ...]:
    """Return the column names of an export file, in order."""
    return _COLUMNS[file_name]


def arrow_schema(file_name: str) -> pa.Schema:  # pyright: ignore[reportUnknownParameterType]
    """Return the fixed Arrow schema of an export file."""
    import pyarrow as pa

    kinds = {name: getattr(pa, _TYPES.get(name, "string"))() for name in _COLUMNS[file_name]}
    nullable = _NULLABLE[file_name]
    return pa.schema([pa.field(n, kind, nullable=n in nullable) for n, kind in kinds.items()])


@contextmanager
def open_table(path: Path, file_name: str) -> Generator[Callable[[Sequence[object]], None]]:
    """Open an export file for writing; yields a function that appends one tuple of column values.

    Row groups close by row count or text bytes, never by time.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, rows, held_bytes = arrow_schema(file_name), list[Sequence[object]](), 0
    made: dict[str, Any] = {"compression": "zstd", "compression_level": ZSTD_LEVEL}
    made["use_dictionary"] = [name for name in schema.names if name in _REPEATING]

    def flush() -> None:
        nonlocal held_bytes
        if rows:
            columns = dict(zip(schema.names, zip(*rows, strict=True), strict=True))
            writer.write_table(pa.Table.from_pydict(columns, schema))
        rows.clear()
        held_bytes = 0

    def add(row: Sequence[object]) -> None:
        nonlocal held_bytes
        rows.append(row)
        held_bytes += sum(len(value) for value in row if isinstance(value, str))
        if len(rows) >= ROW_GROUP_ROWS or held_bytes >= ROW_GROUP_BYTES:
            flush()

    with pq.ParquetWriter(path, schema, **made) as writer:
        yield add
        flush()


# Read and write the records of memories.parquet.

_RECORD_COLUMNS = _COLUMNS[MEMORIES_FILE]
_READ_RECORDS = 4_096  # at once when streaming; a record costs about a kilobyte as an object

record_row = attrgetter(*_RECORD_COLUMNS)
"""Turn a MemoryRecord into a tuple in column order."""


def read_records(path: Path) -> list[MemoryRecord]:
    """Return every memory of an export in position order."""
    return [record for batch in iter_records(path) for record in batch]


def iter_records(path: Path, batch: int = _READ_RECORDS) -> Iterator[list[MemoryRecord]]:
    """Yield the memories of an export in position order, at most `batch` at a time."""
    file = path / MEMORIES_FILE if path.is_dir() else path
    for rows in iter_batches(file, _RECORD_COLUMNS, batch):
        yield _records_of(rows)


# Single columns of an exported table without record objects: a million records take 1.5 GB.

READ_ROWS = 16_384  # per batch: some 10 MB of text


def iter_batches(path: Path, columns: Sequence[str], rows: int = READ_ROWS) -> Iterator[Any]:
    """Yield pyarrow.RecordBatches of the named columns, rows in table order."""
    wanted = list(columns)
    with _opened(path) as table:
        # Arrow silently ignores a missing column.
        if not set(wanted) <= set(table.schema_arrow.names):
            raise _unreadable(path)
        for batch in table.iter_batches(batch_size=rows, columns=wanted):
            yield batch.select(wanted)


def read_column(path: Path, name: str) -> Any:
    """Return a whole column as one pyarrow.Array; meant for ids, hashes and times, not texts."""
    import pyarrow as pa

    pieces = [batch.column(0) for batch in iter_batches(path, [name])]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.null())


def count_rows(path: Path) -> int:
    """Return the number of rows of a Parquet table, from its footer."""
    with _opened(path) as table:
        return table.metadata.num_rows


@contextmanager
def _opened(path: Path) -> Generator[pq.ParquetFile]:
    """Open a Parquet table; turn Arrow errors into a StoreError with a remedy."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            yield table
    except (OSError, pa.ArrowException):
        # Arrow's message may quote bytes of the file.
        raise _unreadable(path) from None


def _unreadable(path: Path) -> StoreError:
    return StoreError(
        f"{path} is missing or not a readable table of this version: run the nightly job again"
    )


class RecordFile(Sequence[MemoryRecord]):
    """The memories of an exported Parquet file by position, with one row group cached."""

    def __init__(self, path: Path) -> None:
        """Open a memories.parquet file and read its row group sizes."""
        self.path = path
        self._group = -1
        self._held: list[MemoryRecord] = []
        with _opened(path) as table:
            sizes = [table.metadata.row_group(i).num_rows for i in range(table.num_row_groups)]
        self._bounds = np.cumsum([0, *sizes])  # where each row group begins, and the last ends

    def __len__(self) -> int:
        return int(self._bounds[-1])

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
        group = int(np.searchsorted(self._bounds, at, side="right")) - 1
        if group != self._group:
            self._held = _records_of(self._read_group(group, _RECORD_COLUMNS))
            self._group = group
        return self._held[at - int(self._bounds[group])]

    def take(self, positions: NDArray[np.int64], columns: Sequence[str]) -> Iterator[Any]:
        """Yield pyarrow.RecordBatches at ascending positions, (n,); reads only their row groups."""
        begins = np.searchsorted(positions, self._bounds)
        for group, (begin, end) in enumerate(pairwise(begins.tolist())):
            if begin < end:
                chosen = positions[begin:end] - self._bounds[group]
                yield self._read_group(group, columns).take(chosen)

    def _read_group(self, group: int, columns: Sequence[str]) -> Any:
        with _opened(self.path) as table:
            rows = table.read_row_group(group, columns=list(columns)).combine_chunks()
            return rows.select(list(columns)).to_batches()[0]


def column_batches(
    records: Sequence[MemoryRecord], columns: Sequence[str], rows: int | None = None
) -> Iterator[Any]:
    """Yield pyarrow.RecordBatches of some columns of records, held in memory or on disk."""
    rows = rows or READ_ROWS
    if isinstance(records, RecordFile):
        yield from iter_batches(records.path, columns, rows)
        return
    for start in range(0, len(records), rows):
        yield _columns_of(records[start : start + rows], columns)


def take_columns(
    records: Sequence[MemoryRecord], positions: NDArray[np.int64], columns: Sequence[str]
) -> Iterator[Any]:
    """Yield pyarrow.RecordBatches at ascending positions of records in memory or on disk."""
    if isinstance(records, RecordFile):
        yield from records.take(positions, columns)
        return
    for start in range(0, len(positions), READ_ROWS):
        chosen = [records[at] for at in positions[start : start + READ_ROWS].tolist()]
        yield _columns_of(chosen, columns)


def _columns_of(records: Sequence[MemoryRecord], columns: Sequence[str]) -> Any:
    import pyarrow as pa

    schema = pa.schema([arrow_schema(MEMORIES_FILE).field(name) for name in columns])
    values = {name: [getattr(record, name) for record in records] for name in columns}
    return pa.RecordBatch.from_pydict(values, schema)


def _records_of(batch: Any) -> list[MemoryRecord]:
    columns = [batch.column(name).to_pylist() for name in _RECORD_COLUMNS]
    return [MemoryRecord(*values) for values in zip(*columns, strict=True)]


# The turns of every session in order. A session is keyed by its id and its user, so turns of two
# users are never summarised together. Undated turns come first: their time is the smallest int64.
# Text orders by code point.
_IN_ORDER = """
    SELECT position, memory_id, session_id, "user",
           row_number() OVER (
               PARTITION BY session_id, "user" ORDER BY created_at_us, position
           ) - 1 AS ordinal,
           speaker, created_at_us
    FROM read_parquet(?)
    ORDER BY session_id, "user" NULLS FIRST, ordinal
"""


def turn_row(record: MemoryRecord) -> tuple[object, ...]:
    """Return the turns.parquet row of a turn, with ordinal 0 until `order_turns` numbers it."""
    named = (record.position, record.memory_id, record.session_id, record.user)
    return (*named, 0, find_speaker(record.content), record.created_at_us)


def order_turns(unordered: Path, ordered: Path) -> int:
    """Write turns sorted by (session, user, time, position) and numbered; return their count."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, turns = arrow_schema(TURNS_FILE), 0
    writer = pq.ParquetWriter(ordered, schema, compression="zstd")
    with writer, open_duckdb(ordered.parent) as db:
        for batch in db.sql(_IN_ORDER, params=[str(unordered)]).to_arrow_reader(ROW_GROUP_ROWS):
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            turns += batch.num_rows
    return turns
