"""The accepted summaries of a snapshot as candidates: positions from the memory count on.

What belongs here: which memories a summary was made of and what it is worth. Read once per
snapshot, on first use: a recall that neither searches nor projects summaries never does. What does
not: which of them a recall searches (`searched`), their texts (`reader`), ranking them
(`summary_legs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import Positions, SummaryView
from noctuary.snapshot.summary_arrays import OF_TURNS, SummaryArrays

_NONE = -1
"""In `_summary_of`: a memory that no summary of turns covers."""


class Summaries:
    """All accepted summaries, in order of their ids; safe to share between threads.

    Attributes:
        count: Memories of the snapshot; summary i stands at position count + i.
        arrays: Which memories each stands for.
        plans: Compaction plans by their number in `arrays.plans`.
        ids: The summaries' ids.
    """

    def __init__(
        self, count: int, arrays: SummaryArrays, plans: Sequence[str], ids: Sequence[str]
    ) -> None:
        if not arrays.is_aligned(count) or len(ids) != arrays.size:
            raise ValueError("arrays of summaries of different lengths")
        self.count = count
        self.arrays = arrays
        self.plans = tuple(plans)
        self.ids = tuple(ids)

    @property
    def size(self) -> int:
        """How many summaries there are."""
        return self.arrays.size

    @cached_property
    def views(self) -> tuple[SummaryView, ...]:
        """What phases see of each."""
        return tuple(self.at(self.count + i) for i in range(self.size))

    @cached_property
    def of_turns(self) -> NDArray[np.bool_]:
        """Which of them the night made of clusters of turns, shape (s,)."""
        return self.arrays.plans == OF_TURNS

    def at(self, position: int) -> SummaryView:
        """Return the summary at a position."""
        i = position - self.count
        sources = tuple(self.arrays.sources_of(i).tolist())
        return SummaryView(position, sources, float(self.arrays.confidences[i]))

    def position_of(self, summary_id: str) -> int | None:
        """Return where a summary stands, or None for an unknown id."""
        return self.count + self.ids.index(summary_id) if summary_id in self.ids else None

    def plan_of(self, position: int) -> str | None:
        """Return the compaction plan that a summary belongs to; None for one of turns."""
        number = int(self.arrays.plans[position - self.count])
        return None if number == OF_TURNS else self.plans[number]

    def of_sources(self, positions: Positions) -> dict[int, SummaryView]:
        """Return the summary of turns of every position that is a source of one."""
        memories = positions[positions < self.count]
        found = self._summary_of[memories]
        held = found != _NONE
        pairs = zip(memories[held].tolist(), found[held].tolist(), strict=True)
        return {position: self.at(self.count + i) for position, i in pairs}

    def confidences(self, positions: Positions) -> NDArray[np.float64]:
        """Return confidences in [0, 1], shape as given; a memory has 1."""
        found = np.ones(positions.size, dtype=np.float64)
        inside = positions >= self.count
        found[inside] = self.arrays.confidences[positions[inside] - self.count]
        return found

    def first_source(self, positions: Positions) -> NDArray[np.int64]:
        """Return the positions with every summary replaced by its first source."""
        replaced = positions.copy()
        inside = positions >= self.count
        replaced[inside] = self.arrays.first_sources()[positions[inside] - self.count]
        return replaced

    def largest(self, values: NDArray[np.generic], positions: Positions) -> NDArray[np.generic]:
        """Return the memories' own values (n,), and of summaries the largest of their sources'.

        Of creation times that is the latest, of importance the most important.
        """
        found = values[np.minimum(positions, self.count - 1)]
        inside = positions >= self.count
        if inside.any():
            ordinals = positions[inside] - self.count
            starts = self.arrays.indptr[ordinals]
            sizes = self.arrays.indptr[ordinals + 1] - starts
            firsts = np.cumsum(sizes) - sizes
            places = np.arange(int(sizes.sum())) + np.repeat(starts - firsts, sizes)
            found[inside] = np.maximum.reduceat(values[self.arrays.sources[places]], firsts)
        return found

    @cached_property
    def _summary_of(self) -> NDArray[np.int32]:
        """Index of the summary of turns of every memory, _NONE where there is none, (count,)."""
        found = np.full(self.count, _NONE, dtype=np.int32)
        owners = np.repeat(np.arange(self.size, dtype=np.int32), np.diff(self.arrays.indptr))
        held = self.of_turns[owners]
        found[self.arrays.sources[held]] = owners[held]
        return found
