"""What the ledger of a recall says: score breakdowns, the candidate trace, and what hooks hear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from noctuary.core.types import has_hooks
from noctuary.recall.candidates import (
    BREAKDOWN_KEYS,
    Candidates,
    Dropped,
    Ledger,
    Names,
    PositionRef,
    ScoreEvent,
    Scores,
)
from noctuary.recall.engine import BaseRanking, Search, fuse
from noctuary.recall.legs import Leg, path_of
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecalledMemory

LIMIT = "limit"
"""Where a candidate is dropped that no phase dropped: it came after the k that were asked for."""
ARCHIVE = "archive"
"""Where an archived memory is dropped: before anything is ranked."""
TURN_VIEW = "turn_view"
"""Where a turn is dropped whose summary is searched in its place."""

# What every step before the phases contributed.


def record_base(ledger: Ledger, base: BaseRanking, profile: RetrievalProfile) -> None:
    """Note the steps of the base ranking; a rescaling is a step of its own."""
    fusion, bonus = profile.scorer == "fusion", profile.exact_match_bonus
    share = _lexical_share(base, profile) if fusion else np.zeros(base.positions.size)
    ranks = [leg.rank_of() for leg in (base.lexical, base.dense)]
    lifted = base.fused.copy()
    if base.graph is not None:
        lifted[: base.graph.positions.size] += profile.graph_weight * base.graph.added
    exact = 0.0 if base.exact is None else bonus * base.exact
    said_bonus = "bonus for holding every word of the query"
    said_scale = f"all scores are divided by {1.0 + bonus:.3f}"
    steps: list[tuple[str, Scores, Callable[[int], str]]] = [
        ("lexical", share, lambda p: f"lexical rank {ranks[0].get(p, 'none')}"),
        (
            "dense" if fusion else "scorer",
            base.fused,
            lambda p: f"dense rank {ranks[1].get(p, 'none')}",
        ),
        ("graph", lifted, lambda p: _graph_reason(base, p)),
        ("graph_scale", base.with_graph, lambda p: _scale_reason(base, p)),
        ("exact_match", base.with_graph + exact, lambda _: said_bonus),
        ("exact_match_scale", base.matched, lambda _: said_scale),
        ("summary_quality", base.relevance, lambda p: _quality_reason(base, p)),
        ("importance", base.final, lambda _: "importance below 1 takes its share"),
    ]
    for phase, scores, reason_of in steps:
        ledger.record(phase, base.positions, scores, reason_of)


def _lexical_share(base: BaseRanking, profile: RetrievalProfile) -> Scores:
    """Return what the lexical leg contributed to the fused scores; the rest is the dense leg's.

    Both fusions divide the sum of the legs' parts by the weights of the legs that found something.
    """
    if not base.lexical.ranking.size:
        return np.zeros(base.positions.size)
    alone = fuse(base.positions, (base.lexical, Leg.empty()), profile)
    weights = profile.lexical_weight
    if base.dense.ranking.size:
        weights += profile.dense_weight
    return np.minimum(alone * (profile.lexical_weight / weights), base.fused)


def _graph_reason(base: BaseRanking, position: int) -> str:
    path = None if base.graph is None else path_of(base.graph, position)
    return "" if path is None else path.reason


def _scale_reason(base: BaseRanking, position: int) -> str:
    found, said = base.graph, list[str]()
    if found is not None and found.scale > 1.0:
        said.append(f"all scores are divided by {found.scale:.3f}")
    if found is not None and found.talk is not None and position in found.talk.members:
        said.append("members of sessions share out the scores that they had")
    return "; ".join(said)


def _quality_reason(base: BaseRanking, position: int) -> str:
    place = int(np.searchsorted(base.positions, position))
    share = base.relevance[place] / base.matched[place]
    return f"x quality {share:.3f}: a summary counts for what it preserves of its sources"


# Phase 12: score breakdowns and the candidate trace, in the shapes of RFC 914.


class _Explainer(NamedTuple):
    """The score events of a recall by position, and the public ids of whatever they name."""

    events: Mapping[int, Sequence[ScoreEvent]]
    names: Names

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

    def candidate_rows(self, candidates: Candidates) -> Iterator[dict[str, Any]]:
        """Yield id, place, score, breakdown and events of every candidate, best first."""
        for place, (position, score) in enumerate(candidates.score_of().items(), start=1):
            yield {
                "id": self.names.ids[position],
                "place": place,
                "final_score": score,
                "score_breakdown": self.breakdown(position),
                "score_events": list(self.event_rows(position)),
            }

    def drop_row(self, dropped: Dropped, *, with_score: bool) -> dict[str, Any]:
        """Return a dropped candidate in the RFC's shape."""
        row: dict[str, Any] = {
            "memory_id": self.names.ids[dropped.position],
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


def explain(
    search: Search, memories: tuple[RecalledMemory, ...]
) -> tuple[tuple[RecalledMemory, ...], dict[str, Any]]:
    """Return the memories with breakdowns, and what else of a result was asked for.

    The hooks hear of every score event here, whoever else wants to know.
    """
    if has_hooks("post_cross_wing"):
        _fire_balanced(search)
    if not (search.wants_events or search.profile.candidate_trace):
        return memories, {}
    with search.run.step("score_explainability"):
        return _explain(search, memories)


def _explain(
    search: Search, memories: tuple[RecalledMemory, ...]
) -> tuple[tuple[RecalledMemory, ...], dict[str, Any]]:
    profile, candidates, extras = search.profile, search.candidates, dict[str, Any]()
    positions: list[int] = candidates.positions.tolist()
    # Candidates whose events somebody reads in words; None for all of them.
    read = None
    if not (profile.explain and search.query.dry_run) and not has_hooks("post_score_event"):
        read = set(positions[: len(memories)])
    events = search.ledger.events(read) if search.wants_events else {}
    dropped = search.ledger.dropped
    if profile.candidate_trace:
        dropped = [*_find_hidden(search), *dropped, *_beyond_limit(candidates, search.k)]
    told: list[Any] = [event.reason for found in events.values() for event in found]
    told += [value for d in dropped for value in (d.reason, d.facts)]
    named = {*events, *positions, *(d.position for d in dropped)}
    explainer = _Explainer(events, Names.look_up(search.reader, named, told))
    if has_hooks("post_score_event"):
        for position in events:
            for row in explainer.event_rows(position):
                told_of: dict[str, object] = {**row, "memory_id": explainer.names.ids[position]}
                search.run.fire("post_score_event", told_of)
    if profile.explain:
        memories = tuple(
            replace(
                memory,
                score_breakdown=explainer.breakdown(position),
                score_events=explainer.event_rows(position),
            )
            for memory, position in zip(memories, positions, strict=False)
        )
        if search.query.dry_run:
            extras["candidates"] = (
                *explainer.candidate_rows(candidates),
                *(explainer.drop_row(d, with_score=True) for d in search.ledger.dropped),
            )
    if profile.replay_log:
        rows = zip(memories, positions, strict=False)
        # The part of the packet that only the ledger knows; `replay` adds the rest.
        extras["replay_packet"] = {
            "score_events": {str(m.id): list(explainer.event_rows(p)) for m, p in rows}
        }
    if profile.candidate_trace:
        guard = search.guard
        blocked = profile.model_guard_strict
        mismatch = guard is not None and guard.verdict == "MISMATCH"
        extras["candidate_trace"] = (
            *([guard.trace_event(blocked=blocked)] if guard is not None and mismatch else ()),
            *(explainer.drop_row(d, with_score=profile.explain) for d in dropped),
        )
    return memories, extras


def _beyond_limit(candidates: Candidates, k: int) -> list[Dropped]:
    """Return the candidates after the first k as drops."""
    said = f"of {candidates.size}; {k} were asked for"
    return [
        Dropped(LIMIT, position, f"place {place} {said}", score)
        for place, (position, score) in enumerate(candidates.score_of().items(), start=1)
        if place > k
    ]


def _find_hidden(search: Search) -> list[Dropped]:
    """Return the hidden memories that would have been candidates, best first.

    Their score is the one before the phases that they would have had if all that the scope shows
    were searched.
    """
    rows = search.rows
    if rows.hidden is None or search.base is None:
        return []
    ranking, found = search.unhidden(), list[Dropped]()
    for place in ranking.order.tolist():
        position, score = int(ranking.positions[place]), float(ranking.final[place])
        stands = rows.stands_for(position)
        if stands is None:
            continue
        ref = PositionRef(stands)
        if stands >= search.count:
            reason = f"its summary {{{stands}}} is searched in its place"
            found.append(Dropped(TURN_VIEW, position, reason, score, {"summarized_by": ref}))
        else:
            reason = f"archived: {{{stands}}} stands for it"
            found.append(Dropped(ARCHIVE, position, reason, score, {"archived_behind": ref}))
    return found


def _fire_balanced(search: Search) -> None:
    """Tell the hooks of "post_cross_wing" who was there before and after, and how full wings are.

    `wing_saturation_scores` has the share of every wing among what is left (RFC 914, phase 11).
    """
    if search.pipeline.balanced is None:
        return
    sides: list[list[dict[str, Any]]] = []
    for candidates in search.pipeline.balanced:
        ids, scores = search.reader.public_ids(candidates.positions.tolist()), candidates.score_of()
        wings = search.wings_of(candidates.positions)
        sides.append(
            [
                {"id": ids[p], "wing": wing, "score": score}
                for (p, score), wing in zip(scores.items(), wings, strict=True)
            ]
        )
    notes = search.pipeline.notes.get("cross_wing_balancing", {})
    search.run.fire(
        "post_cross_wing",
        {
            "candidates_before": sides[0],
            "candidates_after": sides[1],
            "wing_saturation_scores": notes.get("wing_shares", {}),
        },
    )
