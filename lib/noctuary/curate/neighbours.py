"""Which turns the ingestion gate hears, and what each is like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.embed.rotation import FIT_ROWS_PER_CELL, assign, fit_centroids
from noctuary.text.marks import split_speaker

# Which turns count: those that a person says, by the label before the first colon.


MACHINE_SPEAKERS = frozenset(
    {
        "agent", "ai", "assistant", "bot", "chatbot", "chatgpt", "claude", "codex", "command",
        "copilot", "cursor", "developer", "function", "gemini", "gpt", "hook", "llm", "model",
        "output", "result", "subagent", "summary", "system", "tool", "tool result", "tool use",
    }
)  # fmt: skip
"""Labels of whatever is no person, folded. A person of such a name ("Claude") is not heard: a
proposal that is missing costs less than one that a machine wrote."""


def read_statement(content: str) -> str | None:
    """Return what a person says in a turn, or None where no person is known to say it.

    Every named person counts, so that in a conversation between two people both do. A turn without
    a label does not: it may be an answer.
    """
    speaker, text = split_speaker(content)
    if speaker is None:
        return None
    # "Assistant (planner)" is an assistant.
    name = speaker.split("(")[0].replace("_", " ").replace("-", " ").strip().casefold()
    return None if name in MACHINE_SPEAKERS else text.strip()


# What is like a turn: its nearest earlier turns and durable memories by the night's vectors.
#
# Memory is bounded by the blocks; time is a product of the numbers of both, so that of very many
# candidates only some are compared (`nearby_cells`).


CANDIDATE_ROWS = 2_048
"""Candidates compared at once: with the rows of a block they bound memory to a few megabytes."""

_SLACK = 1e-4
"""Above the rounding of a float32 product, whose order of summation depends on the block."""

_DIGITS = 6

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Neighbour(NamedTuple):
    """A row that is like another."""

    cosine: float  # In [-1, 1], to 6 digits
    position: int  # Its row


class Best:
    """The k nearest candidates of some rows, of all that were taken so far.

    Attributes:
        cosines: Descending, -inf where there is none, float32, shape (n, k).
        positions: Of the candidates, -1 where there is none, int64, shape (n, k).
    """

    def __init__(self, n_rows: int, k: int, least_cosine: float = -1.0) -> None:
        """Start without candidates."""
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


# Which rows are worth comparing where there are too many: those of the cells next to a turn.
#
# Memory: 12 bytes per turn and neighbour, 4 per turn and probe, and one cell.
#
# What it may miss: a neighbour that lies in none of the PROBES cells nearest to the turn. Measured
# on 100,000 memories: 97 % of the five nearest are found, and novelty changes by .0002 on average
# and by .005 at most.


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
    """Cells fitted to some rows, as turns see them."""

    centroids: Floats  # Unit directions, float32, shape (c, d)
    probes: Probes  # The cells nearest to every turn, nearest first, shape (n_turns, p)

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
