"""Turn after turn: what is durable by then, how new and how often said, and whether G lets it in.

What belongs here: the order of time. A turn is compared with the turns before it, never with itself
or with what came later, and with the durable memories and the turns that were let in before it, as
if the gate had stood there that day. What does not: signals of the text, the formula (`scalar`).

Of a user with very many turns and memories the nearest are sought in cells (`nearby_cells`), which
may miss some; below `EXACT_PAIRS` pairs, everything is compared.

A turn that is let in is kept from being proposed again by being durable from then on: the next one
like it is less novel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from noctuary.promote.nearby_cells import (
    ALIKE_PROBES,
    Cells,
    fit_cells,
    nearest_by_cells,
    needs_cells,
)
from noctuary.promote.neighbours import (
    Best,
    Floats,
    Ints,
    NearestRows,
    Neighbour,
    exact_cosines,
    nearness,
)
from noctuary.promote.scalar import (
    DURABLE_HITS,
    REPEATED_COSINE,
    REPEATED_HITS,
    Gate,
    gate,
    novelty,
    repetition,
    said_something,
)
from noctuary.promote.signals import Signals

BLOCK_ROWS = 256
"""Turns compared at once. More make larger products; the turns of a block are compared with each
other one by one."""

STRETCH_ROWS = 32 * BLOCK_ROWS
"""Turns between two lookups of what was let in before, by cells: fewer look more often, more leave
more for one-by-one comparisons."""

EXACT_ROWS = 8_192
"""Earlier turns, and let-in turns, up to which each turn is compared with all of them: cells would
look at as many."""

PROPOSED = "proposed"
BELOW_THRESHOLD = "below_threshold"
NOTHING_SAID = "nothing_said"
"""Why a turn is, or is not, proposed. The last: G would do, but only for being new or repeated."""


class Judged(NamedTuple):
    """What the gate made of one turn.

    Attributes:
        position: Its row.
        h: Novelty.
        r: Repetition.
        gate: G and its branches.
        reason: One of the three above.
        durable: Nearest durable rows, at most `DURABLE_HITS`, whatever their cosine.
        repeated: Nearest earlier turns of `REPEATED_COSINE` and more, at most `REPEATED_HITS`.
    """

    position: int
    h: float
    r: float
    gate: Gate
    reason: str
    durable: tuple[Neighbour, ...]
    repeated: tuple[Neighbour, ...]


def walk(
    turns: Ints,
    signals: Sequence[Signals],
    memories: Ints,
    vectors: Floats,
    threshold: float,
) -> Iterator[Judged]:
    """Yield the judgement of every turn of one user, in order of time.

    Args:
        turns: Positions of what this user's people said, oldest first, shape (n,).
        signals: What their words say, as many.
        memories: Positions of the durable memories that this user may see, shape (m,).
        vectors: Unit rows by position.
        threshold: Least G that lets in, in [0, 1].
    """
    near = _Around(turns, memories, vectors)
    let_in: list[int] = []
    for start in range(0, len(turns), BLOCK_ROWS):
        rows = turns[start : start + BLOCK_ROWS]
        durable, repeated = near.of_block(start, rows, let_in)
        block = _Block(rows, vectors)
        for i, (kept, said) in enumerate(zip(durable, repeated, strict=True)):
            found = sorted([*kept, *block.let_in_before(i)], key=nearness)[:DURABLE_HITS]
            judged = _judge(int(rows[i]), signals[start + i], found, said, threshold)
            if judged.reason == PROPOSED:
                let_in.append(judged.position)
                block.let_in(i)
            yield judged


class _Around:
    """What surrounds the turns of one user: compared with everything, or with near cells."""

    def __init__(self, turns: Ints, memories: Ints, vectors: Floats) -> None:
        """Look up what does not depend on the order of time where there is too much of it."""
        self._turns, self._memories, self._vectors = turns, memories, vectors
        self._durable = self._repeated = self._let_in = self._turn_cells = None
        self._in_cells = 0
        if needs_cells(len(turns), len(memories)):
            best = Best(len(turns), DURABLE_HITS)
            cells = fit_cells(turns, memories, vectors)
            self._durable = nearest_by_cells(turns, cells, memories, vectors, best)
        if needs_cells(len(turns), len(turns) // 2):
            best = Best(len(turns), REPEATED_HITS, REPEATED_COSINE)
            self._turn_cells = fit_cells(turns, turns, vectors)
            alike = self._turn_cells.narrowed(ALIKE_PROBES)
            self._repeated = nearest_by_cells(turns, alike, turns, vectors, best, earlier_only=True)

    def of_block(
        self, start: int, rows: Ints, let_in: Sequence[int]
    ) -> tuple[NearestRows, NearestRows]:
        """Return the nearest durable rows and earlier turns of a block, but for its own let-ins.

        Args:
            start: Number of its first turn.
            rows: Its turns.
            let_in: What was let in before it.
        """
        part = slice(start, start + len(rows))
        durable = NearestRows(rows, self._vectors, DURABLE_HITS)
        if self._durable is None:
            durable.offer(self._memories)
        else:
            durable.join(self._durable.cosines[part], self._durable.positions[part])
        self._offer_let_in(start, durable, let_in)
        repeated = NearestRows(rows, self._vectors, REPEATED_HITS, REPEATED_COSINE)
        if self._repeated is None or part.stop <= EXACT_ROWS:
            repeated.offer(self._turns[: part.stop], first_row=start)
        else:
            repeated.join(self._repeated.cosines[part], self._repeated.positions[part])
        return durable, repeated

    def _offer_let_in(self, start: int, durable: NearestRows, let_in: Sequence[int]) -> None:
        """Offer what was let in: of much, what was there before this stretch of turns by cells."""
        if start % STRETCH_ROWS == 0 and self._turn_cells and len(let_in) > EXACT_ROWS:
            self._look_up_let_in(start, self._turn_cells, let_in)
        if self._let_in is not None:
            first = start % STRETCH_ROWS
            part = slice(first, first + BLOCK_ROWS)
            durable.join(self._let_in.cosines[part], self._let_in.positions[part])
        durable.offer(np.asarray(let_in[self._in_cells :], dtype=np.int64))

    def _look_up_let_in(self, start: int, cells: Cells, let_in: Sequence[int]) -> None:
        part = slice(start, start + STRETCH_ROWS)
        stretch, probed = self._turns[part], cells.of_turns(part)
        best = Best(len(stretch), DURABLE_HITS)
        rows = np.asarray(let_in, dtype=np.int64)
        self._let_in = nearest_by_cells(stretch, probed, rows, self._vectors, best)
        self._in_cells = len(let_in)


class _Block:
    """The turns of one block among each other."""

    def __init__(self, rows: Ints, vectors: Floats) -> None:
        self._rows = rows
        self._vectors = np.asarray(vectors[rows], dtype=np.float32)
        self._let_in: list[int] = []

    def let_in(self, i: int) -> None:
        """Note that row i is durable from now on."""
        self._let_in.append(i)

    def let_in_before(self, i: int) -> list[Neighbour]:
        """Return the rows that were let in so far, with their cosine to row i."""
        cosines = exact_cosines(self._vectors[i], self._vectors[self._let_in])
        return [
            Neighbour(c, int(self._rows[j])) for c, j in zip(cosines, self._let_in, strict=True)
        ]


def _judge(
    position: int,
    signals: Signals,
    durable: Sequence[Neighbour],
    repeated: Sequence[Neighbour],
    threshold: float,
) -> Judged:
    kept = [n.cosine for n in durable]
    h = round(novelty(kept), 6)
    r = round(repetition([n.cosine for n in repeated], kept), 6)
    found = gate(signals, h, r)
    reason = PROPOSED
    if found.g < threshold:
        reason = BELOW_THRESHOLD
    elif not said_something(signals):
        reason = NOTHING_SAID
    return Judged(position, h, r, found, reason, tuple(durable), tuple(repeated))
