"""Who else may read which memory, as arrays of a snapshot.

What belongs here: the arrays and their shape. Read side: numpy only. What does not: making them
(`share_pack`), what a share opens (noctuary.recall.scope).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class ShareArrays:
    """Shares by reader; reader i of r may read `positions[indptr[i]:indptr[i + 1]]`.

    Attributes:
        readers: Names, sorted, distinct, at least one.
        indptr: int64, shape (r + 1,), strictly ascending from 0.
        positions: int32, shape (s,), ascending inside a reader.
    """

    readers: Sequence[str]
    indptr: NDArray[np.int64]
    positions: NDArray[np.int32]

    def is_aligned(self, count: int) -> bool:
        """Tell whether the arrays fit each other and a snapshot of `count` memories."""
        return (
            len(set(self.readers)) == len(self.readers) > 0
            and self.indptr.shape == (len(self.readers) + 1,)
            and int(self.indptr[0]) == 0
            and bool((np.diff(self.indptr) > 0).all())
            and self.positions.shape == (int(self.indptr[-1]),)
            and bool(((self.positions >= 0) & (self.positions < count)).all())
        )

    def by_reader(self, count: int) -> Mapping[str, NDArray[np.int32]]:
        """Return the positions that are shared with each reader.

        Args:
            count: Memories in the snapshot.

        Raises:
            ValueError: The arrays do not line up: a share that is shifted by one opens a memory
                that nobody shares.
        """
        if not self.is_aligned(count):
            raise ValueError("arrays of shares of different lengths")
        ends = self.indptr.tolist()
        return {
            reader: self.positions[ends[i] : ends[i + 1]] for i, reader in enumerate(self.readers)
        }
