"""From candidates to memories: rows, legs, the graph's path, what the phases did.

What belongs here: what every caller gets to see. What does not: anything that decides who is in it,
and what only some ask for (`telling`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from noctuary.graph.named import mention_span
from noctuary.hooks import has_hooks
from noctuary.recall.asking import Request
from noctuary.recall.base_ranking import BaseRanking
from noctuary.recall.graph_leg import GraphRanking
from noctuary.recall.graph_paths import GraphPath, path_of
from noctuary.recall.ledger import Ledger
from noctuary.recall.legs import Leg
from noctuary.recall.model_guard import GuardResult
from noctuary.recall.phases.base import Candidates
from noctuary.recall.phases.order import Pipeline
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import GraphHit, LegHit, RecalledMemory
from noctuary.recall.run import Run
from noctuary.recall.scope import Mask
from noctuary.recall.sorting import relevance_of
from noctuary.types import DAMAGED_TEXT, from_micros
from noctuary.values import dataclass

if TYPE_CHECKING:
    from noctuary.recall.overlay import Overlay
    from noctuary.recall.searched import Searched


@dataclass(slots=True)
class Answer:
    """What the steps of one recall came to; only as far as they got.

    Attributes:
        candidates: Best first, all of them.
        guard: The model guard's verdict; None where it is off.
        base: The ranking before the phases.
        pipeline: What the phases did.
        ledger: What every step did to every candidate.
        total_in: Candidates before the phases.
        searched: What was searched and what was not; None where the scope says it all.
        unhidden: The ranking before the phases if all that the scope shows were searched; None
            where that is `base`.
        allowed: What the scope shows of the snapshot, archived or not; None for everything.
        overlay: The live rows among the candidates; None where there are none.
    """

    candidates: Candidates
    guard: GuardResult | None = None
    base: BaseRanking | None = None
    pipeline: Pipeline = field(default_factory=Pipeline)
    ledger: Ledger = field(default_factory=Ledger)
    total_in: int = 0
    searched: Searched | None = None
    unhidden: Callable[[], BaseRanking] | None = None
    allowed: Mask | None = None
    overlay: Overlay | None = None

    def view(self, reader: SnapshotReader) -> SnapshotReader:
        """Return where candidates are looked up by position: the snapshot, or it with live rows."""
        return reader if self.overlay is None else self.overlay.view

    @staticmethod
    def nothing() -> Answer:
        """Return the answer before the first step."""
        empty = np.empty(0, dtype=np.int64)
        return Answer(Candidates(empty, np.empty(0), empty.astype(np.bool_)))


def wants_events(profile: RetrievalProfile) -> bool:
    """Say whether anybody will look at score events."""
    return profile.explain or profile.replay_log or has_hooks("post_score_event")


def describe_memories(
    reader: SnapshotReader, run: Run, answer: Answer, k: int
) -> tuple[RecalledMemory, ...]:
    """Return the first k candidates with their texts and what each leg said.

    A damaged text is no candidate any more: the next one takes its place, and a warning says so.
    """
    chosen = answer.candidates.keep(np.arange(answer.candidates.size) < k)
    if answer.base is None or not chosen.size:
        return ()
    positions: list[int] = chosen.positions.tolist()
    rows = reader.describe(positions)
    damaged = [p for p in positions if rows[p]["content"] is DAMAGED_TEXT]
    if damaged:
        ids = ", ".join(str(i) for i in reader.public_ids(damaged).values())
        run.warn(
            "snapshot_damaged",
            f"the text of {ids} is not the one that was published and "
            "was left out: run `noctuary doctor`",
        )
        keep = ~np.isin(answer.candidates.positions, damaged)
        answer.candidates = answer.candidates.keep(keep)
        return describe_memories(reader, run, answer, k)
    relevance = relevance_of(chosen, answer.base).tolist()
    lexical, dense = (_leg_hits(leg, positions) for leg in (answer.base.lexical, answer.base.dense))
    graph_hits = _graph_hits(reader, answer.base.graph, positions)
    notes = answer.pipeline.annotations
    noted = _annotations(reader, {p: notes[p] for p in positions if p in notes})
    sources = {p for row in rows.values() for p in row["sources"]}
    source_ids = reader.public_ids(sources) if sources else {}
    memories: list[RecalledMemory] = []
    for place, position in enumerate(positions):
        row = rows[position]
        memory_id: str = row["memory_id"]
        memories.append(
            RecalledMemory(
                id=memory_id if row["sources"] else reader.public_id(memory_id),
                content=row["content"],
                category=row["category"],
                tags=row["tags"],
                importance=row["importance"],
                created_at=from_micros(row["created_at_us"]),
                wing=row["wing"],
                room=row["room"],
                session_id=row["session_id"],
                user=row["user"],
                final_score=float(chosen.scores[place]),
                relevance=relevance[place],
                lexical=lexical.get(position),
                dense=dense.get(position),
                graph=graph_hits.get(position),
                kind="summary" if row["sources"] else "memory",
                annotations=noted.get(position, {}),
                sources=tuple(source_ids[p] for p in row["sources"]),
                live=row.get("live", False),
            )
        )
    return tuple(memories)


def describe_pipeline(
    request: Request, answer: Answer, memories: tuple[RecalledMemory, ...]
) -> dict[str, Any]:
    """Return what the phases did, as plain values (RFC 914's pipeline_trace)."""
    found_anew = answer.candidates.expanded.tolist()
    expanded = [m.id for m, anew in zip(memories, found_anew, strict=False) if anew]
    return {
        "profile_used": request.profile_used,
        "phases_applied": list(answer.pipeline.applied),
        "phases_skipped": list(answer.pipeline.skipped),
        "total_candidates_in": answer.total_in,
        "total_results_out": len(memories),
        "model_guard": answer.guard.verdict if answer.guard is not None else "OFF",
        "notes": answer.pipeline.notes,
        "expanded": expanded,
    }


def _annotations(
    reader: SnapshotReader, notes: dict[int, dict[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Return what phases noted, with public ids in the place of positions."""
    if not notes:
        return {}
    from noctuary.recall.naming import Names

    names = Names.look_up(reader, (), notes.values())
    return {position: names.plain(fields) for position, fields in notes.items()}


def _leg_hits(leg: Leg, positions: list[int]) -> dict[int, LegHit]:
    """Return what a leg said about those of the positions that it ranked."""
    ranks = leg.rank_of()
    ranked = [p for p in positions if p in ranks]
    if not ranked:
        return {}
    scores: list[float] = leg.scores_at(np.array(ranked, dtype=np.int64)).tolist()
    return {p: LegHit(ranks[p], score) for p, score in zip(ranked, scores, strict=True)}


def _graph_hits(
    reader: SnapshotReader, graph: GraphRanking | None, wanted: list[int]
) -> dict[int, GraphHit]:
    if graph is None:
        return {}
    paths = {p: path for p in wanted if (path := path_of(graph, p)) is not None}
    named = {p for path in paths.values() for p in (path.seed, *path.evidence) if p is not None}
    ids = reader.public_ids(named)
    labels = _labels(reader, paths)
    return {
        position: GraphHit(
            score=path.score,
            seed_id=None if path.seed is None else ids[path.seed],
            relation=path.relation,
            concept=labels[position],
            evidence=tuple(ids[p] for p in path.evidence),
            shares=path.shares,
        )
        for position, path in paths.items()
    }


def _labels(reader: SnapshotReader, paths: Mapping[int, GraphPath]) -> dict[int, str | None]:
    """Return what the evidence of each path calls its concept, None for structural relations.

    The concept's own name may be a spelling that only memories of others use.
    """
    rows = reader.describe({p.evidence[0] for p in paths.values() if p.concept >= 0})
    labels: dict[int, str | None] = {}
    for position, path in paths.items():
        span = None
        if path.concept >= 0:
            span = mention_span(path.concept, path.evidence[0], reader.mentions)
        if span is None:
            labels[position] = reader.concept_name(path.concept)
        else:
            labels[position] = rows[path.evidence[0]]["content"][slice(*span)]
    return labels
