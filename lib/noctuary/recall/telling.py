"""What only some ask for: explanations, the candidate trace, and what hooks are told.

What belongs here: putting it together from the ledger. A recall that nobody looks at never loads
this module. What does not: the shapes themselves (`explain`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from noctuary.hooks import has_hooks
from noctuary.recall.answer import Answer, wants_events
from noctuary.recall.asking import Request
from noctuary.recall.explain import Explainer, beyond_limit
from noctuary.recall.hidden import find_hidden
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecalledMemory
from noctuary.recall.run import Run


def fire_balanced(reader: SnapshotReader, run: Run, answer: Answer) -> None:
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
    run: Run,
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


def _fire_events(run: Run, explainer: Explainer) -> None:
    if not has_hooks("post_score_event"):
        return
    for position in explainer.events:
        for row in explainer.event_rows(position):
            run.fire("post_score_event", {**row, "memory_id": explainer.names.of(position)})
