"""Turn after turn: what is durable by then, how new and how often said, and whether G lets it in.

What belongs here: the order of time. A turn is compared with the turns before it, never with itself
or with what came later, and with the durable memories and the turns that were let in before it, as
if the gate had stood there that day. What does not: signals of the text, the formula (`scalar`).

A turn that is let in is kept from being proposed again by being durable from then on: the next one
like it is less novel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mnemon.promote.neighbours import (
    Floats,
    Ints,
    NearestRows,
    Neighbour,
    exact_cosines,
    nearness,
)
from mnemon.promote.scalar import (
    DURABLE_HITS,
    REPEATED_COSINE,
    REPEATED_HITS,
    Gate,
    gate,
    novelty,
    repetition,
    said_something,
)
from mnemon.promote.signals import Signals

BLOCK_ROWS = 256
"""Turns compared at once. More make larger products; the turns of a block are compared with each
other one by one."""

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
    let_in: list[int] = []
    for start in range(0, len(turns), BLOCK_ROWS):
        rows = turns[start : start + BLOCK_ROWS]
        durable = NearestRows(rows, vectors, DURABLE_HITS)
        durable.offer(memories)
        durable.offer(np.asarray(let_in, dtype=np.int64))
        repeated = NearestRows(rows, vectors, REPEATED_HITS, REPEATED_COSINE)
        repeated.offer(turns[: start + len(rows)], first_row=start)
        block = _Block(rows, vectors)
        for i, (kept, said) in enumerate(zip(durable, repeated, strict=True)):
            near = sorted([*kept, *block.let_in_before(i)], key=nearness)[:DURABLE_HITS]
            judged = _judge(int(rows[i]), signals[start + i], near, said, threshold)
            if judged.reason == PROPOSED:
                let_in.append(judged.position)
                block.let_in(i)
            yield judged


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
