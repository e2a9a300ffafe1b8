"""Candidate cells: rows that point the same way share a cell, whatever else is in the corpus.

What belongs here: signatures by random hyperplanes. What does not: comparing rows (`near`).

Cells of k-means (`noctuary.vectors.cells`) would hold neighbours more tightly, but move with the
corpus: one added memory would change which pairs are looked at. These depend on the row alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.supersession.grades import LEAST_SIMILARITY

LEAST_RECALL = 0.97
"""Chance that two rows of cosine LEAST_SIMILARITY share a cell; closer ones do more often. Higher
finds more of the borderline pairs, for more sets of cells and their time."""

ROWS_PER_CELL = 256
"""Mean rows of a cell that the number of bits aims at. Fewer are quicker and miss more pairs."""

_SEED = 5_000_186
"""Of the hyperplanes; another one finds other borderline pairs."""

_ROWS_AT_ONCE = 4_096


def bits_for(rows: int) -> int:
    """Return how many hyperplanes cut a group of this size into cells, at least 1."""
    return max((max(rows, 1) // ROWS_PER_CELL).bit_length(), 1)


def tables_for(bits: int) -> int:
    """Return how many independent sets of cells reach LEAST_RECALL.

    Rows at an angle a are on one side of a hyperplane with chance 1 - a/pi (0.83 at cosine 0.86),
    of b hyperplanes with that to the power b, and share a cell of t sets with 1 - (1 - p^b)^t.
    """
    together = (1.0 - math.acos(LEAST_SIMILARITY) / math.pi) ** bits
    return math.ceil(math.log(1.0 - LEAST_RECALL) / math.log1p(-together))


def signatures(
    vectors: NDArray[np.float32], bits: int, rows: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the cell of every row in every table, shape (n, tables); a function of each row.

    Args:
        vectors: Shape (m, d); a million of them are never copied as a whole.
        bits: Hyperplanes per table, 1..62.
        rows: Which are asked for, shape (n,); None asks for all.
    """
    tables = tables_for(bits)
    # Every table has its own generator: more of them, or more bits, change nothing of the others.
    planes = np.concatenate(
        [
            np.random.default_rng((_SEED, table)).standard_normal((bits, vectors.shape[1]))
            for table in range(tables)
        ]
    )
    powers = 1 << np.arange(bits, dtype=np.int64)
    chosen = np.arange(len(vectors)) if rows is None else rows
    cells = np.empty((len(chosen), tables), dtype=np.int64)
    for start in range(0, len(chosen), _ROWS_AT_ONCE):
        chunk = vectors[chosen[start : start + _ROWS_AT_ONCE]].astype(np.float64)
        sides = (chunk @ planes.T >= 0.0).reshape(len(chunk), tables, bits)
        cells[start : start + len(chunk)] = sides @ powers
    return cells


def shared_cells(
    olders: NDArray[np.int64], newers: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (rows of the olders, rows of the newers) of each cell that holds some of both.

    Args:
        olders: Cells of one table, shape (a,).
        newers: Cells of the same table, shape (b,).
    """
    by_older, by_newer = np.argsort(olders, kind="stable"), np.argsort(newers, kind="stable")
    shared = np.intersect1d(olders, newers)
    bounds = [
        np.searchsorted(cells[order], shared, side=side)
        for cells, order in ((olders, by_older), (newers, by_newer))
        for side in ("left", "right")
    ]
    for a, b, c, d in zip(*(b.tolist() for b in bounds), strict=True):
        yield by_older[a:b], by_newer[c:d]
