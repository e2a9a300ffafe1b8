"""32-byte keys as arrays: sorting them and finding some among them. No file is opened here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY_BYTES = 32
"""A SHA-256."""

Keys = Iterable[bytes] | NDArray[np.uint8]
"""Digests of 32 bytes, or the same as rows, shape (n, 32)."""


def rows_of(column: Any) -> NDArray[np.uint8]:
    """Return a pyarrow column of 32-byte binaries, none of them null, as rows; a copy."""
    start = column.offset * KEY_BYTES
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    return data[start : start + len(column) * KEY_BYTES].reshape(len(column), KEY_BYTES).copy()


def as_rows(keys: Keys) -> NDArray[np.uint8]:
    """Return keys as rows, uint8, shape (n, 32)."""
    if isinstance(keys, np.ndarray):
        return keys
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)


class SortedKeys:
    """Keys by their first 128 bits, which tell any two SHA-256 apart.

    Attributes:
        order: Which of the given keys stands at each place, shape (n,); equal keys keep their
            order.
    """

    def __init__(self, keys: NDArray[np.uint8]) -> None:
        high, low = _half(keys, 0), _half(keys, 1)
        self.order: NDArray[np.int64] = np.lexsort((low, high))
        self._high, self._low = high[self.order], low[self.order]

    def find(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the first place of each key, -1 where it is not there; shape (len(keys),)."""
        high, low = _half(keys, 0), _half(keys, 1)
        at = np.searchsorted(self._high, high).astype(np.int64)
        found = np.full(len(keys), -1, dtype=np.int64)
        asked = np.arange(len(keys))
        while len(asked):
            asked = asked[at[asked] < len(self._high)]
            asked = asked[self._high[at[asked]] == high[asked]]
            same = self._low[at[asked]] == low[asked]
            found[asked[same]] = at[asked[same]]
            asked = asked[~same]
            at[asked] += 1
        return found


def _half(keys: NDArray[np.uint8], half: int) -> NDArray[np.uint64]:
    part = np.ascontiguousarray(keys[:, 8 * half : 8 * half + 8])
    return part.view(">u8").ravel().astype(np.uint64)
