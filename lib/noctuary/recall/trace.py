"""Score events of a recall: the base ranking's steps, breakdowns and the candidate trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from noctuary.core.types import has_hooks
from noctuary.recall.legs import GraphRanking, Leg, fuse, path_of
from noctuary.recall.query import Scores
from noctuary.recall.ranking import rank_unhidden
from noctuary.recall.result import MemoryId, RecalledMemory
from noctuary.recall.search import (
    BREAKDOWN_KEYS,
    BaseRanking,
    Dropped,
    PositionRef,
    ScoreEvent,
    Search,
    name_positions,
)
from noctuary.recall.selection import ordinal
from noctuary.recall.support import OTHER_WINGS
from noctuary.text.reach import REASONS

Row = Mapping[str, Any]


def record_base(search: Search, base: BaseRanking, say_near: Callable[[int], str]) -> None:
    """Note the steps of the base ranking; a rescaling is a step of its own."""
    ledger, profile = search.ledger, search.profile
    fusion, bonus, graph = profile.scorer == "fusion", profile.exact_match_bonus, base.graph
    lexical, dense = base.lexical, base.dense
    share, lifted = np.zeros(base.positions.size), base.fused.copy()
    trust, knows = lexical.trust, dense.trust
    said_trust = "" if trust == 1.0 else f"; it holds little of the question (weight x {trust:.2f})"
    said_knows = "" if knows == 1.0 else f"; the encoder reads part of it (weight x {knows:.2f})"
    if fusion and lexical.ranking.size:
        # Both fusions divide the sum of the legs' parts by the weights of the legs that found
        # something; what is not the lexical leg's is the dense leg's.
        alone = fuse(base.positions, (lexical, Leg.empty()), profile)
        own = profile.lexical_weight * trust
        weights = own + (profile.dense_weight * knows if dense.ranking.size else 0.0)
        share = np.minimum(alone * (own / weights), base.fused)
    if graph is not None:
        lifted[: graph.positions.size] += profile.graph_weight * graph.added
    exact = 0.0 if base.exact is None else bonus * base.exact

    def graph_reason(position: int) -> str:
        return "" if graph is None else _say_path(graph, position, say_near)

    def scale_reason(position: int) -> str:
        said: list[str] = []
        if graph is not None and graph.scale > 1.0:
            said.append(f"all scores are divided by {graph.scale:.3f}")
        if graph is not None and (moved := graph.places_in_talk(position)) is not None:
            before, after, size = moved
            went = f"{ordinal(before)} -> {ordinal(after)} of {size}"
            said.append(f"session members exchange their scores: {went}")
        return "; ".join(said)

    def quality_reason(position: int) -> str:
        place = int(np.searchsorted(base.positions, position))
        quality = base.relevance[place] / base.matched[place]
        return f"x quality {quality:.3f}: the summary preserves part of its sources"

    def other_wing(position: int) -> str:
        reason = REASONS[search.reader.reach_at(position)]
        return f"of another wing, here because {reason}: x {OTHER_WINGS:g}"

    prior = base.final if base.anywhere is None else base.anywhere
    steps: list[tuple[str, Scores, Callable[[int], str]]] = [
        ("lexical", share, lambda p: _say_rank("lexical", lexical, p) + said_trust),
        ("dense" if fusion else "scorer", base.fused,
         lambda p: _say_rank("dense", dense, p) + said_knows),
        ("graph", lifted, graph_reason),
        ("graph_scale", base.with_graph, scale_reason),
        ("exact_match", base.with_graph + exact,
         lambda _: "bonus for containing every query word"),
        ("exact_match_scale", base.matched, lambda _: f"all scores are divided by {1 + bonus:.3f}"),
        ("summary_quality", base.relevance, quality_reason),
        ("importance", prior, lambda _: "importance below 1 lowers the score"),
        ("own_wing", base.final, other_wing),
    ]  # fmt: skip
    for phase, scores, reason_of in steps:
        ledger.record(phase, base.positions, scores, reason_of)


def _say_path(graph: GraphRanking, position: int, say_near: Callable[[int], str]) -> str:
    path = path_of(graph, position)
    near = say_near(position) if path is not None and "own_words" in path.shares else ""
    reason = "" if path is None else path.reason
    return f"{reason}; near words: {near}" if near else reason


def _say_rank(name: str, leg: Leg, position: int) -> str:
    ranks = leg.rank_of()
    if position in ranks:
        return f"{name} rank {ranks[position]}"
    score = float(leg.scores_at(np.array([position], dtype=np.int64))[0])
    return f"{name} after rank {len(ranks)} ({score:.3f})"


# Phase 12: score breakdowns and the candidate trace, in the shapes of RFC 914.

LIMIT = "limit"  # drops a candidate that no phase dropped: it came after the k that were asked for
ARCHIVE = "archive"  # drops an archived memory: before anything is ranked
# Drops a turn whose summary is searched in its place, and a summary that gave way to its turns.
TURN_VIEW = "turn_view"


class _Told(NamedTuple):
    """The score events of a recall by position, the public ids of what they name, its texts."""

    events: Mapping[int, Sequence[ScoreEvent]]
    ids: Mapping[int, MemoryId]
    named: Callable[[Any], Any]

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
            {"phase": e.phase, "delta": e.delta, "reason": self.named(e.reason)}
            for e in self.events.get(position, ())
        )

    def candidate_row(self, place: int, position: int, score: float) -> dict[str, Any]:
        """Return a candidate with its place, breakdown and events."""
        return {
            "id": self.ids[position],
            "place": place,
            "final_score": score,
            "score_breakdown": self.breakdown(position),
            "score_events": list(self.event_rows(position)),
        }

    def drop_row(self, dropped: Dropped, *, with_score: bool) -> dict[str, Any]:
        """Return a dropped candidate in the RFC's shape."""
        row: dict[str, Any] = {
            "memory_id": self.ids[dropped.position],
            "dropped_at": dropped.phase,
            "reason": self.named(dropped.reason),
            "score": dropped.score,
            **self.named(dropped.facts),
        }
        if with_score:
            parts = self.breakdown(dropped.position)
            del parts["final_score"]
            row["score_at_drop"] = {**parts, "partial_score": dropped.score}
        return row


def explain(
    search: Search, memories: tuple[RecalledMemory, ...]
) -> tuple[tuple[RecalledMemory, ...], dict[str, Any]]:
    """Return the memories with breakdowns, and what else was asked for; hooks hear the events."""
    if has_hooks("post_cross_wing") and search.ledger.balanced is not None:
        told: dict[str, object] = {}
        names = ("candidates_before", "candidates_after")
        for name, candidates in zip(names, search.ledger.balanced, strict=True):
            ids = search.reader.public_ids(candidates.positions.tolist())
            wings = search.wings_of(candidates.positions)
            told[name] = [
                {"id": ids[p], "wing": wing, "score": score}
                for (p, score), wing in zip(candidates.score_of().items(), wings, strict=True)
            ]
        notes = search.ledger.notes.get("cross_wing_balancing", {})
        # The share of every wing among the remaining candidates (RFC 914, phase 11).
        told["wing_saturation_scores"] = notes.get("wing_shares", {})
        search.run.fire("post_cross_wing", told)
    if not (search.wants_events or search.profile.candidate_trace):
        return memories, {}
    with search.run.step("score_explainability"):
        return _explain(search, memories)


def _explain(
    search: Search, memories: tuple[RecalledMemory, ...]
) -> tuple[tuple[RecalledMemory, ...], dict[str, Any]]:
    profile, scored, extras = search.profile, search.candidates.score_of(), dict[str, Any]()
    positions, dropped = list(scored), search.ledger.dropped
    describes_all, hooked = profile.explain and search.query.dry_run, has_hooks("post_score_event")
    # Candidates whose events somebody reads in words; None for all of them.
    read = None if describes_all or hooked else set(positions[: len(memories)])
    events = search.ledger.events(read) if search.wants_events else {}
    if profile.candidate_trace:
        said = f"of {len(scored)}; {search.k} were asked for"
        beyond = [
            Dropped(LIMIT, position, f"place {place} {said}", score)
            for place, (position, score) in enumerate(scored.items(), start=1)
            if place > search.k
        ]
        dropped = [*_find_hidden(search), *dropped, *beyond]
    texts: list[Any] = [event.reason for found in events.values() for event in found]
    texts += [value for d in dropped for value in (d.reason, d.facts)]
    told = _Told(events, *name_positions(
        search.reader, {*events, *positions, *(d.position for d in dropped)}, texts
    ))  # fmt: skip
    for position in events if hooked else ():
        for row in told.event_rows(position):
            search.run.fire("post_score_event", {**row, "memory_id": told.ids[position]})
    shown = [(m, told.event_rows(p), p) for m, p in zip(memories, positions, strict=False)]
    if profile.explain:
        memories = tuple(
            memory._replace(score_breakdown=told.breakdown(p), score_events=rows)
            for memory, rows, p in shown
        )
    if describes_all:
        extras["candidates"] = (
            *(told.candidate_row(n, *one) for n, one in enumerate(scored.items(), start=1)),
            *(told.drop_row(d, with_score=True) for d in search.ledger.dropped),
        )
    if profile.replay_log:
        # The part of the packet that only the ledger knows; `replay` adds the rest.
        extras["replay_packet"] = {"score_events": {str(m.id): list(rows) for m, rows, _ in shown}}
    if profile.candidate_trace:
        guard, blocked = search.guard, profile.model_guard_strict
        mismatch = guard is not None and guard.verdict == "MISMATCH"
        extras["candidate_trace"] = (
            *([guard.trace_event(blocked=blocked)] if guard is not None and mismatch else ()),
            *(told.drop_row(d, with_score=profile.explain) for d in dropped),
        )
    return memories, extras


def _find_hidden(search: Search) -> Iterator[Dropped]:
    """Yield summaries that gave way to turns, and hidden memories that would be candidates."""
    rows, base = search.rows, search.base
    if rows.hidden is None or base is None:
        return
    opened: list[int] = [] if base.opened is None else base.opened.tolist()
    for summary in opened:
        turns = np.isin(base.positions, search.reader.sources_at(summary))
        best = float(base.final[turns].max(initial=0.0))
        yield Dropped(TURN_VIEW, summary, "its turns took its place; the best had this score", best)
    ranking = rank_unhidden(search)
    for place in ranking.order.tolist():
        position, score = int(ranking.positions[place]), float(ranking.final[place])
        stands = rows.stands_for(position)
        if stands is None or stands in opened:
            continue
        phase, reason, fact = ARCHIVE, f"archived: {{{stands}}} replaces it", "archived_behind"
        if stands >= search.reader.count:
            phase, fact = TURN_VIEW, "summarized_by"
            reason = f"the recall searched its summary {{{stands}}} instead"
        yield Dropped(phase, position, reason, score, {fact: PositionRef(stands)})
