"""Arrays and SQLite tables as Parquet files and back, bit for bit, in bounded memory.

What belongs here: the two conversions. What does not: which arrays and tables there are.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from noctuary.files import read_array, replacement

VALUE = "value"
"""The only column of an array's file."""

_BATCH_BYTES = 16 * 2**20
"""Of an array in memory at once."""

_BATCH_ROWS = 10_000
_ENDINGS = {"<f4": "float32", "<f8": "float64", "<i8": "int64", "<i4": "int32", "|i1": "int8",
            "|b1": "bool"}  # fmt: skip


def array_to_parquet(source: Path, target: Path) -> None:
    """Write a .npy file of one or two dimensions as Parquet, row by row."""
    import pyarrow as pa

    array = read_array(source)
    if array.ndim not in (1, 2) or array.dtype.str not in _ENDINGS:
        raise TypeError(f"{source.name} is {array.dtype.str} of {array.ndim} dimensions")
    kind = pa.from_numpy_dtype(array.dtype)
    if array.ndim == 2:
        kind = pa.list_(kind, array.shape[1])
    schema = pa.schema([pa.field(VALUE, kind, nullable=False)])
    rows = _rows_of(array.dtype, array.shape)
    with _writer(target, schema) as writer:
        for first in range(0, len(array), rows):
            part = np.ascontiguousarray(array[first : first + rows])
            values: Any = pa.array(part.reshape(-1))
            if array.ndim == 2:
                values = pa.FixedSizeListArray.from_arrays(values, array.shape[1])
            writer.write_table(pa.Table.from_arrays([values], schema=schema))


def parquet_to_array(source: Path, target: Path) -> None:
    """Write what `array_to_parquet` wrote as the .npy file that it was.

    Raises:
        TypeError: It holds something else.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as parquet, replacement(target) as tmp, tmp.open("wb") as handle:
        kind = parquet.schema_arrow.field(VALUE).type
        is_table = pa.types.is_fixed_size_list(kind)
        dtype = np.dtype((kind.value_type if is_table else kind).to_pandas_dtype())
        if parquet.schema_arrow.names != [VALUE] or dtype.str not in _ENDINGS:
            raise TypeError(f"{dtype.str} in the columns {parquet.schema_arrow.names}")
        rows = parquet.metadata.num_rows
        shape = (rows, kind.list_size) if is_table else (rows,)
        npy.write_array_header_1_0(
            handle, {"descr": dtype.str, "fortran_order": False, "shape": shape}
        )
        for batch in parquet.iter_batches(batch_size=_rows_of(dtype, shape)):
            column = batch.column(0)
            values = column.flatten() if is_table else column
            if column.null_count or values.null_count:
                raise TypeError("no value")
            handle.write(values.to_numpy(zero_copy_only=False).astype(dtype).tobytes())


def table_to_parquet(db: sqlite3.Connection, table: str, target: Path) -> None:
    """Write a table of rows.sqlite as Parquet, in the order of its key."""
    import pyarrow as pa

    schema = _schema_of(db, table)
    with (
        _writer(target, schema) as writer,
        closing(db.execute(f'SELECT * FROM "{table}"')) as cursor,
    ):
        while batch := cursor.fetchmany(_BATCH_ROWS):
            values = [
                pa.array(list(column), field.type)
                for column, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(values, schema=schema))


def parquet_rows(
    db: sqlite3.Connection, table: str, source: Path
) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows of a table's file in batches.

    Raises:
        TypeError: It has other columns than the table.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as parquet:
        if not parquet.schema_arrow.equals(_schema_of(db, table)):
            raise TypeError(f"columns of {table}")
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
            yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _schema_of(db: sqlite3.Connection, table: str) -> Any:
    import pyarrow as pa

    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64()}
    columns = [(str(r[1]), str(r[2])) for r in db.execute(f'PRAGMA table_info("{table}")')]
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns])


def _rows_of(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    width = shape[1] if len(shape) > 1 else 1
    return max(_BATCH_BYTES // max(dtype.itemsize * width, 1), 1)


def _writer(target: Path, schema: Any) -> Any:
    import pyarrow.parquet as pq

    target.parent.mkdir(parents=True, exist_ok=True)
    # No dictionary: it would take -0.0 for 0.0. No statistics: they say what a text begins with.
    return pq.ParquetWriter(
        target, schema, compression="zstd", use_dictionary=False, write_statistics=False
    )
