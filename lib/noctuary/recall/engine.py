"""One recall over one pinned snapshot: scope, rank, phases, judge, describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.store import StorePaths
from noctuary.core.types import (
    DAMAGED_TEXT,
    UNDATED_US,
    MemoryRecord,
    from_micros,
    has_hooks,
    to_micros,
)
from noctuary.graph.walk import mention_span
from noctuary.recall.inputs import Inputs, guard_model
from noctuary.recall.legs import GraphPath, Leg, SnapshotGraph, importance_of, path_of
from noctuary.recall.profile import RAW, RetrievalProfile
from noctuary.recall.query import (
    Mask,
    Positions,
    Query,
    Scope,
    Scores,
    build_mask,
    check_arguments,
    private_mask,
)
from noctuary.recall.ranking import rank, retrieve
from noctuary.recall.reader import SnapshotReader, open_serving
from noctuary.recall.result import (
    Answerability,
    GraphHit,
    LegHit,
    RecalledMemory,
    RecallResult,
    RecallWarning,
)
from noctuary.recall.rows import Archived, Rows, find_archived, find_rows, see
from noctuary.recall.search import (
    BaseRanking,
    Candidates,
    PhaseOutcome,
    PositionRef,
    RecallRun,
    Search,
    name_positions,
)
from noctuary.text.marks import may_concern_dates

if TYPE_CHECKING:
    from noctuary.compact.archive import ArchiveReader
    from noctuary.sources.live import LiveState
    from noctuary.usage.reader import UsageReader


# Orders other than relevance: by importance and by date.

_IMPORTANCE_SORT = (0.4, 0.6)
"""The reference store's blend of relevance and importance (research/peers.md 2.4): importance
leads, relevance still counts."""


def _sort(search: Search, candidates: Candidates, base: BaseRanking) -> Candidates:
    """Return the candidates with another key, in [0, 1]; ties by relevance, then position."""
    relevance, reader = base.relevance_of(candidates), search.reader
    if search.query.sort_by == "importance":
        importance = importance_of(reader, candidates.positions)
        key = _IMPORTANCE_SORT[0] * relevance + _IMPORTANCE_SORT[1] * importance
    else:
        key = _scale_dates(reader.created_at_us, reader.created_at(candidates.positions))
    order = np.lexsort((candidates.positions, -relevance, -key))
    return Candidates(candidates.positions[order], key[order], candidates.expanded[order])


def _scale_dates(all_us: NDArray[np.int64], chosen: Positions) -> Scores:
    """Return dates scaled to (0, 1] over the store, the newest at 1; undated memories are 0."""
    dated = all_us[all_us != UNDATED_US]
    if not dated.size:
        return np.zeros(chosen.size, dtype=np.float64)
    # What came live may be newer than all that the snapshot has.
    low, high = int(dated.min()), max(int(dated.max()), int(chosen.max(initial=UNDATED_US)))
    # One more microsecond than since the oldest, so that undated memories come after it.
    ages = np.maximum(chosen, low).astype(np.float64) - low + 1.0
    return np.where(chosen == UNDATED_US, 0.0, ages / (float(high) - low + 1.0))


# From candidates to memories: rows, legs, the graph's path, what the phases did.

_SHOWN = (
    "content", "category", "tags", "importance", "wing", "room", "session_id", "user", "origin",
)  # fmt: skip


class _Found(NamedTuple):
    """Rows that are shown and rows on the graph's paths to them, and these paths; by position."""

    rows: dict[int, dict[str, Any]]
    paths: dict[int, GraphPath]


def _read(search: Search) -> _Found:
    """Read what the first k candidates need; a damaged text makes room for the next."""
    reader, base = search.reader, search.base
    if base is None:
        return _Found({}, {})
    positions: list[int] = search.candidates.first(search.k).positions.tolist()
    graph = base.graph
    reached = {} if graph is None else {p: path_of(graph, p) for p in positions}
    paths = {p: path for p, path in reached.items() if path is not None}
    named = {path.evidence[0] for path in paths.values() if path.concept >= 0}
    rows = reader.describe({*positions, *named})
    damaged = [p for p in positions if rows[p]["content"] is DAMAGED_TEXT]
    if not damaged:
        return _Found(rows, paths)
    ids = ", ".join(str(i) for i in reader.public_ids(damaged).values())
    search.run.warn(
        "snapshot_damaged",
        f"the text of {ids} is not the one that was published and was left out: run "
        "`noctuary doctor`",
    )
    search.candidates = search.candidates.keep(~np.isin(search.candidates.positions, damaged))
    return _read(search)


def _describe(
    search: Search, found: _Found, supports: Sequence[float]
) -> tuple[RecalledMemory, ...]:
    """Return the first k candidates with texts and legs; `supports` are theirs, or empty."""
    reader, base, chosen = search.reader, search.base, search.candidates.first(search.k)
    if base is None or not chosen.size:
        return ()
    positions: list[int] = chosen.positions.tolist()
    lexical, dense = (_leg_hits(leg, positions) for leg in (base.lexical, base.dense))
    graph_hits = _graph_hits(reader, found)
    notes = _find_notes(search, positions)
    named = name_positions(reader, (), notes.values())[1] if notes else dict[str, Any]
    sources = {p for shown in positions for p in found.rows[shown]["sources"]}
    source_ids = reader.public_ids(sources) if sources else {}
    memories: list[RecalledMemory] = []
    scored = zip(positions, chosen.scores.tolist(), base.relevance_of(chosen).tolist(), strict=True)
    for place, (p, score, relevance) in enumerate(scored):
        row = found.rows[p]
        memories.append(
            RecalledMemory(
                id=row["memory_id"] if row["sources"] else reader.public_id(row["memory_id"]),
                created_at=from_micros(row["created_at_us"]),
                **{name: row[name] for name in _SHOWN},
                final_score=score,
                relevance=relevance,
                lexical=lexical.get(p),
                dense=dense.get(p),
                graph=graph_hits.get(p),
                kind="summary" if row["sources"] else "memory",
                annotations=named(notes.get(p, {})),
                sources=tuple(source_ids[s] for s in row["sources"]),
                live=row.get("live", False),
                support=supports[place] if supports else None,
            )
        )
    return tuple(memories)


def _find_notes(search: Search, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the annotations of positions by phases, and the summary of turns behind one."""
    told, rows = search.ledger.annotations, search.rows
    notes = {p: told[p] for p in positions if p in told}
    if rows.turns is not None:
        for p in positions:
            if (summary := rows.stands_for(p)) is not None:
                notes[p] = {**notes.get(p, {}), "summarized_by": PositionRef(summary)}
    return notes


def _leg_hits(leg: Leg, positions: list[int]) -> dict[int, LegHit]:
    """Return rank and score of the positions that a leg ranked."""
    ranks = leg.rank_of()
    ranked = [p for p in positions if p in ranks]
    if not ranked:
        return {}
    scores: list[float] = leg.scores_at(np.array(ranked, dtype=np.int64)).tolist()
    return {p: LegHit(ranks[p], score) for p, score in zip(ranked, scores, strict=True)}


def _graph_hits(reader: SnapshotReader, found: _Found) -> dict[int, GraphHit]:
    """Return by which path the graph reached the rows that are shown."""
    ids = reader.public_ids(
        {p for path in found.paths.values() for p in (path.seed, *path.evidence) if p is not None}
    )
    hits: dict[int, GraphHit] = {}
    for position, path in found.paths.items():
        first, span = path.evidence[0], None
        if path.concept >= 0:
            span = mention_span(path.concept, first, reader.mentions)
        if span is None:
            concept = reader.concept_name(path.concept)
        else:  # as the evidence has it: the concept's own name may be a spelling of others only
            concept = found.rows[first]["content"][slice(*span)]
        seed = None if path.seed is None else ids[path.seed]
        evidence = tuple(ids[p] for p in path.evidence)
        hits[position] = GraphHit(path.score, seed, path.relation, concept, evidence, path.shares)
    return hits


class Recaller:
    """Answers from one pinned snapshot of one store; safe to share between threads.

    Raises nothing for bad data.
    """

    def __init__(
        self, paths: StorePaths, reader: SnapshotReader, snapshot_id: str, *, may_warm: bool = False
    ) -> None:
        self.paths, self.reader, self.snapshot_id = paths, reader, snapshot_id
        self.may_warm = may_warm
        self.calibration = reader.calibration  # None judges no answerability
        self._graph = SnapshotGraph(reader)
        self._usage: UsageReader | None = None
        self._archive: ArchiveReader | None = None
        self._archived: tuple[str, Archived] | None = None

    @staticmethod
    def open(store_dir: Path) -> Recaller:
        """Pin the serving snapshot of a store; StoreError if nothing published can be opened."""
        paths = StorePaths(store_dir)
        opened = open_serving(paths)
        return Recaller(paths, opened.reader, opened.snapshot_id)

    def inputs_now(self, user: str | None = None) -> Inputs:
        """Return the current inputs of this store, with the usage that a user may see."""

        def usage() -> UsageReader:
            from noctuary.usage.reader import UsageReader

            known = self._usage
            self._usage = UsageReader(self.paths.usage) if known is None else known.refreshed()
            return self._usage

        def private() -> Mask | None:
            return private_mask(self.reader.facets["user"], user)

        # One usage file for the whole recall, even if a night ends meanwhile.
        return Inputs(
            self.paths, self.reader, cache(usage), cache(private), self.may_warm, self._archive_now
        )

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
        inputs: Inputs | None = None,
    ) -> RecallResult:
        """Return the k best memories; arguments as of `noctuary.recall`, ValueError as well."""
        scope, profile = scope or Scope(), profile or RetrievalProfile()
        check_arguments(query, k, sort_by, scope, deadline_ms, session_id)
        asked = Query(query, k, profile, profile_used, scope, sort_by, session_id, dry_run)
        return self.ask(asked, inputs, deadline_ms)

    def rank(
        self,
        query: str,
        k: int,
        *,
        profile: RetrievalProfile,
        scope: Scope | None = None,
        shared: dict[Any, Any] | None = None,
    ) -> list[tuple[str, float]]:
        """Return ids and final scores of what `recall` returns; reads no text, judges nothing.

        `shared` keeps legs for other profiles that ask the same, in the same scope and view.
        """
        return self._name(self._search(query, k, profile, scope, shared))

    def judge(
        self, query: str, k: int, *, profile: RetrievalProfile, scope: Scope | None = None
    ) -> tuple[list[tuple[str, float]], Answerability | None]:
        """Return what `rank` does, and what `recall` says of whether there is an answer."""
        search = self._search(query, k, profile, scope)
        return self._name(search), self._judge(search)[0]

    def _search(
        self,
        query: str,
        k: int,
        profile: RetrievalProfile,
        scope: Scope | None,
        shared: dict[Any, Any] | None = None,
    ) -> Search:
        scope = scope or Scope()
        check_arguments(query, k, "relevance", scope, None)
        asked = Query(query, k, profile, scope=scope)
        inputs = self.inputs_now(scope.user)
        search = Search(self.reader, self._graph, asked, inputs, ranker=rank, shared=shared)
        self._answer(search)
        return search

    def _name(self, search: Search) -> list[tuple[str, float]]:
        """Return ids and scores of the first k candidates."""
        best = search.candidates.first(search.k).score_of()
        named = search.reader.public_ids(best)
        return [(str(named[position]), score) for position, score in best.items()]

    def ask(
        self, query: Query, inputs: Inputs | None = None, deadline_ms: float | None = None
    ) -> RecallResult:
        """Return the answer to a query whose arguments are sound."""
        run = RecallRun(deadline_ms)
        inputs = inputs or self.inputs_now(query.scope.user)
        search = Search(self.reader, self._graph, query, inputs, ranker=rank, run=run)
        self._answer(search)
        with run.step("fetch"):
            found = _read(search)
        answerability, supports = self._judge(search)
        with run.step("fetch"):
            memories = _describe(search, found, supports)
        extras: dict[str, Any] = {}
        if search.wants_events or query.profile.candidate_trace or has_hooks("post_cross_wing"):
            from noctuary.recall.trace import explain

            memories, extras = explain(search, memories)
        run.finish()
        ledger, guard = search.ledger, search.guard
        expanded = zip(memories, search.candidates.expanded.tolist(), strict=False)
        return RecallResult(
            query=query.text,
            memories=memories,
            warnings=tuple(run.warnings),
            phase_timing_ms=run.phase_timing_ms,
            snapshot_id=self.snapshot_id,
            store=str(self.paths.root),
            profile=query.profile.to_json(),
            profile_used=query.profile_used,
            # RFC 914's pipeline_trace.
            pipeline={
                "profile_used": query.profile_used,
                "phases_applied": list(ledger.applied),
                "phases_skipped": list(ledger.skipped),
                "total_candidates_in": search.total_in,
                "total_results_out": len(memories),
                "model_guard": "OFF" if guard is None else guard.verdict,
                "notes": ledger.notes,
                "expanded": [m.id for m, anew in expanded if anew],
            },
            answerability=answerability,
            **extras,
        )

    def _answer(self, search: Search) -> None:
        """Take a search through its steps, as far as it gets."""
        query, run = search.query, search.run
        if not query.text.strip():
            run.warn("empty_query", "the query holds no text")
        elif query.k and self._in_scope(search) and self._guarded(search):
            base = search.base = retrieve(search)
            order = base.order
            unexpanded = np.zeros(order.size, dtype=np.bool_)
            candidates = Candidates(base.positions[order], base.final[order], unexpanded)
            search.total_in = candidates.size
            if search.wants_events:
                from noctuary.recall.trace import record_base

                say_near = partial(self._graph.say_near, query.text)
                record_base(search, base, say_near)
            candidates = run_phases(candidates, search)
            if query.sort_by != "relevance":
                candidates, why = _sort(search, candidates, base), f"ordered by {query.sort_by}"
                scored = (candidates.positions, candidates.scores)
                search.ledger.record("sort_by", *scored, lambda _: why)
            search.candidates = candidates
            if self._usage is not None and self._usage.warning and not self._usage.is_missing:
                run.warn("usage_unreadable", self._usage.warning)

    def _in_scope(self, search: Search) -> bool:
        """Find the rows that are searched, the store's own among them; False where none is."""
        query, run, reader = search.query, search.run, self.reader
        with run.step("scope"):
            mask, warnings = build_mask(query.scope, reader.facets, reader.created_at_us)
            state = search.inputs.live()
            if state is not None:
                mask, warnings = lay_over(search, state, mask, warnings)
            run.extend(warnings)
            if mask is not None and not mask.any() and search.reader.live is None:
                return False
            search.rows = self.find_rows(query.profile, search.inputs, mask, search.reader)
        if self._archive is not None and self._archive.warning is not None:
            run.warn("archive_unreadable", self._archive.warning)
        return not search.rows.is_empty

    def find_rows(
        self,
        profile: RetrievalProfile,
        inputs: Inputs,
        mask: Mask | None,
        view: SnapshotReader | None = None,
    ) -> Rows:
        """Return which rows are searched, of the memories that the scope shows (n,) and a view."""
        state, reader = None if profile.include_archived else inputs.archive(), view or self.reader
        if state is None:
            if profile.turn_view == RAW:
                return Rows.of(reader, mask, mask)
            return find_rows(reader, mask, profile.turn_view, None, frozenset())
        known = self._archived
        if known is None or known[0] != state.key:
            known = self._archived = (state.key, find_archived(self.reader, state))
        return find_rows(reader, mask, profile.turn_view, known[1], state.plans)

    def _archive_now(self) -> ArchiveReader | None:
        """Return the archive that is there now; None where nothing was ever archived."""
        if self._archive is not None:
            self._archive = self._archive.refreshed()
        elif self.paths.archive.exists():
            from noctuary.compact.archive import ArchiveReader

            self._archive = ArchiveReader(self.paths.archive)
        return self._archive

    def _guarded(self, search: Search) -> bool:
        """Compare the encoders of query and snapshot; False where that forbids an answer."""
        # `encode` must not know the search that knows it: a cycle would hold the snapshot's files.
        profile, run, inputs = search.profile, search.run, search.inputs
        if profile.model_guard and profile.dense_weight > 0:
            with run.step("model_guard"):
                guard = guard_model(self.reader.manifest.encoder, inputs.encoder())
            run.fire("post_model_guard", guard.hook_context())
            search.guard = guard
            if guard.verdict == "MISMATCH":
                strict = profile.model_guard_strict
                code = "model_guard_blocked" if strict else "model_mismatch"
                rest = "nothing is returned" if strict else "answered without the dense leg"
                run.warn(code, f"{guard.message}; {rest}")
                return not strict

        vectors = search.vectors

        def encode(text: str) -> NDArray[np.float32]:
            if text not in vectors:
                vectors[text] = inputs.query_vector(text, run.left_ms())
            return vectors[text]

        search.encode, search.known_share = encode, inputs.known_share
        return True

    def _judge(self, search: Search) -> tuple[Answerability | None, Sequence[float]]:
        """Say whether there is an answer at all, and each memory's own score, where calibrated."""
        base = search.base
        if self.calibration is None or base is None:
            return None, ()
        from noctuary.recall.answerability import score_answer

        with search.run.step("answerability"):
            found = score_answer(
                search.reader, self._graph, search.query.text, search.rows.allowed, base,
                measures=self.calibration.measures,
                vector=search.vectors.get(search.query.text),
                shown=search.candidates.first(search.k).positions,
            )  # fmt: skip
            if found is None:
                return None, ()
            return self.calibration.judge(found.score, found.signal), found.memories


class Step(NamedTuple):
    """One phase in the order; its name is also the function that does it."""

    name: str
    wanted: tuple[str, ...]  # flags that must all be on (a number: above 0, a text: not empty)
    module: str = "phases"  # module of the function, imported only if the phase is on
    reorders: bool = False  # it only shapes the order by relevance: another sort order skips it
    # It takes as long as a leg: a recall past its deadline skips it. The others take well under a
    # millisecond, and without some of them an answer would be wrong.
    is_slow: bool = False

    def why_not(self, search: Search) -> str | None:
        """Return why it is skipped ("" if its flags are off), or None if it runs."""
        if self.name == "scale":  # follows any of the boosts
            return None if set(self.wanted).intersection(search.ledger.applied) else ""
        if not all(getattr(search.profile, flag) for flag in self.wanted):
            return ""
        if self.name == "dates" and not may_concern_dates(search.query.text):
            return ""
        if self.reorders and search.query.sort_by != "relevance":
            return f"because the answer is ordered by {search.query.sort_by}"
        if self.is_slow and search.run.late():
            said = f"the deadline passed before {self.name}; skipped"
            search.run.warn(f"deadline_{self.name}", said)
            return "because the deadline passed"
        return None


_WINGS = ("mmr_enabled", "wing_diversity_weight")
PHASES: tuple[Step, ...] = (
    Step("rerank", ("reranker",), reorders=True, is_slow=True),
    Step("dates", ("date_boost",)),
    Step("ltp", ("ltp_enabled",)),
    Step("time_decay", ("time_decay_enabled",)),
    Step("tagging", ("tagging_enabled",)),
    Step("association", ("association_enabled",)),
    Step("scale", ("dates", "ltp", "tagging", "association")),  # phases, of which any ran
    Step("query_expansion", ("query_expansion_enabled",), is_slow=True),
    Step("supersede", ("supersede_filter_enabled",), "selection"),
    Step("consolidation", ("consolidation_enabled",), "selection"),
    Step("pinned", ("pinned_memory_enabled",)),
    Step("mmr", ("mmr_enabled",), "selection", reorders=True),
    Step("cross_wing_balancing", _WINGS, "selection", reorders=True),
)
"""The order of DESIGN section 4; the cross-encoder reads the fused list, so it comes first."""


def run_phases(candidates: Candidates, search: Search) -> Candidates:
    """Run every phase that the profile wants, in order; one that fails is a warning."""
    run, ledger = search.run, search.ledger
    for step in PHASES:
        why_not = step.why_not(search)
        if why_not is not None:
            ledger.skipped.append(step.name)
            if why_not:
                ledger.notes[step.name] = {"skipped": why_not}
            continue
        with run.step(step.name):
            try:
                phase = getattr(import_module(f"noctuary.recall.{step.module}"), step.name)
                outcome: PhaseOutcome = phase(candidates, search)
            except Exception as error:
                said = f"{step.name} was left out: {type(error).__name__}: {error}"
                run.warn("phase_failed", said)
                outcome = PhaseOutcome(candidates)
        ledger.take(step.name, candidates, outcome)
        run.extend(outcome.warnings)
        candidates = outcome.candidates
    return candidates


FROM_STORE = "live_overlay"
"""Warning code: how old the snapshot is and how many rows were read from the store itself."""
_UNKNOWN_VALUES = frozenset({"unknown_wing", "unknown_room", "unknown_category"})
_HOUR_US = 3_600_000_000


def lay_over(
    search: Search, state: LiveState, mask: Mask | None, warnings: Sequence[RecallWarning]
) -> tuple[Mask | None, Sequence[RecallWarning]]:
    """Add the visible live rows of the store to a search, and warn how many there are.

    Returns the mask without what changed or is lost, and the scope's warnings that still hold.
    """
    run, reader = search.run, search.reader
    for code, message in state.faults:
        run.warn(code, message)
    seen = see(state, reader, search.query.scope, mask)
    if seen.state.rows:
        # Not `search` itself, which will hold these rows: a circle would keep the snapshot's files
        # open, removed ones too, until the collector comes by.
        inputs = search.inputs

        def encode(rows: Sequence[MemoryRecord]) -> Mapping[str, NDArray[np.float32]]:
            return inputs.live_vectors(rows, run.left_ms())

        from noctuary.recall.live import LiveRows  # only where the store gained rows

        dim = 0 if reader.vectors is None else reader.vectors.shape[1]
        search.reader = reader.beside(LiveRows(seen.state, reader.first_live, dim, encode))
        warnings = [w for w in warnings if w.code not in _UNKNOWN_VALUES]
    if seen.state.rows or seen.lost:
        built_us = to_micros(datetime.fromisoformat(reader.manifest.built_at))
        hours = max(search.inputs.now_us() - built_us, 0) / _HOUR_US
        run.warn(
            FROM_STORE,
            f"the snapshot is {hours:.1f} h old; read from the store itself: {seen.gained} new, "
            f"{seen.changed} changed, {seen.lost} gone",
        )
    return seen.mask, warnings
