"""What is like a turn: its nearest earlier turns and durable memories by the night's vectors.

What belongs here: the k nearest rows of some candidates, block by block, with exact cosines. What
does not: which rows may be compared (`candidates`), what nearness means (`scalar`). Memory is
bounded by the blocks; time is a product of the numbers of both, so that of very many candidates
only some are compared (`nearby_cells`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CANDIDATE_ROWS = 2_048
"""Candidates compared at once: with the rows of a block they bound memory to a few megabytes."""

_SLACK = 1e-4
"""Above the rounding of a float32 product, whose order of summation depends on the block."""

_DIGITS = 6

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Neighbour(NamedTuple):
    """A row that is like another.

    Attributes:
        cosine: In [-1, 1], to 6 digits.
        position: Its row.
    """

    cosine: float
    position: int


class Best:
    """The k nearest candidates of some rows, of all that were taken so far.

    Attributes:
        cosines: Descending, -inf where there is none, float32, shape (n, k).
        positions: Of the candidates, -1 where there is none, int64, shape (n, k).
    """

    def __init__(self, n_rows: int, k: int, least_cosine: float = -1.0) -> None:
        """Start without candidates.

        Args:
            n_rows: How many rows, at least 0.
            k: How many candidates are kept per row, at least 1.
            least_cosine: What is less is not kept, but for rounding.
        """
        self.cosines = np.full((n_rows, k), -np.inf, dtype=np.float32)
        self.positions = np.full((n_rows, k), -1, dtype=np.int64)
        self._least = least_cosine - _SLACK

    def take(self, rows: Ints, products: Floats, candidates: Ints) -> None:
        """Keep what is nearer than what is kept.

        Args:
            rows: Which of the rows, shape (b,).
            products: Their cosines with the candidates, -inf where a pair does not count, (b, m).
            candidates: Positions, shape (m,); each may be taken once per row.
        """
        bar = np.maximum(self.cosines[rows, -1], self._least)
        # Later candidates improve few rows: only those are merged.
        better = np.flatnonzero(products.max(axis=1, initial=-np.inf) > bar)
        if len(better):
            others = np.broadcast_to(candidates, (len(better), len(candidates)))
            self._merge(rows[better], products[better], others)

    def join(self, cosines: Floats, positions: Ints) -> None:
        """Take in what other searches kept for the same rows, both of shape (n, m)."""
        self._merge(np.arange(len(self.cosines)), cosines, positions)

    def _merge(self, rows: Ints, products: Floats, candidates: Ints) -> None:
        k = self.cosines.shape[1]
        cosines = np.concatenate([self.cosines[rows], products], axis=1)
        positions = np.concatenate([self.positions[rows], candidates], axis=1)
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        kept = np.take_along_axis(cosines, best, axis=1)
        order = np.argsort(-kept, axis=1, kind="stable")
        self.cosines[rows] = np.take_along_axis(kept, order, axis=1)
        chosen = np.take_along_axis(np.take_along_axis(positions, best, axis=1), order, axis=1)
        self.positions[rows] = np.where(np.isneginf(self.cosines[rows]), -1, chosen)


class NearestRows:
    """The k nearest candidates of every row of a block, of all that were offered so far."""

    def __init__(self, rows: Ints, vectors: Floats, k: int, least_cosine: float = -1.0) -> None:
        """Start without candidates.

        Args:
            rows: Positions of the block, shape (b,).
            vectors: Unit rows by position, shape (n, d), possibly memory-mapped; a row of zeros is
                at cosine 0 of everything.
            k: How many are kept per row, at least 1.
            least_cosine: What is less is no neighbour.
        """
        self._rows, self._vectors = rows, vectors
        self._least = least_cosine
        self._block = np.asarray(vectors[rows], dtype=np.float32)
        self._best = Best(len(rows), k, least_cosine)

    def offer(self, candidates: Ints, first_row: int | None = None) -> None:
        """Compare with candidates, in chunks.

        Args:
            candidates: Positions, shape (m,). Each may be offered once.
            first_row: If given, row i of the block is candidate `first_row + i`, and is compared
                with the candidates before it only: never with itself, never with what is later.
        """
        block = np.arange(len(self._rows))
        for start in range(0, len(candidates), CANDIDATE_ROWS):
            chunk = candidates[start : start + CANDIDATE_ROWS]
            products = self._block @ np.asarray(self._vectors[chunk], dtype=np.float32).T
            if first_row is not None and start + len(chunk) > first_row:
                places = start + np.arange(len(chunk))
                products[places[None, :] >= (first_row + block)[:, None]] = -np.inf
            self._best.take(block, products, chunk)

    def join(self, cosines: Floats, positions: Ints) -> None:
        """Take in the nearest of candidates that were compared elsewhere; see `Best.join`."""
        self._best.join(cosines, positions)

    def __iter__(self) -> Iterator[list[Neighbour]]:
        """Yield the neighbours of each row, nearest first; of equal ones, by position."""
        for row in range(len(self._rows)):
            kept = self._best.positions[row][self._best.positions[row] >= 0]
            cosines = exact_cosines(self._block[row], self._vectors[kept])
            near = [Neighbour(c, int(p)) for c, p in zip(cosines, kept, strict=True)]
            yield sorted((n for n in near if n.cosine >= self._least), key=nearness)


def exact_cosines(row: Floats, others: Floats) -> list[float]:
    """Return the cosines of a unit row with others, the same whatever else is compared.

    Args:
        row: Shape (d,).
        others: Shape (m, d).
    """
    products = np.asarray(others, dtype=np.float64) * row.astype(np.float64)
    return [min(max(round(float(c), _DIGITS), -1.0), 1.0) for c in products.sum(axis=1)]


def nearness(neighbour: Neighbour) -> tuple[float, int]:
    """Return the sort key of neighbours: nearest first, of equal ones by position."""
    return -neighbour.cosine, neighbour.position
