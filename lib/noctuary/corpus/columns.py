"""Single columns of an exported table, without a record per row: a million records are 1.5 GB.

What belongs here: streaming batches and whole columns. What does not: records (`records`), writing
(`tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from noctuary.errors import StoreError

READ_ROWS = 16_384
"""Rows of a batch: some 10 MB of text."""


def iter_batches(path: Path, columns: Sequence[str], rows: int = READ_ROWS) -> Iterator[Any]:
    """Yield pyarrow.RecordBatches of some columns, in the table's order and that of the names.

    Raises:
        StoreError: The table is missing or damaged, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = list(columns)
    try:
        with pq.ParquetFile(path) as table:
            # A column that is not there is left out by Arrow without a word.
            if not set(wanted) <= set(table.schema_arrow.names):
                raise _unreadable(path)
            for batch in table.iter_batches(batch_size=rows, columns=wanted):
                yield batch.select(wanted)
    except (OSError, pa.ArrowException):
        raise _unreadable(path) from None


def read_column(path: Path, name: str) -> Any:
    """Return a whole column as one pyarrow.Array; for ids, hashes, times, not for texts.

    Raises:
        StoreError: As `iter_batches`.
    """
    import pyarrow as pa

    pieces = [batch.column(0) for batch in iter_batches(path, [name])]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.null())


def count_rows(path: Path) -> int:
    """Return how many rows a table holds, from its footer.

    Raises:
        StoreError: As `iter_batches`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        raise _unreadable(path) from None


def _unreadable(path: Path) -> StoreError:
    # Arrow's message may quote bytes of the file.
    return StoreError(
        f"{path} is missing or not a readable table of this version: run the nightly job again"
    )
