"""Score breakdowns, the candidate trace, and what was found but not searched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from noctuary.core.types import has_hooks
from noctuary.recall.candidates import (
    BREAKDOWN_KEYS,
    Candidates,
    Dropped,
    Names,
    PositionRef,
    ScoreEvent,
)
from noctuary.recall.engine import Answer, wants_events
from noctuary.recall.hidden import Searched
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import RecallRun, Request
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecalledMemory

# Phase 12: score breakdowns and the candidate trace, in the shapes of RFC 914.


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


# What a recall found but does not search: archived memories, and turns behind their summary.


ARCHIVE = "archive"
"""Where an archived memory is dropped: before anything is ranked."""

TURN_VIEW = "turn_view"
"""Where a turn is dropped whose summary is searched in its place."""


def hidden_behind(reader: SnapshotReader, searched: Searched, position: int) -> PositionRef | None:
    """Return what stands for a memory that is not searched; None where it is searched itself."""
    successor = None if searched.archived is None else searched.archived.successor_of(position)
    if successor is not None:
        return PositionRef(successor)
    if position < reader.count and searched.covered is not None and searched.covered[position]:
        asked = np.array([position], dtype=np.int64)
        return PositionRef(reader.summaries.of_sources(asked)[position].position)
    return None


def find_hidden(reader: SnapshotReader, answer: Answer) -> list[Dropped]:
    """Return the hidden memories that would have been candidates, best first.

    Their score is the one before the phases that they would have had if all that the scope shows
    were searched.
    """
    searched = answer.searched
    if searched is None or answer.unhidden is None or searched.memories is None:
        return []
    ranking = answer.unhidden()
    found: list[Dropped] = []
    for place in ranking.order.tolist():
        position = int(ranking.positions[place])
        stands = hidden_behind(reader, searched, position)
        if stands is not None:
            found.append(_dropped(position, stands, float(ranking.final[place]), reader.count))
    return found


def _dropped(position: int, stands: PositionRef, score: float, count: int) -> Dropped:
    if stands.position >= count:
        reason = f"its summary {{{stands.position}}} is searched in its place"
        return Dropped(TURN_VIEW, position, reason, score, {"summarized_by": stands})
    reason = f"archived: {{{stands.position}}} stands for it"
    return Dropped(ARCHIVE, position, reason, score, {"archived_behind": stands})


# What only some ask for: explanations, the candidate trace, and what hooks are told.


def fire_balanced(reader: SnapshotReader, run: RecallRun, answer: Answer) -> None:
    """Tell the hooks of "post_cross_wing" who was there before and after, and how full wings are.

    `wing_saturation_scores` has the share of every wing among what is left (RFC 914, phase 11).
    """
    if answer.pipeline.balanced is None or not has_hooks("post_cross_wing"):
        return
    wings = reader.facets["wing"]
    sides: list[list[dict[str, Any]]] = []
    for candidates in answer.pipeline.balanced:
        ids = reader.public_ids(candidates.positions.tolist())
        codes = reader.codes_at("wing", candidates.positions).tolist()
        sides.append(
            [
                {"id": ids[p], "wing": None if code < 0 else wings.values[code], "score": score}
                for p, code, score in zip(
                    candidates.positions.tolist(), codes, candidates.scores.tolist(), strict=True
                )
            ]
        )
    notes = answer.pipeline.notes.get("cross_wing_balancing", {})
    run.fire(
        "post_cross_wing",
        {
            "candidates_before": sides[0],
            "candidates_after": sides[1],
            "wing_saturation_scores": notes.get("wing_shares", {}),
        },
    )


def explain_answer(
    reader: SnapshotReader,
    request: Request,
    run: RecallRun,
    answer: Answer,
    memories: tuple[RecalledMemory, ...],
) -> tuple[tuple[RecalledMemory, ...], dict[str, Any]]:
    """Return the memories with breakdowns, and what else of a result was asked for.

    The hooks hear of every score event here, whoever else wants to know.
    """
    profile, extras = request.profile, dict[str, Any]()
    described = _described(request, answer, len(memories))
    events = answer.ledger.events(described) if wants_events(profile) else {}
    dropped = answer.ledger.dropped
    if profile.candidate_trace:
        dropped = [
            *find_hidden(reader, answer), *dropped, *beyond_limit(answer.candidates, request.k)
        ]  # fmt: skip
    explainer = Explainer.of(events, dropped, reader, answer.candidates.positions.tolist())
    _fire_events(run, explainer)
    if profile.explain:
        positions = answer.candidates.positions.tolist()
        memories = tuple(
            replace(
                memory,
                score_breakdown=explainer.breakdown(position),
                score_events=explainer.event_rows(position),
            )
            for memory, position in zip(memories, positions, strict=False)
        )
        if request.dry_run:
            extras["candidates"] = (
                *explainer.candidate_rows(answer.candidates),
                *(explainer.drop_row(d, with_score=True) for d in answer.ledger.dropped),
            )
    if profile.replay_log:
        rows = zip(memories, answer.candidates.positions.tolist(), strict=False)
        # The part of the packet that only the ledger knows; `replaying.packet` adds the rest.
        extras["replay_packet"] = {
            "score_events": {str(m.id): list(explainer.event_rows(p)) for m, p in rows}
        }
    if profile.candidate_trace:
        extras["candidate_trace"] = (
            *guard_rows(answer, profile),
            *(explainer.drop_row(d, with_score=profile.explain) for d in dropped),
        )
    return memories, extras


def _described(request: Request, answer: Answer, shown: int) -> set[int] | None:
    """Return the candidates whose events somebody reads in words; None for all of them."""
    if (request.profile.explain and request.dry_run) or has_hooks("post_score_event"):
        return None
    return set(answer.candidates.positions[:shown].tolist())


def guard_rows(answer: Answer, profile: RetrievalProfile) -> list[dict[str, Any]]:
    """Return the model guard's line of a candidate trace, if it has one."""
    if answer.guard is None or answer.guard.verdict != "MISMATCH":
        return []
    return [answer.guard.trace_event(blocked=profile.model_guard_strict)]


def _fire_events(run: RecallRun, explainer: Explainer) -> None:
    if not has_hooks("post_score_event"):
        return
    for position in explainer.events:
        for row in explainer.event_rows(position):
            run.fire("post_score_event", {**row, "memory_id": explainer.names.of(position)})
