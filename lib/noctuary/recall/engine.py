"""One recall over one pinned snapshot: scope, guard, legs, fusion, phases, answer."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.store import StorePaths, find_home, find_store, last_night_hours
from noctuary.core.types import DAMAGED_TEXT, dataclass, from_micros, has_hooks, to_micros
from noctuary.graph.walk import mention_span
from noctuary.recall.candidates import (
    Candidates,
    Ledger,
    PhaseContext,
    Pipeline,
    Positions,
    Scores,
    run_phases,
)
from noctuary.recall.inputs import LiveWorld, World
from noctuary.recall.legs import GraphPath, GraphRanking, Leg, path_of
from noctuary.recall.profile import RAW, RetrievalProfile
from noctuary.recall.query import (
    Mask,
    RecallRun,
    Request,
    Scope,
    aware,
    build_mask,
    check_arguments,
    private_mask,
)
from noctuary.recall.query_encoder import GuardResult, guard_model
from noctuary.recall.ranking import (
    BaseRanker,
    BaseRanking,
    SnapshotLookups,
    record_base,
    relevance_of,
    sort_candidates,
)
from noctuary.recall.reader import SnapshotGraph, SnapshotReader, open_serving
from noctuary.recall.result import (
    Answerability,
    GraphHit,
    LegHit,
    RecalledMemory,
    RecallResult,
    RecallWarning,
)
from noctuary.usage.reader import UsageReader

if TYPE_CHECKING:
    from noctuary.compact.archive import ArchiveReader
    from noctuary.recall.hidden import Archived, Searched
    from noctuary.recall.inputs import Use
    from noctuary.recall.live import Overlay


# From candidates to memories: rows, legs, the graph's path, what the phases did.


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
    reader: SnapshotReader, run: RecallRun, answer: Answer, k: int
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
    from noctuary.recall.candidates import Names

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


# One recall over one pinned snapshot: scope, guard, base ranking, phases, order, description.
#
# Raises nothing for bad data.


class Recaller:
    """Answers queries from one pinned snapshot of one store; safe to share between threads.

    Attributes:
        may_warm: Whether ONNX Runtime may take over encoding; what must be reproducible to the last
            digit (an evaluation) leaves it off.
        calibration: The snapshot's thresholds for abstaining; None judges no answerability.
    """

    def __init__(
        self, paths: StorePaths, reader: SnapshotReader, snapshot_id: str, *, may_warm: bool = False
    ) -> None:
        self.paths = paths
        self.reader = reader
        self.snapshot_id = snapshot_id
        self.may_warm = may_warm
        self.calibration = reader.calibration
        self._graph = SnapshotGraph(reader)
        self._usage: UsageReader | None = None
        self._archive: ArchiveReader | None = None
        self._archived: tuple[str, Archived] | None = None

    @staticmethod
    def open(store_dir: Path) -> Recaller:
        """Pin the serving snapshot of a store.

        Raises:
            StoreError: If nothing is published or nothing published can be opened.
        """
        paths = StorePaths(store_dir)
        opened = open_serving(paths)
        return Recaller(paths, opened.reader, opened.snapshot_id)

    def live_world(self, user: str | None = None) -> World:
        """Return the world as this store has it now, with what it may tell a user about use."""
        # One usage file for the whole recall, even if a night ends meanwhile.
        usage = cache(lambda: self._use_of(user))
        return LiveWorld(self.paths, self.reader.manifest, usage, self.may_warm, self._archive_now)

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        profile: RetrievalProfile | None = None,
        profile_used: str = "default",
        scope: Scope | None = None,
        sort_by: str = "relevance",
        deadline_ms: float | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        world: World | None = None,
    ) -> RecallResult:
        """Return the k best memories for a query.

        Args:
            query: Any text; blank text finds nothing and says so.
            k: How many, >= 0; more than the store holds returns all that match.
            profile: How to rank; None means the built-in default.
            profile_used: What the profile is called, for the trace.
            scope: Filters, applied before ranking in every leg.
            sort_by: "relevance", "importance" (0.4 relevance + 0.6 importance) or "recency".
            deadline_ms: After this much wall time remaining steps are skipped with a warning.
            session_id: The active conversation.
            dry_run: With the profile's `explain`, describe every candidate.
            world: What changes besides the snapshot; None means the store's own, as it is now.

        Raises:
            ValueError: If k is negative or sort_by is unknown.
        """
        scope = scope or Scope()
        check_arguments(query, k, sort_by, scope, deadline_ms, session_id)
        request = Request(
            query, k, profile or RetrievalProfile(), profile_used, scope, sort_by, session_id,
            dry_run,
        )  # fmt: skip
        run = RecallRun(time.perf_counter(), deadline_ms)
        world = world or self.live_world(scope.user)
        return self._result(run, request, world, self._answer(run, request, world))

    def rank(
        self, query: str, k: int, *, profile: RetrievalProfile, scope: Scope | None = None
    ) -> list[tuple[str, float]]:
        """Return ids, as text, and final scores of what `recall` returns, in its order.

        No text is read and nothing judged: for an evaluation, which asks a thousand times.

        Raises:
            ValueError: If k is negative.
        """
        scope = scope or Scope()
        check_arguments(query, k, "relevance", scope, None, None)
        request = Request(query, k, profile, "default", scope, "relevance", None, False)
        world = self.live_world(scope.user)
        answer = self._answer(RecallRun(time.perf_counter(), None), request, world)
        best = answer.candidates.keep(np.arange(answer.candidates.size) < k)
        positions: list[int] = best.positions.tolist()
        named = answer.view(self.reader).public_ids(positions)
        return [(str(named[p]), float(s)) for p, s in zip(positions, best.scores, strict=True)]

    def _answer(self, run: RecallRun, request: Request, world: World) -> Answer:
        answer = Answer.nothing()
        if not request.query.strip():
            run.warn("empty_query", "the query holds no text")
            return answer
        if request.k == 0:
            return answer
        with run.step("scope"):
            mask = self._in_scope(run, request, world, answer)
            if mask is not None and not mask.any() and answer.overlay is None:
                return answer
            answer.allowed = mask
            answer.searched = self.find_searched(request.profile, world, mask)
        if self._archive is not None and self._archive.warning is not None:
            run.warn("archive_unreadable", self._archive.warning)
        if answer.searched is not None:
            if answer.searched.is_empty and answer.overlay is None:
                return answer
            mask = answer.searched.memories
        answer.guard = self._guard(run, request.profile, world)
        if answer.guard is not None and answer.guard.verdict == "MISMATCH":
            strict = request.profile.model_guard_strict
            code = "model_guard_blocked" if strict else "model_mismatch"
            rest = "nothing is returned" if strict else "answered without the dense leg"
            run.warn(code, f"{answer.guard.message}; {rest}")
            if strict:
                return answer
        self._rank(run, request, world, mask, answer)
        if self._usage is not None and self._usage.warning and not self._usage.is_missing:
            run.warn("usage_unreadable", self._usage.warning)
        return answer

    def _in_scope(
        self, run: RecallRun, request: Request, world: World, answer: Answer
    ) -> Mask | None:
        """Return what may be seen of the snapshot, and lay what the store has beyond it over it."""
        reader = self.reader
        mask, warnings = build_mask(request.scope, reader.facets, reader.created_at_us)
        state = world.live()
        if state is not None:
            from noctuary.recall.live import lay_over

            mask, warnings = lay_over(run, request, world, reader, state, mask, warnings, answer)
        run.extend(warnings)
        return mask

    def _guard(self, run: RecallRun, profile: RetrievalProfile, world: World) -> GuardResult | None:
        if not profile.model_guard or profile.dense_weight <= 0:
            return None
        with run.step("model_guard"):
            result = guard_model(self.reader.manifest.encoder, world.encoder())
        run.fire("post_model_guard", result.hook_context())
        return result

    def _rank(
        self, run: RecallRun, request: Request, world: World, mask: Mask | None, answer: Answer
    ) -> None:
        blind = answer.guard is not None and answer.guard.verdict == "MISMATCH"

        def encode(text: str) -> NDArray[np.float32]:
            return world.query_vector(text, run.left_ms())

        as_of, view = request.scope.as_of, answer.view(self.reader)
        now_us = to_micros(aware(as_of)) if as_of is not None else world.now_us()
        scorer = None
        if request.profile.scorer != "fusion":
            from noctuary.recall.scorers import Scorer

            scorer = Scorer(request, view, world, now_us, answer.overlay)
        moment = None if as_of is None else now_us
        searched = answer.searched
        ranker = BaseRanker(
            self.reader, self._graph, request.profile, mask,
            None if blind else encode, scorer, moment,
            None if searched is None else searched.summaries, answer.overlay,
        )  # fmt: skip

        def search(text: str, depth: int) -> tuple[Positions, Scores]:
            found = ranker.rank(run, text, depth)
            return found.positions[found.order], found.final[found.order]

        lookups = SnapshotLookups(
            view,
            world,
            mask,
            request.query,
            request.profile,
            request.scope.user,
            run,
            search,
            searched,
        )
        depth = request.depth(self.reader.count + view.end - self.reader.end)
        if searched is not None:
            unhidden = ranker._replace(mask=searched.allowed, summaries=None, overlay=None)
            # Its own clock and warnings: it explains the recall and is no part of it.
            apart = RecallRun(time.perf_counter(), None)
            answer.unhidden = lambda: unhidden.rank(apart, request.query, depth)
        base = ranker.rank(run, request.query, depth)
        self._shape(run, request, now_us, lookups, base, answer)

    def _shape(
        self,
        run: RecallRun,
        request: Request,
        now_us: int,
        lookups: SnapshotLookups,
        base: BaseRanking,
        answer: Answer,
    ) -> None:
        """Run the phases, choose the order, cut to k."""
        order = base.order
        candidates = Candidates(
            base.positions[order], base.final[order], np.zeros(order.size, dtype=np.bool_)
        )
        answer.base, answer.total_in = base, candidates.size
        context = PhaseContext(
            query=request.query,
            k=request.k,
            profile=request.profile,
            now_us=now_us,
            user=request.scope.user,
            session_id=request.session_id,
            lookups=lookups,
        )
        ledger = answer.ledger
        if wants_events(request.profile):
            record_base(ledger, base, request.profile)
        candidates, answer.pipeline = run_phases(candidates, context, run, ledger, request.sort_by)
        if request.sort_by != "relevance":
            candidates = sort_candidates(
                request.sort_by, candidates, base, lookups, self.reader.created_at_us
            )
            ledger.record(
                "sort_by",
                candidates.positions,
                candidates.scores,
                lambda _: f"ordered by {request.sort_by}",
            )
        answer.candidates = candidates

    def _judge(
        self, run: RecallRun, request: Request, world: World, answer: Answer,
        memories: tuple[RecalledMemory, ...],
    ) -> tuple[tuple[RecalledMemory, ...], Answerability | None]:  # fmt: skip
        """Say whether there is an answer at all, and each memory's own score, where calibrated."""
        if self.calibration is None or answer.base is None:
            return memories, None
        from noctuary.recall.answerability import score_answer

        with run.step("answerability"):
            found = score_answer(
                self.reader, self._graph, request.query, answer.allowed, answer.base,
                answer.overlay,
                measures=self.calibration.measures,
                # Known from the dense leg: nobody is asked again.
                encode=lambda text: world.query_vector(text, 0.0),
                shown=answer.candidates.positions[: len(memories)],
            )  # fmt: skip
            if found is None:
                return memories, None
            scored = zip(memories, found.memories, strict=True)
            judged = self.calibration.judge(found.score, found.signal)
            return tuple(replace(memory, support=own) for memory, own in scored), judged

    def _result(
        self, run: RecallRun, request: Request, world: World, answer: Answer
    ) -> RecallResult:
        view = answer.view(self.reader)
        with run.step("fetch"):
            memories = describe_memories(view, run, answer, request.k)
        memories, answerability = self._judge(run, request, world, answer, memories)
        profile, extras = request.profile, dict[str, Any]()
        if has_hooks("post_cross_wing"):
            from noctuary.recall.explain import fire_balanced

            fire_balanced(view, run, answer)
        if wants_events(profile) or profile.candidate_trace:
            from noctuary.recall.explain import explain_answer

            with run.step("score_explainability"):
                memories, extras = explain_answer(view, request, run, answer, memories)
        run.finish()
        return RecallResult(
            query=request.query,
            memories=memories,
            warnings=tuple(run.warnings),
            phase_timing_ms=run.phase_timing_ms,
            snapshot_id=self.snapshot_id,
            store=str(self.paths.root),
            profile=profile.to_json(),
            profile_used=request.profile_used,
            pipeline=describe_pipeline(request, answer, memories),
            answerability=answerability,
            **extras,
        )

    def find_searched(
        self, profile: RetrievalProfile, world: World, mask: Mask | None
    ) -> Searched | None:
        """Return what is searched; None for all that the scope shows, the usual case.

        With nothing archived and turns searched as they are this is one look for a file.

        Args:
            profile: Its turn_view and include_archived.
            world: What is archived.
            mask: What the scope allows, shape (n,); None for everything.
        """
        state = None if profile.include_archived else world.archive()
        if state is None and profile.turn_view == RAW:
            return None
        from noctuary.recall.hidden import find_archived, find_searched

        archived: Archived | None = None
        if state is not None:
            known = self._archived
            if known is None or known[0] != state.key:
                known = self._archived = (state.key, find_archived(self.reader, state))
            archived = known[1]
        plans = frozenset[str]() if state is None else state.plans
        return find_searched(self.reader, mask, profile.turn_view, archived, plans)

    def plan_of(self, memory_id: str) -> str | None:
        """Return the compaction plan in force that archives a memory, the last one applied."""
        archive = self._archive_now()
        if archive is None:
            return None
        in_force = archive.applied_plans_at(None)
        plans = [
            a.plan_id
            for a in sorted(archive.applications, key=lambda a: a.applied_at_us)
            if a.plan_id in in_force
            and any(entry.memory_id == memory_id for entry in archive.entries_of(a.plan_id))
        ]
        return plans[-1] if plans else None

    def _archive_now(self) -> ArchiveReader | None:
        """Return the archive that is there now; None where nothing was ever archived."""
        if self._archive is not None:
            self._archive = self._archive.refreshed()
        elif self.paths.archive.exists():
            from noctuary.compact.archive import ArchiveReader

            self._archive = ArchiveReader(self.paths.archive)
        return self._archive

    def _use_of(self, user: str | None) -> Use:
        """Return use as far as only this user had a part in it; all of it where nobody is named."""
        private = private_mask(self.reader.facets["user"], user)
        if private is None:
            return self._usage_now()
        from noctuary.recall.inputs import OwnUse

        return OwnUse(self._usage_now(), self.reader, private)

    def _usage_now(self) -> UsageReader:
        """Return the usage file that is there now."""
        known = self._usage
        self._usage = UsageReader(self.paths.usage) if known is None else known.refreshed()
        return self._usage


# Which snapshot answers: the store that is meant, and its pinned recaller in this process.
#
# No ranking.


STORES_PINNED = 16
"""Stores that one process keeps open, those asked last: a large one holds some forty descriptors,
of the 1,024 that a process usually has. One beyond them is opened again when it is asked, which
takes milliseconds."""


class Serving(NamedTuple):
    """A pinned snapshot and the pointer's state when it was pinned."""

    recaller: Recaller
    pointer_stamp: tuple[int, int]
    warning: RecallWarning | None


_serving: OrderedDict[Path, Serving] = OrderedDict()
_serving_lock = threading.Lock()


def find_serving(store: str | Path | None) -> tuple[Serving, list[RecallWarning]]:
    """Return what serves a store, and what its caller should know about that.

    Raises:
        StoreError: If there is no such store, or nothing published that opens.
        OSError: If the store cannot be read.
    """
    directory, guessed = find_store(store, home=find_home())
    warnings: list[RecallWarning] = []
    if guessed:
        message = (
            f"several stores exist; {directory.name} published last. Pass store= or set "
            "NOCTUARY_STORE"
        )
        warnings.append(RecallWarning("store_guessed", message))
    stamp = _pointer_stamp(directory)
    with _serving_lock:
        known = _serving.get(directory)
        if known is None or known.pointer_stamp != stamp:
            known = _pin(directory, stamp)
            _serving[directory] = known
        _serving.move_to_end(directory)
        while len(_serving) > STORES_PINNED:
            # Its files close when the last recall over it ends.
            _serving.popitem(last=False)
    if known.warning is not None:
        warnings.append(known.warning)
    return known, warnings


def staleness(paths: StorePaths, limit_hours: float) -> list[RecallWarning]:
    """Warn when the last night that went through is too long ago; a clock set back is not stale."""
    hours = last_night_hours(paths)
    if hours is None or limit_hours <= 0 or hours <= limit_hours:
        return []
    message = f"no night went through for {hours:.0f} h: `noctuary doctor` says what to look at"
    return [RecallWarning("stale_snapshot", message)]


def _pin(directory: Path, stamp: tuple[int, int]) -> Serving:
    paths = StorePaths(directory)
    opened = open_serving(paths)
    warning = None
    if opened.fallback_reason is not None:
        warning = RecallWarning(
            "snapshot_fallback",
            f"snapshot {opened.snapshot_id} answers in its place: {opened.fallback_reason}",
        )
    recaller = Recaller(paths, opened.reader, opened.snapshot_id, may_warm=True)
    return Serving(recaller, stamp, warning)


def _pointer_stamp(directory: Path) -> tuple[int, int]:
    try:
        stat = (directory / "CURRENT").stat()
    except FileNotFoundError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_ino)
