"""One recall over one pinned snapshot: scope, guard, base ranking, phases, order, description.

Raises nothing for bad data.

What belongs here: the order of the steps. Each step's arithmetic lives in its own module.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.hooks import has_hooks
from noctuary.recall.answer import Answer, describe_memories, describe_pipeline, wants_events
from noctuary.recall.answerability import Answerability
from noctuary.recall.asking import Request, check_arguments
from noctuary.recall.base_ranking import BaseRanker, BaseRanking, record_base
from noctuary.recall.lookups import SnapshotLookups
from noctuary.recall.model_guard import GuardResult, guard_model
from noctuary.recall.opening import open_serving
from noctuary.recall.phases.base import Candidates, PhaseContext, Positions, Scores
from noctuary.recall.phases.order import run_phases
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.profile.rules import RAW
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecalledMemory, RecallResult
from noctuary.recall.run import Run
from noctuary.recall.scope import Mask, Scope, aware, build_mask, private_mask
from noctuary.recall.snapshot_graph import SnapshotGraph
from noctuary.recall.sorting import sort_candidates
from noctuary.recall.world import LiveWorld, World
from noctuary.snapshot.layout import StorePaths
from noctuary.types import to_micros
from noctuary.usage.reading import UsageReader

if TYPE_CHECKING:
    from noctuary.archive.reading import ArchiveReader
    from noctuary.recall.own_use import Use
    from noctuary.recall.searched import Archived, Searched


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
        run = Run(time.perf_counter(), deadline_ms)
        world = world or self.live_world(scope.user)
        return self._result(run, request, world, self._answer(run, request, world))

    def _answer(self, run: Run, request: Request, world: World) -> Answer:
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

    def _in_scope(self, run: Run, request: Request, world: World, answer: Answer) -> Mask | None:
        """Return what may be seen of the snapshot, and lay what the store has beyond it over it."""
        reader = self.reader
        mask, warnings = build_mask(request.scope, reader.facets, reader.created_at_us)
        state = world.live()
        if state is not None:
            from noctuary.recall.overlay import lay_over

            mask, warnings = lay_over(run, request, world, reader, state, mask, warnings, answer)
        run.extend(warnings)
        return mask

    def _guard(self, run: Run, profile: RetrievalProfile, world: World) -> GuardResult | None:
        if not profile.model_guard or profile.dense_weight <= 0:
            return None
        with run.step("model_guard"):
            result = guard_model(self.reader.manifest.encoder, world.encoder())
        run.fire("post_model_guard", result.hook_context())
        return result

    def _rank(
        self, run: Run, request: Request, world: World, mask: Mask | None, answer: Answer
    ) -> None:
        blind = answer.guard is not None and answer.guard.verdict == "MISMATCH"

        def encode(text: str) -> NDArray[np.float32]:
            return world.query_vector(text, run.left_ms())

        as_of, view = request.scope.as_of, answer.view(self.reader)
        now_us = to_micros(aware(as_of)) if as_of is not None else world.now_us()
        scorer = None
        if request.profile.scorer != "fusion":
            from noctuary.recall.scoring import Scorer

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
            apart = Run(time.perf_counter(), None)
            answer.unhidden = lambda: unhidden.rank(apart, request.query, depth)
        base = ranker.rank(run, request.query, depth)
        self._shape(run, request, now_us, lookups, base, answer)

    def _shape(
        self,
        run: Run,
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
        self, run: Run, request: Request, world: World, answer: Answer,
        memories: tuple[RecalledMemory, ...],
    ) -> tuple[tuple[RecalledMemory, ...], Answerability | None]:  # fmt: skip
        """Say whether there is an answer at all, and each memory's own score, where calibrated."""
        if self.calibration is None or answer.base is None:
            return memories, None
        from noctuary.recall.answerability_score import score_answer

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

    def _result(self, run: Run, request: Request, world: World, answer: Answer) -> RecallResult:
        view = answer.view(self.reader)
        with run.step("fetch"):
            memories = describe_memories(view, run, answer, request.k)
        memories, answerability = self._judge(run, request, world, answer, memories)
        profile, extras = request.profile, dict[str, Any]()
        if has_hooks("post_cross_wing"):
            from noctuary.recall.telling import fire_balanced

            fire_balanced(view, run, answer)
        if wants_events(profile) or profile.candidate_trace:
            from noctuary.recall.telling import explain_answer

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
        from noctuary.recall.searched import find_archived, find_searched

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
            from noctuary.archive.reading import ArchiveReader

            self._archive = ArchiveReader.open(self.paths.archive)
        return self._archive

    def _use_of(self, user: str | None) -> Use:
        """Return use as far as only this user had a part in it; all of it where nobody is named."""
        private = private_mask(self.reader.facets["user"], user)
        if private is None:
            return self._usage_now()
        from noctuary.recall.own_use import OwnUse

        return OwnUse(self._usage_now(), self.reader, private)

    def _usage_now(self) -> UsageReader:
        """Return the usage file that is there now."""
        known = self._usage
        self._usage = UsageReader.open(self.paths.usage) if known is None else known.refreshed()
        return self._usage
