"""Near duplicates: the newest memory in scope that says the same at least a week later.

What belongs here: pairs of vectors, exact inside groups and by shared cells in large ones. What
does not: what was kept from last night (`memo`), choosing among links (`resolve`).

Memories that differ in a number, an identifier, a date or a name are never compared (`guards`).
Rows are compared by user and wing: the rows of a wing with its own, rows of a wing with those
without one, and these with all of the user. A comparison of up to EXACT_PAIRS pairs is exact and
blockwise; a larger one only looks at rows that share a cell (`cells`). Turns of a conversation take
no part: what was said stays said, and between sessions it is courtesies that recur (measured on
locomo: "Bye!" and "Thanks!").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.supersession.cells import bits_for, shared_cells, signatures
from noctuary.graph.supersession.columns import MemoryColumns
from noctuary.graph.supersession.grades import DAY_US, LEAST_DAYS, LEAST_SIMILARITY

EXACT_PAIRS = 12_288 * 12_288
"""Most pairs that are compared one by one (two seconds of one slow core at 384 dimensions). Higher
finds every pair of larger groups; beyond it, cells miss some pairs near the threshold."""

_BLOCK_ROWS = 128
"""Older rows compared at once. Fewer skip more columns that are not late enough for any of them;
more make larger products."""

_BLOCK_COLUMNS = 2_048
"""Newer rows compared at once: bounds memory to a megabyte per array, and what is computed beyond
the first match."""

_SLACK = 1e-4
"""Above the rounding of a float32 product, whose order of summation depends on the block."""

_DIGITS = 6

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class NearPair(NamedTuple):
    """Two memories by position; the newer is the newest near duplicate that was asked for."""

    older: int
    newer: int
    similarity: float


class Comparison(NamedTuple):
    """Rows whose newest near duplicates are sought among other rows.

    Attributes:
        olders: Positions in order of moment, shape (a,).
        newers: Positions in order of moment, shape (b,).
        bits: Hyperplanes per table of cells, or 0 for an exact comparison.
    """

    olders: Ints
    newers: Ints
    bits: int


def comparisons(memories: MemoryColumns, *, exact_pairs: int = EXACT_PAIRS) -> Iterator[Comparison]:
    """Yield what has to be compared in a corpus: a function of users, wings and dates.

    Args:
        memories: Of the corpus; turns and undated memories are left out.
        exact_pairs: Most pairs of an exact comparison.
    """
    by_moment = np.argsort(memories.created_at_us, kind="stable")
    rows = by_moment[(memories.dated() & ~memories.turns)[by_moment]]
    _, groups, sizes = np.unique(memories.alike[rows], return_inverse=True, return_counts=True)
    rows = rows[sizes[groups] > 1]
    shared = [
        group for own in _split(rows, memories.owners) for group in _split(own, memories.alike)
    ]
    for everything in (group for group in shared if len(group) > 1):
        wings = list(_split(everything, memories.wings))
        # Names are sorted, so a first group without a name is the one without a wing.
        has_wingless = not memories.wing_names[memories.wings[wings[0][0]]]
        for place, own in enumerate(wings):
            if place == 0 and has_wingless:
                others = [everything]
            else:
                others = [own, wings[0]] if has_wingless else [own]
            for newers in others:
                # What its owner has marked as superseded stands for nothing.
                kept = newers[~memories.tombstones[newers]]
                if len(kept):
                    yield _comparison(own, kept, exact_pairs)


def _split(rows: Ints, codes: NDArray[np.integer]) -> Iterator[Ints]:
    """Yield the rows of every code, ascending by code, each in the order it has."""
    found = codes[rows]
    order = np.argsort(found, kind="stable")
    bounds = np.flatnonzero(np.diff(found[order])) + 1
    if len(rows):
        yield from np.split(rows[order], bounds)


def newest_near_duplicates(
    comparison: Comparison, vectors: Floats, created_at_us: Ints
) -> list[NearPair]:
    """Return the newest near duplicate of every older row that has one, by older row's moment.

    A pure function of the rows compared: the same rows give the same pairs in any corpus.

    Args:
        comparison: What to compare.
        vectors: Unit rows by position, shape (n, d); a row of zeros is near nothing.
        created_at_us: By position, shape (n,), dated.
    """
    search = _Search(comparison, vectors, created_at_us)
    everything = np.arange(len(comparison.olders)), np.arange(len(comparison.newers))
    cells = [everything] if comparison.bits == 0 else _by_cells(comparison, vectors)
    for olders, newers in cells:
        search.compare(olders, newers)
    return search.pairs()


def exact_cosine(one: Floats, other: Floats) -> float:
    """Return the cosine of two unit vectors, the same whatever else is compared."""
    products = one.astype(np.float64) * other.astype(np.float64)
    return min(round(float(products.sum()), _DIGITS), 1.0)


def _comparison(olders: Ints, newers: Ints, exact_pairs: int) -> Comparison:
    exact = len(olders) * len(newers) <= exact_pairs
    return Comparison(olders, newers, 0 if exact else bits_for(len(newers)))


def _by_cells(comparison: Comparison, vectors: Floats) -> Iterator[tuple[Ints, Ints]]:
    # The newer rows are mostly the older ones again.
    rows = np.union1d(comparison.olders, comparison.newers)
    cells = signatures(vectors, comparison.bits, rows)
    olders, newers = (np.searchsorted(rows, r) for r in (comparison.olders, comparison.newers))
    for table in cells.T:
        yield from shared_cells(table[olders], table[newers])


class _Search:
    """The newest near duplicate of every older row so far. Rows are indices of the comparison."""

    def __init__(self, comparison: Comparison, vectors: Floats, created_at_us: Ints) -> None:
        self._olders, self._newers = comparison.olders, comparison.newers
        self._vectors = vectors
        self._older_us = created_at_us[self._olders]
        self._newer_us = created_at_us[self._newers]
        self._best = np.full(len(self._olders), -1, dtype=np.int64)
        self._similarity = np.zeros(len(self._olders))

    def pairs(self) -> list[NearPair]:
        return [
            NearPair(
                int(self._olders[row]), int(self._newers[self._best[row]]),
                float(self._similarity[row]),
            )
            for row in np.flatnonzero(self._best >= 0)
        ]  # fmt: skip

    def compare(self, olders: Ints, newers: Ints) -> None:
        """Look for newer rows; both ascending, that is, in order of moment."""
        for start in range(0, len(olders), _BLOCK_ROWS):
            rows = olders[start : start + _BLOCK_ROWS]
            late_enough = int(self._older_us[rows[0]]) + LEAST_DAYS * DAY_US
            first = int(np.searchsorted(self._newer_us[newers], late_enough))
            self._compare_block(rows, newers[first:][::-1])

    def _compare_block(self, rows: Ints, newest_first: Ints) -> None:
        # A row that has met its newest near duplicate is done, so a thousand copies of one text
        # cost one block of columns and not a thousand rows.
        for start in range(0, len(newest_first), _BLOCK_COLUMNS):
            columns = newest_first[start : start + _BLOCK_COLUMNS]
            rows = rows[self._best[rows] < columns[0]]
            if not len(rows):
                return
            self._match(rows, columns)

    def _match(self, rows: Ints, columns: Ints) -> None:
        """Note the first column that is near each row and newer than what it has."""
        some, others = self._vectors[self._olders[rows]], self._vectors[self._newers[columns]]
        near = np.nan_to_num(some @ others.T) >= LEAST_SIMILARITY - _SLACK
        if not near.any():
            return
        gaps = self._newer_us[columns][None, :] - self._older_us[rows][:, None]
        near &= (gaps >= LEAST_DAYS * DAY_US) & (columns[None, :] > self._best[rows][:, None])
        for row in np.flatnonzero(near.any(axis=1)).tolist():
            self._note(int(rows[row]), some[row], columns[near[row]])

    def _note(self, row: int, vector: Floats, columns: Ints) -> None:
        for column in columns.tolist():
            similarity = exact_cosine(vector, self._vectors[self._newers[column]])
            if similarity >= LEAST_SIMILARITY:
                self._best[row], self._similarity[row] = column, similarity
                return
