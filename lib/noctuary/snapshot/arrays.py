"""Arrays of a snapshot that are not about its memories: summaries, shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OF_TURNS = -1
"""In `plans`: a summary that the night made of a cluster of turns, and no compaction plan did."""

Mask = NDArray[np.bool_]


def is_compressed(indptr: NDArray[Any], rows: int, *columns: NDArray[Any]) -> bool:
    """Return whether rows have one start each, in order, and the columns end with the last row."""
    return (
        indptr.shape == (rows + 1,)
        and int(indptr[0]) == 0
        and not bool((np.diff(indptr) < 0).any())
        and all(column.shape == (int(indptr[-1]),) for column in columns)
    )


def within(values: NDArray[Any], count: int) -> Mask:
    """Return which values are a position below a count."""
    return np.asarray((values >= 0) & (values < count))


class SummaryArrays(NamedTuple):
    """All accepted summaries in the order of their ids; summary i of s."""

    # int64, shape (s + 1,): sources of summary i are `sources[indptr[i]:indptr[i + 1]]`.
    indptr: NDArray[np.int64]
    sources: NDArray[np.int32]  # positions of the memories, in order of time
    confidences: NDArray[np.float64]  # shape (s,), in [0, 1]
    plans: NDArray[np.int32]  # shape (s,): index of its compaction plan, OF_TURNS for none

    @property
    def size(self) -> int:
        """How many summaries there are."""
        return int(self.confidences.size)

    def is_aligned(self, count: int) -> bool:
        """Return whether the arrays fit each other and a snapshot of `count` memories."""
        return (
            is_compressed(self.indptr, self.size, self.sources)
            and bool(np.diff(self.indptr).all())
            and self.plans.shape == (self.size,)
            and bool(within(self.sources, count).all())
        )

    def sources_of(self, summary: int) -> NDArray[np.int32]:
        """Return the positions of a summary's sources, in order of time."""
        return self.sources[self.indptr[summary] : self.indptr[summary + 1]]

    def first_sources(self) -> NDArray[np.int32]:
        """Return every summary's first source, shape (s,)."""
        return self.sources[self.indptr[:-1]]

    def where_all(self, mask: Mask) -> Mask:
        """Return the summaries of which every source is in the mask (n,), shape (s,)."""
        if not self.size:
            return np.zeros(0, dtype=np.bool_)
        return np.logical_and.reduceat(mask[self.sources], self.indptr[:-1])

    def covered(self, summaries: Mask, count: int) -> Mask:
        """Return the memories that the given summaries (s,) replace, shape (count,)."""
        covered = np.zeros(count, dtype=np.bool_)
        covered[self.sources[np.repeat(summaries, np.diff(self.indptr))]] = True
        return covered


class ShareArrays(NamedTuple):
    """Shares by reader; reader i of r may read `positions[indptr[i]:indptr[i + 1]]`."""

    readers: Sequence[str]  # sorted, distinct, at least one
    indptr: NDArray[np.int64]  # shape (r + 1,), strictly ascending from 0
    positions: NDArray[np.int32]  # shape (s,), ascending inside a reader

    def is_aligned(self, count: int) -> bool:
        """Return whether the arrays fit each other and a snapshot of `count` memories."""
        return (
            len(set(self.readers)) == len(self.readers) > 0
            and is_compressed(self.indptr, len(self.readers), self.positions)
            and bool(np.diff(self.indptr).all())
            and bool(within(self.positions, count).all())
        )

    def by_reader(self, count: int) -> Mapping[str, NDArray[np.int32]]:
        """Return the positions that are shared with each reader."""
        if not self.is_aligned(count):
            raise ValueError("arrays of shares of different lengths")
        ends = self.indptr.tolist()
        return {
            reader: self.positions[ends[i] : ends[i + 1]] for i, reader in enumerate(self.readers)
        }
