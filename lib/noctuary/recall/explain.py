"""Phase 12: score breakdowns and the candidate trace, in the shapes of RFC 914.

What belongs here: turning the ledger into plain values with public ids. What does not: keeping it
(`ledger`), printing it (the command line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from noctuary.recall.naming import Names
from noctuary.recall.phases.base import BREAKDOWN_KEYS, Candidates, Dropped, ScoreEvent
from noctuary.recall.reader import SnapshotReader

LIMIT = "limit"
"""Where a candidate is dropped that no phase dropped: it came after the k that were asked for."""


class Explainer(NamedTuple):
    """Explanations of one recall.

    Attributes:
        events: Position -> what happened to its score, in order.
        names: Public ids.
    """

    events: Mapping[int, Sequence[ScoreEvent]]
    names: Names

    @staticmethod
    def of(
        events: Mapping[int, Sequence[ScoreEvent]],
        dropped: Sequence[Dropped],
        reader: SnapshotReader,
        shown: Iterable[int] = (),
    ) -> Explainer:
        """Look up every memory that the explanations name.

        Args:
            events: Position -> what happened to its score.
            dropped: What steps removed.
            reader: The snapshot.
            shown: Further positions: a candidate whose score stayed 0 has no event.
        """
        told: list[Any] = [event.reason for found in events.values() for event in found]
        told += [value for d in dropped for value in (d.reason, d.facts)]
        positions = {*events, *shown, *(d.position for d in dropped)}
        return Explainer(events, Names.look_up(reader, positions, told))

    def breakdown(self, position: int) -> dict[str, float]:
        """Return the sum of the deltas by kind, and their total as "final_score"."""
        sums: dict[str, float] = {}
        for event in self.events.get(position, ()):
            key = BREAKDOWN_KEYS[event.phase]
            sums[key] = sums.get(key, 0.0) + event.delta
        return {**sums, "final_score": sum(sums.values())}

    def event_rows(self, position: int) -> tuple[dict[str, Any], ...]:
        """Return phase, delta and reason of every event."""
        return tuple(
            {"phase": e.phase, "delta": e.delta, "reason": self.names.text(e.reason)}
            for e in self.events.get(position, ())
        )

    def candidate_rows(self, candidates: Candidates) -> tuple[dict[str, Any], ...]:
        """Return id, place, score, breakdown and events of every candidate, best first."""
        return tuple(
            {
                "id": self.names.of(position),
                "place": place,
                "final_score": score,
                "score_breakdown": self.breakdown(position),
                "score_events": list(self.event_rows(position)),
            }
            for place, (position, score) in enumerate(
                zip(candidates.positions.tolist(), candidates.scores.tolist(), strict=True), start=1
            )
        )

    def drop_row(self, dropped: Dropped, *, with_score: bool) -> dict[str, Any]:
        """Return a dropped candidate in the RFC's shape."""
        row: dict[str, Any] = {
            "memory_id": self.names.of(dropped.position),
            "dropped_at": dropped.phase,
            "reason": self.names.text(dropped.reason),
            "score": dropped.score,
            **self.names.plain(dropped.facts),
        }
        if with_score:
            parts = self.breakdown(dropped.position)
            del parts["final_score"]
            row["score_at_drop"] = {**parts, "partial_score": dropped.score}
        return row


def beyond_limit(candidates: Candidates, k: int) -> list[Dropped]:
    """Return the candidates after the first k as drops."""
    rows = zip(candidates.positions.tolist(), candidates.scores.tolist(), strict=True)
    return [
        Dropped(LIMIT, position, f"place {place} of {candidates.size}; {k} were asked for", score)
        for place, (position, score) in enumerate(rows, start=1)
        if place > k
    ]
