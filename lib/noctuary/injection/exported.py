"""What an earlier export held: which ids, and a hash of each content. No text is kept.

What belongs here: looking one row up. What does not: what follows from it (`noctuary.corpus.sift`,
`recogniser`). Memory: 32 bytes a row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from noctuary.corpus.columns import iter_batches
from noctuary.errors import StoreError
from noctuary.injection.wording import HASH_BYTES, hash_exact


class ExportedContents:
    """Hashes of contents by memory id."""

    def __init__(self, rows: Iterable[tuple[str, str]] = ()) -> None:
        """Keep the hashes of some (memory id, content), each id once."""
        joined = b"".join(hash_exact(text) for row in rows for text in row)
        halves = np.frombuffer(joined, dtype=np.uint64).reshape(-1, 2 * HASH_BYTES // 8)
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        # Python compares plain integers of a buffer quicker than numpy looks up one number.
        self._high = np.ascontiguousarray(halves[order, 0]).data
        self._low = np.ascontiguousarray(halves[order, 1]).data
        self._contents = np.ascontiguousarray(halves[order, 2:]).tobytes()

    @classmethod
    def read(cls, memories: Path | None) -> ExportedContents:
        """Read an export; one that is not there or cannot be read had no row that we know of."""
        if memories is None:
            return cls()
        columns = ("memory_id", "content")
        try:
            return cls(
                row
                for batch in iter_batches(memories, columns)
                for row in zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            )
        except StoreError:
            return cls()

    def __len__(self) -> int:
        return len(self._high)

    def __contains__(self, memory_id: object) -> bool:
        return isinstance(memory_id, str) and self._place(memory_id) is not None

    def get(self, memory_id: str, /) -> bytes | None:
        """Return the hash of a row's content (`hash_exact`), None for a row that was not there."""
        place = self._place(memory_id)
        if place is None:
            return None
        return self._contents[place * HASH_BYTES : (place + 1) * HASH_BYTES]

    def _place(self, memory_id: str) -> int | None:
        high, low = np.frombuffer(hash_exact(memory_id), dtype=np.uint64).tolist()
        place = bisect_left(self._high, high)
        while place < len(self._high) and self._high[place] == high:
            if self._low[place] == low:
                return place
            place += 1
        return None
