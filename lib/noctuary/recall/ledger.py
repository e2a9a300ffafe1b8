"""What every step did to every candidate: kept as arrays, told only to who asks.

What belongs here: running differences and where candidates were lost. What does not: how a step
computes, or how an explanation looks. Keeping the ledger changes nothing: it only holds on to
arrays that exist anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import field
from typing import NamedTuple

import numpy as np

from noctuary.recall.phases.base import Dropped, Positions, ScoreEvent, Scores
from noctuary.values import dataclass

ReasonOf = Callable[[int], str]

_SAME = 1e-15
"""A change of a score below this is float64 rounding, not an event."""


class Entry(NamedTuple):
    """One step: the scores that it left behind, and why.

    Attributes:
        phase: Its name.
        positions: Whom it left, shape (m,).
        scores: Their scores after it, shape (m,).
        reason_of: Why the score of a position changed.
    """

    phase: str
    positions: Positions
    scores: Scores
    reason_of: ReasonOf


@dataclass(slots=True)
class Ledger:
    """The steps of one recall in order, and what they dropped."""

    entries: list[Entry] = field(default_factory=list[Entry])
    dropped: list[Dropped] = field(default_factory=list[Dropped])

    def record(self, phase: str, positions: Positions, scores: Scores, why: ReasonOf) -> None:
        """Note the scores after a step."""
        self.entries.append(Entry(phase, positions, scores, why))

    def events(self, reasoned: Container[int] | None = None) -> dict[int, list[ScoreEvent]]:
        """Return every memory's events in order; their deltas sum to its last score.

        A memory that a step left alone has no event there; one that came in late starts from 0.

        Args:
            reasoned: Memories whose events get their reasons, the others' are "": a reason may cost
                more than the step that it explains. None gives every event its reason.
        """
        found: dict[int, list[ScoreEvent]] = {}
        last: dict[int, float] = {}
        for entry in self.entries:
            for position, score in _pairs(entry):
                before = last.get(position, 0.0)
                last[position] = score
                if abs(score - before) > _SAME:
                    told = reasoned is None or position in reasoned
                    reason = entry.reason_of(position) if told else ""
                    event = ScoreEvent(entry.phase, position, score - before, reason)
                    found.setdefault(position, []).append(event)
        return found


def _pairs(entry: Entry) -> Iterator[tuple[int, float]]:
    return zip(entry.positions.tolist(), np.asarray(entry.scores).tolist(), strict=True)
