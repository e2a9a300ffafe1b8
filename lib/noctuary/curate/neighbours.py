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
# Memory: 12 bytes per turn and neighbour, and one block of products. Time is a product of the
# numbers of both: of very many candidates only those of the cells next to a turn are compared,
# which may miss a neighbour that lies in none of them. Measured on 100,000 memories: 97 % of the
# five nearest are found, and novelty changes by .0002 on average and by .005 at most.

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

QUERY_ROWS = 256
CANDIDATE_ROWS = 2_048
"""Turns and candidates compared at once: with the merge they bound memory to 10 MB."""

_ROWS_AT_ONCE = 8_192
"""Rows whose cells are found at once: bounds memory at 32 KB per cell."""

_SLACK = 1e-4
"""Above the rounding of a float32 product, whose order of summation depends on the block."""

_DIGITS = 6

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Neighbour(NamedTuple):
    """A row that is like another."""

    cosine: float  # In [-1, 1], to 6 digits
    position: int


class Nearest:
    """The k nearest candidates of every turn, of all that were offered so far."""

    def __init__(self, turns: Ints, vectors: Floats, k: int, least_cosine: float = -1.0) -> None:
        """Start without candidates.

        Args:
            turns: Positions, shape (n,).
            vectors: Unit rows by position, possibly memory-mapped; a row of zeros is at cosine 0 of
                everything.
            k: How many are kept per turn, at least 1.
            least_cosine: What is less is no neighbour.
        """
        self._turns, self._vectors, self._least = turns, vectors, least_cosine
        # Descending, -inf and -1 where there is none.
        self._cosines = np.full((len(turns), k), -np.inf, dtype=np.float32)
        self._positions = np.full((len(turns), k), -1, dtype=np.int64)

    def offer(
        self,
        candidates: Ints,
        rows: Ints | None = None,
        *,
        earlier_only: bool = False,
        probes: int = PROBES,
    ) -> None:
        """Compare turns with candidates, each of which may be offered once.

        Args:
            candidates: Positions, shape (m,).
            rows: Numbers of the turns, ascending; None means all.
            earlier_only: The candidates are the turns: each is compared with those before it only.
            probes: Cells that a turn is compared with where there are too many candidates.
        """
        asking = np.arange(len(self._turns)) if rows is None else rows
        if len(asking) * len(candidates) // (1 + earlier_only) <= EXACT_PAIRS:
            self._compare(asking, candidates, np.arange(len(candidates)), earlier_only)
            return
        turns = self._turns[asking]
        for near, held in _by_cell(turns, candidates, self._vectors, probes):
            self._compare(asking[near], candidates, held, earlier_only)

    def of(self, row: int) -> list[Neighbour]:
        """Return the neighbours of a turn, nearest first; of equal ones, by position."""
        kept = self._positions[row][self._positions[row] >= 0]
        cosines = exact_cosines(self._vectors[self._turns[row]], self._vectors[kept])
        near = [Neighbour(c, int(p)) for c, p in zip(cosines, kept, strict=True)]
        return sorted((n for n in near if n.cosine >= self._least), key=nearness)

    def _compare(self, asking: Ints, candidates: Ints, held: Ints, earlier_only: bool) -> None:
        """Compare some turns with some of the candidates, both by ascending number."""
        for first in range(0, len(asking), QUERY_ROWS):
            rows = asking[first : first + QUERY_ROWS]
            block = np.asarray(self._vectors[self._turns[rows]], dtype=np.float32)
            for start in range(0, len(held), CANDIDATE_ROWS):
                chunk = held[start : start + CANDIDATE_ROWS]
                if earlier_only and chunk[0] >= rows[-1]:
                    break
                found = candidates[chunk]
                products = block @ np.asarray(self._vectors[found], dtype=np.float32).T
                if earlier_only:
                    products[chunk[None, :] >= rows[:, None]] = -np.inf
                self._take(rows, products, found)

    def _take(self, rows: Ints, products: Floats, candidates: Ints) -> None:
        """Keep what is nearer than what is kept; products of shape (rows, candidates)."""
        bar = np.maximum(self._cosines[rows, -1], self._least - _SLACK)
        # Later candidates improve few rows: only those are merged.
        better = np.flatnonzero(products.max(axis=1, initial=-np.inf) > bar)
        rows, k = rows[better], self._cosines.shape[1]
        others = np.broadcast_to(candidates, (len(better), len(candidates)))
        cosines = np.concatenate([self._cosines[rows], products[better]], axis=1)
        positions = np.concatenate([self._positions[rows], others], axis=1)
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(cosines, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        kept = np.take_along_axis(cosines, best, axis=1)
        self._cosines[rows] = kept
        chosen = np.take_along_axis(positions, best, axis=1)
        self._positions[rows] = np.where(np.isneginf(kept), -1, chosen)


def exact_cosines(row: Floats, others: Floats) -> list[float]:
    """Return the cosines of a unit row with others, the same whatever else is compared.

    Args:
        row: Shape (d,).
        others: Shape (m, d).
    """
    products = np.asarray(others, dtype=np.float64) * np.asarray(row, dtype=np.float64)
    return [min(max(round(float(c), _DIGITS), -1.0), 1.0) for c in products.sum(axis=1)]


def nearness(neighbour: Neighbour) -> tuple[float, int]:
    """Return the sort key of neighbours: nearest first, of equal ones by position."""
    return -neighbour.cosine, neighbour.position


def _by_cell(
    turns: Ints, candidates: Ints, vectors: Floats, probes: int
) -> Iterator[tuple[Ints, Ints]]:
    """Yield the numbers of turns next to a cell and of its candidates, both ascending, per cell."""
    count = max(len(candidates) // ROWS_PER_CELL, 1)
    sample = candidates[:: max(len(candidates) // (count * FIT_ROWS_PER_CELL), 1)]
    centroids = fit_centroids(np.asarray(vectors[sample], dtype=np.float32), count)
    near = _nearest_cells(turns, centroids, vectors, min(probes, count))
    own = np.concatenate(
        [
            assign(np.asarray(vectors[part], dtype=np.float32), centroids)
            for part in _parts(candidates)
        ]
    )
    asked, held = np.argsort(near.ravel(), kind="stable"), np.argsort(own, kind="stable")
    numbers = np.arange(count + 1)
    turn_ends = np.searchsorted(near.ravel()[asked], numbers)
    own_ends = np.searchsorted(own[held], numbers)
    for cell in range(count):
        yield (
            asked[turn_ends[cell] : turn_ends[cell + 1]] // near.shape[1],
            held[own_ends[cell] : own_ends[cell + 1]],
        )


def _nearest_cells(turns: Ints, centroids: Floats, vectors: Floats, width: int) -> NDArray[np.intp]:
    """Return the cells nearest to every turn, in no order, shape (n, width)."""
    found = [np.empty((0, width), dtype=np.intp)]
    for part in _parts(turns):
        far = -(np.asarray(vectors[part], dtype=np.float32) @ centroids.T)
        found.append(np.argpartition(far, width - 1, axis=1)[:, :width])
    return np.concatenate(found)


def _parts(rows: Ints) -> Iterator[Ints]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))
