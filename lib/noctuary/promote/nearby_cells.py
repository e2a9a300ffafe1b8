"""Which rows are worth comparing where there are too many: those of the cells next to a turn.

What belongs here: directions around which rows lie, and the nearest candidates of many turns, cell
by cell. What does not: the k nearest of what is compared (`neighbours`), the order of time
(`walk`). Memory: 12 bytes per turn and neighbour, 4 per turn and probe, and one cell.

What it may miss: a neighbour that lies in none of the PROBES cells nearest to the turn. Measured on
100,000 memories: 97 % of the five nearest are found, and novelty changes by .0002 on average and by
.005 at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.promote.neighbours import CANDIDATE_ROWS, Best, Floats, Ints
from noctuary.vectors.cells import FIT_ROWS_PER_CELL, assign, fit_centroids

EXACT_PAIRS = 1 << 29
"""Pairs up to which everything is compared: ten seconds of one core at 384 dimensions, some 23,000
turns and as many memories. Higher finds every neighbour in larger stores, for that time."""

ROWS_PER_CELL = 512
"""Mean rows of a cell. Smaller ones need more probes for the same neighbours, and every cell costs
a call."""

PROBES = 16
"""Cells that a turn is compared with. More miss less and cost as much more."""

ALIKE_PROBES = 8
"""The same where only rows of a high cosine count, which lie in the nearest cells."""

_ROWS_AT_ONCE = 8_192
"""Rows whose cells are found at once: bounds memory at 32 KB per cell."""

_QUERY_ROWS = 2_048
"""Turns of a cell compared at once."""

Probes = NDArray[np.int32]


class Cells(NamedTuple):
    """Cells fitted to some rows, as turns see them.

    Attributes:
        centroids: Unit directions, float32, shape (c, d).
        probes: The cells nearest to every turn, nearest first, shape (n_turns, p).
    """

    centroids: Floats
    probes: Probes

    def narrowed(self, probes: int) -> Cells:
        """Return the same with at most so many probes of every turn."""
        return Cells(self.centroids, np.ascontiguousarray(self.probes[:, :probes]))

    def of_turns(self, part: slice) -> Cells:
        """Return the same for some of the turns."""
        return Cells(self.centroids, self.probes[part])


def needs_cells(turns: int, candidates: int) -> bool:
    """Say whether so many turns have too many candidates for comparing them all."""
    return turns * candidates > EXACT_PAIRS


def fit_cells(turns: Ints, rows: Ints, vectors: Floats) -> Cells:
    """Return cells around some rows; equal rows in equal order give equal ones.

    Args:
        turns: Positions of the turns that will be compared, shape (n,).
        rows: Positions of what they will be compared with, shape (m,), m >= 1.
        vectors: Unit rows by position.
    """
    count = max(len(rows) // ROWS_PER_CELL, 1)
    sample = rows[:: max(len(rows) // (count * FIT_ROWS_PER_CELL), 1)]
    centroids = fit_centroids(np.asarray(vectors[sample], dtype=np.float32), count)
    width = min(PROBES, count)
    probes = np.empty((len(turns), width), dtype=np.int32)
    for start in range(0, len(turns), _ROWS_AT_ONCE):
        chunk = vectors[turns[start : start + _ROWS_AT_ONCE]]
        far = -(np.asarray(chunk, dtype=np.float32) @ centroids.T)
        near = np.argpartition(far, width - 1, axis=1)[:, :width]
        order = np.argsort(np.take_along_axis(far, near, axis=1), axis=1, kind="stable")
        probes[start : start + len(far)] = np.take_along_axis(near, order, axis=1)
    return Cells(centroids, probes)


def nearest_by_cells(
    turns: Ints,
    cells: Cells,
    rows: Ints,
    vectors: Floats,
    best: Best,
    *,
    earlier_only: bool = False,
) -> Best:
    """Compare every turn with the rows of its cells; return `best`.

    Args:
        turns: Positions, shape (n,), as the probes of `cells`.
        cells: Where to look.
        rows: Positions of the candidates, shape (m,).
        vectors: Unit rows by position.
        best: Of n rows; takes what is found.
        earlier_only: `rows` are the turns: each is compared with those before it only.
    """
    own = _cells_of(rows, cells.centroids, vectors)
    by_cell = np.argsort(own, kind="stable")
    asked = np.argsort(cells.probes.ravel(), kind="stable")
    numbers = np.arange(len(cells.centroids) + 1)
    row_starts = np.searchsorted(own[by_cell], numbers)
    turn_starts = np.searchsorted(cells.probes.ravel()[asked], numbers)
    for cell in range(len(cells.centroids)):
        held = by_cell[row_starts[cell] : row_starts[cell + 1]]
        asking = asked[turn_starts[cell] : turn_starts[cell + 1]] // cells.probes.shape[1]
        for start in range(0, len(asking), _QUERY_ROWS):
            some = asking[start : start + _QUERY_ROWS]
            _compare(turns, some, rows, held, vectors, best, earlier_only=earlier_only)
    return best


def _compare(
    turns: Ints,
    some: Ints,
    rows: Ints,
    held: Ints,
    vectors: Floats,
    best: Best,
    *,
    earlier_only: bool,
) -> None:
    block = np.asarray(vectors[turns[some]], dtype=np.float32)
    for start in range(0, len(held), CANDIDATE_ROWS):
        chunk = held[start : start + CANDIDATE_ROWS]
        products = block @ np.asarray(vectors[rows[chunk]], dtype=np.float32).T
        if earlier_only:
            products[chunk[None, :] >= some[:, None]] = -np.inf
        best.take(some, products, rows[chunk])


def _cells_of(rows: Ints, centroids: Floats, vectors: Floats) -> Ints:
    found = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        chunk = np.asarray(vectors[rows[start : start + _ROWS_AT_ONCE]], dtype=np.float32)
        found[start : start + len(chunk)] = assign(chunk, centroids)
    return found
