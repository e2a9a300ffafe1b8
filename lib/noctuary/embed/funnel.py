"""Searching many vectors through a short tier."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import release_pages

SERVING_DIM = 64  # of the short tier: fewer read less and need a longer shortlist
FUNNEL_MIN_ROWS = 20_000  # recall searches through it from here on; exact takes 2 ms below
SHORTLIST = 200  # least that it hands to full dimensions; 100 did at 5,452 rows (limits.md 4)
SHORTLIST_SHARE = 1 / 1_000  # of all memories, at least: large stores have more near neighbours
SHORTLIST_PER_RESULT = 4  # so that a deep ranking is not cut out of a list of its length
PROBE_ROWS = 65_536  # least allowed rows looked at; fewer miss neighbours in the next cell
# Least share of the allowed rows that is looked at. A 32nd is enough for clustered vectors; a sixth
# found .93 of 300,000 rows without any clusters, which cells serve worst.
PROBE_SHARE = 1 / 5
EXACT_SCOPE_ROWS = 2_048  # a scope of at most so many costs no more exactly than a shortlist
PREFIX_EPSILON = 1e-8  # joins a prefix's norm in quadrature: noise becomes zero, no direction

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]


class PrefixTier(NamedTuple):
    """A short tier, its rows sorted by cell; arrays may be memory-mapped."""

    vectors: Floats  # normalised prefixes, shape (n, k)
    positions: NDArray[np.int32]  # memory of each row, ascending inside a cell, shape (n,)
    starts: NDArray[np.int64]  # first row of each cell and n at the end, shape (cells + 1,)
    centroids: Floats  # mean direction of each cell, shape (cells, k)
    rotation: Floats  # leading columns of the orthogonal rotation, shape (d, k)

    def is_aligned(self, count: int, dim: int) -> bool:
        """Tell whether the arrays fit each other and a full matrix of shape (count, dim)."""
        cells, k = len(self.centroids), self.vectors.shape[-1]
        return (
            self.vectors.shape == (count, k)
            and self.positions.shape == (count,)
            and self.starts.shape == (cells + 1,)
            and self.centroids.shape == (cells, k)
            and self.rotation.shape == (dim, k)
            and int(self.starts[-1]) == count
        )

    def shorten(self, query: Floats) -> Floats:
        """Return the query's prefix, shape (k,), norm in [0, 1]."""
        head = (query @ self.rotation).astype(np.float64)
        return (head / np.sqrt(float(head @ head) + PREFIX_EPSILON**2)).astype(np.float32)


class Found(NamedTuple):
    """What a search found, the best first, ties by lower position, cosines above 0 only."""

    positions: Positions  # shape (m,)
    cosines: Floats  # in [-1, 1] up to rounding, shape (m,)
    exited: bool = False  # the tier was sure enough to answer alone, by the prefixes' cosines


def cosines_at(full: Floats, positions: Positions, query: Floats) -> Floats:
    """Return the cosines of some rows of (n, d), each the same to the last bit in any company."""
    # einsum sums every row by itself; a matrix product's last digit depends on the neighbours.
    return np.einsum("ij,j->i", full[positions], query)


def search(
    tier: PrefixTier,
    full: Floats,
    query: Floats,
    depth: int,
    mask: Mask | None = None,
    *,
    exit_at: float | None = None,
    shortlist: int = SHORTLIST,
    probe_rows: int = PROBE_ROWS,
    probe_share: float = PROBE_SHARE,
) -> Found:
    """Return the memories nearest to a unit vector, (d,), of unit rows, (n, d), through the tier.

    The mask applies before anything is ranked. With a shortlist and probe_rows of n or more the
    result is that of an exact search. The tier answers alone if its best cosine reaches `exit_at`.
    """
    if depth <= 0:
        return Found(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
    wanted = max(shortlist, int(SHORTLIST_SHARE * len(full)), SHORTLIST_PER_RESULT * depth)
    if mask is not None and int(np.count_nonzero(mask)) <= max(EXACT_SCOPE_ROWS, wanted):
        allowed = np.flatnonzero(mask)
        return _best(allowed, cosines_at(full, allowed, query), depth)
    short = tier.shorten(query)
    rows, coarse = _scan(tier, short, mask, max(probe_rows, wanted), probe_share)
    if exit_at is not None and coarse.size and float(coarse.max()) >= exit_at:
        best = _best(tier.positions[rows].astype(np.int64), coarse, depth)
        return Found(best.positions, best.cosines, exited=True)
    if len(rows) > wanted:
        last_place = len(rows) - wanted
        rows = rows[np.argpartition(coarse, last_place)[last_place:]]
    kept = np.sort(tier.positions[rows].astype(np.int64))
    best = _best(kept, cosines_at(full, kept, query), depth)
    release_pages(full)  # scattered reads would come to hold all of it
    return best


def _scan(
    tier: PrefixTier, short: Floats, mask: Mask | None, least: int, share: float
) -> tuple[Positions, Floats]:
    """Return the allowed rows of the nearest cells and their prefix cosines."""
    starts, vectors = tier.starts, tier.vectors
    sizes = np.diff(starts)
    allowed = None if mask is None else mask.take(tier.positions)
    if allowed is not None:
        filled = np.flatnonzero(sizes)  # reduceat would give an empty cell its neighbour's row
        sizes[filled] = np.add.reduceat(allowed, starts[filled], dtype=np.int64)
    cells = _nearest_cells(tier, short, sizes, max(least, int(share * int(sizes.sum()))))
    pieces = list(zip(starts[cells].tolist(), starts[cells + 1].tolist(), strict=True))
    if not pieces:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    rows = np.concatenate([np.arange(start, stop) for start, stop in pieces])
    coarse = np.concatenate([vectors[start:stop] @ short for start, stop in pieces])
    if allowed is None:
        return rows, coarse
    kept = allowed[rows]
    return rows[kept], coarse[kept]


def _nearest_cells(
    tier: PrefixTier, short: Floats, sizes: NDArray[np.int64], least: int
) -> Positions:
    """Return the nearest cells that together hold enough allowed rows, ascending."""
    order = np.argsort(-(tier.centroids @ short), kind="stable")
    order = order[sizes[order] > 0]
    enough = int(np.searchsorted(np.cumsum(sizes[order]), least)) + 1
    return np.sort(order[:enough])


def _best(positions: Positions, cosines: Floats, depth: int) -> Found:
    """Return the best of some positions, which are distinct; any order."""
    eligible = np.flatnonzero(cosines > 0)
    if len(eligible) > depth:
        last_place = len(eligible) - depth
        # Every tie of the last place stays in, so that the order below decides by position.
        values = cosines[eligible]
        eligible = eligible[values >= np.partition(values, last_place)[last_place]]
    order = np.lexsort((positions[eligible], -cosines[eligible]))[:depth]
    chosen = eligible[order]
    return Found(positions[chosen], cosines[chosen])
