"""Making the short tier that a serving pack carries: prefixes, cells, order. Build side.

What belongs here: spherical k-means over the prefixes and sorting by cell. What does not:
searching (noctuary.vectors.cascade), the LanceDB tables (noctuary.vectors.tiers).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.vectors.cascade import SERVING_DIM, PrefixTier
from noctuary.vectors.rotation import Rotation, rotated_prefix

ROWS_PER_CELL = 1_024
"""Mean rows of a cell. Smaller cells fit a query's neighbourhood better; every probed cell costs a
call, and every centroid a product with the query."""

FIT_ROWS_PER_CELL = 48
"""Rows per cell that k-means sees: enough for a stable mean; more only lengthens the night."""

FIT_ROUNDS = 8
"""Rounds of k-means; cells barely move after these, and an unfinished fit only costs speed."""

CHUNK_ROWS = 16_384
"""Rows assigned at once: bounds memory at CHUNK_ROWS x cells x 4 bytes (64 MB at 1,024 cells)."""

Floats = NDArray[np.float32]


class Rows(Protocol):
    """Vectors by position, in memory or on disk: a matrix, or a `VectorRows`."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> NDArray[Any]: ...


def build_prefix_tier(
    vectors: Rows,
    rotation: Rotation,
    dim: int = SERVING_DIM,
    *,
    rows_per_cell: int = ROWS_PER_CELL,
) -> PrefixTier:
    """Return the short tier of a corpus, sorted by cell.

    Deterministic: equal vectors and rotation give equal arrays.

    Args:
        vectors: Unit rows, shape (n, d), n >= 1; read in blocks.
        rotation: Of the same encoder and d.
        dim: k of the tier, in 1..d.
        rows_per_cell: Mean rows of a cell, at least 1.
    """
    count = len(vectors)
    prefixes = np.empty((count, dim), dtype=np.float32)
    for start in range(0, count, CHUNK_ROWS):
        chunk = vectors[start : start + CHUNK_ROWS]
        prefixes[start : start + len(chunk)] = rotated_prefix(chunk, rotation, dim)
    centroids = fit_centroids(prefixes, max(count // rows_per_cell, 1))
    cells = assign(prefixes, centroids)
    order = np.argsort(cells, kind="stable")
    sizes = np.bincount(cells, minlength=len(centroids))
    return PrefixTier(
        vectors=prefixes[order],
        positions=order.astype(np.int32),
        starts=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        centroids=centroids,
        rotation=np.ascontiguousarray(rotation.matrix[:, :dim]),
    )


def fit_centroids(prefixes: Floats, cells: int) -> Floats:
    """Return unit directions around which the prefixes lie, shape (cells, k).

    A cell that loses all its rows keeps its direction.

    Args:
        prefixes: Shape (n, k), n >= 1.
        cells: How many, at least 1 and at most n.
    """
    step = max(len(prefixes) // (cells * FIT_ROWS_PER_CELL), 1)
    sample = prefixes[::step]
    centroids = sample[np.linspace(0, len(sample) - 1, cells).astype(np.int64)].copy()
    for _ in range(FIT_ROUNDS):
        nearest = assign(sample, centroids)
        order = np.argsort(nearest, kind="stable")
        held, first = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(sample[order].astype(np.float64), first, axis=0)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        moved = norms[:, 0] > 0
        centroids[held[moved]] = (sums[moved] / norms[moved]).astype(np.float32)
    return centroids


def assign(prefixes: Floats, centroids: Floats) -> NDArray[np.int64]:
    """Return the cell whose direction is nearest to each row, the first of equal ones, (n,)."""
    cells = np.empty(len(prefixes), dtype=np.int64)
    for start in range(0, len(prefixes), CHUNK_ROWS):
        chunk = prefixes[start : start + CHUNK_ROWS]
        cells[start : start + len(chunk)] = (chunk @ centroids.T).argmax(axis=1)
    return cells
