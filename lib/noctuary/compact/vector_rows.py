"""Rows of a `.npy` matrix by position, read instead of mapped.

What belongs here: bounded reading. A map of the whole file counts as resident memory page by page:
a million vectors of 384 dimensions would be 1.5 GB of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import StoreError


class VectorRows:
    """An open matrix of shape (n, d).

    Attributes:
        shape: (n, d).
        dtype: Of its components.
    """

    def __init__(self, path: Path) -> None:
        """Open a matrix and read its header.

        Raises:
            StoreError: The file is missing, or it is no row-major matrix.
        """
        try:
            # The header only; the map is dropped before a row is touched.
            header = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{path} is not a readable array ({error}); run the night again to rebuild it"
            ) from error
        if header.ndim != 2 or not header.flags.c_contiguous:
            raise StoreError(
                f"{path} holds an array of shape {header.shape}, expected rows of vectors; "
                "run the night again to rebuild it"
            )
        self.shape: tuple[int, int] = header.shape
        self.dtype: np.dtype[Any] = header.dtype
        self._first_byte = int(header.offset)
        self._row_bytes = header.shape[1] * header.dtype.itemsize
        self._handle = os.open(path, os.O_RDONLY)

    def take(self, positions: Sequence[int]) -> NDArray[Any]:
        """Return the rows at some positions, shape (len(positions), d), in the given order.

        Raises:
            IndexError: A position is not in [0, n).
            StoreError: The file is shorter than its header says.
        """
        rows = np.empty((len(positions), self.shape[1]), dtype=self.dtype)
        start = 0
        while start < len(positions):
            end = start + 1
            while end < len(positions) and positions[end] == positions[end - 1] + 1:
                end += 1
            self._fill(rows[start:end], positions[start])
            start = end
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return consecutive rows, as a matrix in memory would."""
        start, stop, step = rows.indices(self.shape[0])
        found = np.empty((max(stop - start, 0), self.shape[1]), dtype=self.dtype)
        if len(found):
            self._fill(found, start)
        return found[::step]

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _fill(self, rows: NDArray[Any], first: int) -> None:
        """Read consecutive rows in one go."""
        if first < 0 or first + len(rows) > self.shape[0]:
            raise IndexError(f"row {first + len(rows) - 1} of a matrix of {self.shape[0]} rows")
        wanted = len(rows) * self._row_bytes
        data = os.pread(self._handle, wanted, self._first_byte + first * self._row_bytes)
        if len(data) != wanted:
            raise StoreError(
                f"the vectors end after {len(data)} of {wanted} bytes at row {first}: the file is "
                "cut short; run the night again to rebuild it"
            )
        rows.reshape(-1)[:] = np.frombuffer(data, dtype=self.dtype)
