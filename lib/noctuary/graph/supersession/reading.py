"""Which memory stands for an older one, for the reader that asks. Standard library and numpy only.

What belongs here: following successors under a moment, a mask and a least confidence. What does
not: finding them (`find`), what recall does with the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.types import UNDATED_US

NO_SUCCESSOR = -1
"""Position that stands for: nothing replaces it."""


class SupersessionRow(NamedTuple):
    """One row of the table: a memory and its direct successor.

    Attributes:
        older: Position.
        newer: Position of the direct successor.
        head: Position of the last of the chain.
        reason: One of `noctuary.graph.supersession.links.REASONS`.
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine, or None.
        age_gap_days: Whole days between the two.
        valid_to_us: When the older stopped holding.
    """

    older: int
    newer: int
    head: int
    reason: str
    confidence: int
    similarity: float | None
    age_gap_days: int
    valid_to_us: int


class SupersessionIndex:
    """Successors by position: every method takes and returns whole arrays.

    What a reader may not see does not exist for it: a chain ends before the first successor that is
    masked, is not yet there at the moment asked for, or is less sure than asked for.
    """

    def __init__(self, rows: Iterable[SupersessionRow]) -> None:
        """Index the rows; at most one per older memory.

        Raises:
            ValueError: Two rows have the same older memory.
        """
        ordered = sorted(rows, key=lambda row: row.older)
        self._rows = {row.older: row for row in ordered}
        if len(self._rows) != len(ordered):
            raise ValueError(
                f"found {len(ordered)} rows for {len(self._rows)} superseded memories, expected "
                "one each: build the graph again"
            )
        self._older = np.array([row.older for row in ordered], dtype=np.int64)
        self._newer = np.array([row.newer for row in ordered], dtype=np.int64)
        self._confidence = np.array([row.confidence for row in ordered], dtype=np.int8)
        self._valid_to = np.array([row.valid_to_us for row in ordered], dtype=np.int64)

    def __len__(self) -> int:
        """Return how many memories are superseded."""
        return len(self._older)

    def row_of(self, position: int) -> SupersessionRow | None:
        """Return what is known about a superseded memory, or None where nothing replaces it."""
        return self._rows.get(position)

    def successors(
        self,
        positions: NDArray[np.integer],
        as_of_us: int | None = None,
        *,
        visible: NDArray[np.bool_] | None = None,
        least_confidence: int = 0,
    ) -> NDArray[np.int64]:
        """Return the direct successor of each memory, NO_SUCCESSOR where there is none.

        Args:
            positions: Shape (m,).
            as_of_us: Successors that came later do not count; None counts all. Those without a date
                always count.
            visible: What the reader may see, by position, shape (n,); None shows everything.
            least_confidence: 0 low, 1 medium, 2 high.
        """
        asked = np.asarray(positions, dtype=np.int64)
        found = np.full(len(asked), NO_SUCCESSOR, dtype=np.int64)
        if not len(self._older):
            return found
        places = np.minimum(np.searchsorted(self._older, asked), len(self._older) - 1)
        counts = (self._older[places] == asked) & (self._confidence[places] >= least_confidence)
        if as_of_us is not None:
            ends = self._valid_to[places]
            counts &= (ends <= as_of_us) | (ends == UNDATED_US)
        newer = self._newer[places]
        if visible is not None:
            counts &= visible[newer]
        found[counts] = newer[counts]
        return found

    def head_of(
        self,
        positions: NDArray[np.integer],
        as_of_us: int | None = None,
        *,
        visible: NDArray[np.bool_] | None = None,
        least_confidence: int = 0,
    ) -> NDArray[np.int64]:
        """Return the memory that stands for each one now; itself where nothing replaces it.

        Args:
            positions: Shape (m,).
            as_of_us: As for `successors`.
            visible: As for `successors`.
            least_confidence: As for `successors`.
        """
        heads = np.array(positions, dtype=np.int64)
        # Chains have no cycles; a damaged table that has one ends here all the same.
        for _ in range(len(self._older)):
            following = self.successors(
                heads, as_of_us, visible=visible, least_confidence=least_confidence
            )
            moves = following != NO_SUCCESSOR
            if not moves.any():
                break
            heads[moves] = following[moves]
        return heads
