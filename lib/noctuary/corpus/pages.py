"""Memories page by page, by position: what a scan needs of each, not its text.

What belongs here: keyset reading of the exported corpus (pages end where the next position begins,
whatever the row groups are). What does not: whole records (`records`) and what a scan does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import StoreError

_COLUMNS = ("position", "memory_id", "created_at_us")

_Piece = tuple[list[str], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class MemoryPage:
    """Memories of neighbouring positions.

    Attributes:
        first: Position of the first one.
        memory_ids: Their ids, in order of position.
        created_at_us: int64, aligned; UNDATED_US where unknown.
    """

    first: int
    memory_ids: list[str]
    created_at_us: NDArray[np.int64]


def count_memories(path: Path) -> int:
    """Return the exact number of memories of an export, from the table's own footer.

    Raises:
        StoreError: There is no such table, or it cannot be read.
    """
    import pyarrow.parquet as pq

    with _explained(path), pq.ParquetFile(path) as table:
        return table.metadata.num_rows


def iter_pages(
    path: Path, size: int, *, first: int = 0, stop: int | None = None
) -> Iterator[MemoryPage]:
    """Yield the memories with first <= position < stop in order, `size` at a time, the rest last.

    Only as many rows as a page and a row group hold are in memory.

    Args:
        path: memories.parquet.
        size: Memories per page, >= 1.
        first: Where to begin.
        stop: Where to end; None reads to the last one.

    Raises:
        StoreError: There is no such table, or it cannot be read.
    """
    ids: list[str] = []
    created = np.empty(0, dtype=np.int64)
    at = first
    for piece_ids, piece_created in _pieces(path, size, first, stop):
        ids += piece_ids
        created = np.concatenate([created, piece_created])
        while len(ids) >= size:
            yield MemoryPage(at, ids[:size], created[:size])
            ids, created, at = ids[size:], created[size:], at + size
    if ids:
        yield MemoryPage(at, ids, created)


def _pieces(path: Path, size: int, first: int, stop: int | None) -> Iterator[_Piece]:
    """Yield the wanted rows as they lie in the row groups; groups before and after are not read."""
    import pyarrow.parquet as pq

    with _explained(path), pq.ParquetFile(path) as table:
        begin = 0
        for group in range(table.num_row_groups):
            end = begin + table.metadata.row_group(group).num_rows
            if end > first and (stop is None or begin < stop):
                for rows in table.iter_batches(size, row_groups=[group], columns=list(_COLUMNS)):
                    yield _cut(rows, first, stop)
            begin = end


def _cut(rows: Any, first: int, stop: int | None) -> _Piece:
    """Return what a record batch holds of the wanted positions; perhaps nothing."""
    positions: NDArray[np.int64] = rows.column("position").to_numpy()
    low = int(np.searchsorted(positions, first))
    high = positions.size if stop is None else max(low, int(np.searchsorted(positions, stop)))
    ids: list[str] = rows.column("memory_id").slice(low, high - low).to_pylist()
    return ids, rows.column("created_at_us").to_numpy()[low:high]


@contextmanager
def _explained(path: Path) -> Generator[None]:
    """Turn what Arrow says about a file into what a person can do about it."""
    import pyarrow as pa

    if not path.is_file():
        raise StoreError(f"There is no corpus at {path}: run the export first.")
    try:
        yield
    except (pa.ArrowInvalid, KeyError):
        # Arrow's message may quote bytes of the file.
        raise StoreError(
            f"{path} is not a readable corpus of this version. Run the export again."
        ) from None
