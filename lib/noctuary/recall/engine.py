"""One recall over one pinned snapshot: query, retrieve, fuse, phases, judge, describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.store import StorePaths
from noctuary.core.types import DAMAGED_TEXT, UNDATED_US, from_micros, has_hooks, to_micros
from noctuary.graph.walk import mention_span
from noctuary.recall.candidates import (
    Archived,
    Candidates,
    Ledger,
    Mask,
    PastQuery,
    PositionRef,
    Positions,
    Query,
    RecallRun,
    Rows,
    Scope,
    Scores,
    Successor,
    SummaryView,
    aware,
    build_mask,
    check_arguments,
    find_archived,
    find_rows,
    name_positions,
    private_mask,
    run_phases,
    through_hidden,
)
from noctuary.recall.inputs import GuardResult, Inputs, guard_model, look_down
from noctuary.recall.legs import (
    GraphLeg,
    GraphPath,
    GraphRanking,
    Leg,
    add_exact_match,
    apply_importance,
    find_exact_matches,
    fuse_convex,
    fuse_rrf,
    path_of,
    pool_candidates,
    quota_positions,
    rank_dense,
    rank_lexical,
)
from noctuary.recall.profile import RAW, TURNS, RetrievalProfile
from noctuary.recall.reader import SnapshotGraph, SnapshotReader, open_serving
from noctuary.recall.result import (
    Answerability,
    GraphHit,
    LegHit,
    RecalledMemory,
    RecallResult,
    RecallWarning,
)

if TYPE_CHECKING:
    from noctuary.compact.archive import ArchiveReader
    from noctuary.graph.successors import SupersessionRow
    from noctuary.usage.reader import Usage, UsageReader

QueryVector = Callable[[str], NDArray[np.float32]]
"""Encodes a query; raises EncoderError, OSError or ValueError where it cannot."""

LEAST_TRUST = 0.01  # of a dense leg: where no word is found either, its guess is all there is


class BaseRanking(NamedTuple):
    """Candidates with their scores after every step before the phases; arrays have length m."""

    positions: Positions  # ascending, distinct
    fused: Scores  # after fusion (or the alternative scorer), in [0, 1]
    with_graph: Scores  # after what the graph added
    matched: Scores  # after the exact-match bonus
    relevance: Scores  # times the quality of summaries; what sort_by="relevance" starts from
    final: Scores  # after the importance prior
    lexical: Leg
    dense: Leg
    graph: GraphRanking | None = None  # None where it abstained
    exact: Mask | None = None  # which hold every word of the query; None without a bonus for it
    # Summaries of turns that were hit, ascending; their turns are candidates in their place.
    opened: Positions | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """Places from best to worst: by final score, then relevance, then position."""
        return np.lexsort((self.positions, -self.relevance, -self.final))

    def relevance_of(self, candidates: Candidates) -> Scores:
        """Return the relevance before prior and phases; a late-comer's own score."""
        places = np.searchsorted(self.positions, candidates.positions)
        inside = places < self.positions.size
        known = np.zeros(candidates.size, dtype=np.bool_)
        known[inside] = self.positions[places[inside]] == candidates.positions[inside]
        relevance = candidates.scores.copy()
        relevance[known] = self.relevance[places[known]]
        return relevance


def fuse(positions: Positions, legs: tuple[Leg, Leg], profile: RetrievalProfile) -> Scores:
    """Fuse the legs' scores of some positions, in [0, 1]."""
    lexical, dense = legs
    weights = (profile.lexical_weight * lexical.trust, profile.dense_weight * dense.trust)
    if profile.fusion == "rrf":
        return fuse_rrf(positions, [leg.ranking for leg in legs], weights, profile.rrf_k)
    return fuse_convex([leg.scores_at(positions) for leg in legs], weights)


def importance_of(reader: SnapshotReader, positions: Positions) -> Scores:
    """Return importance in [0, 1] even where the file holds something else."""
    stored = reader.importance_at(positions).astype(np.float64)
    return np.clip(np.nan_to_num(stored), 0.0, 1.0)


class Search:
    """One recall while it runs: what is asked, of which rows, and what the steps came to.

    Whatever a phase wants to know beyond the candidates it asks here: the snapshot's part never
    changes, the inputs are recorded for a replay. Positions may be those of any kind of row.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        graph: SnapshotGraph,
        query: Query,
        inputs: Inputs,
        *,
        rows: Rows | None = None,
        encode: QueryVector | None = None,
        run: RecallRun | None = None,
    ) -> None:
        self.reader = reader  # with the live rows that this recall may see
        self.graph, self.query, self.inputs = graph, query, inputs
        self.rows, self.run = rows or Rows(), run or RecallRun()
        self.encode = encode  # how a text becomes a vector; None where there is no dense leg
        self.known_share: Callable[[str], float] = lambda _: 1.0  # how much of it that says
        self.profile, self.k = query.profile, query.k
        self.candidates = Candidates(np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_))
        self.guard: GuardResult | None = None
        self.base: BaseRanking | None = None  # the ranking before the phases
        self.ledger = Ledger()
        self.vectors: dict[str, NDArray[np.float32]] = {}  # of the texts that were asked
        self.total_in = 0
        self._ids: dict[int, str] = {}

    @cached_property
    def now_us(self) -> int:
        """The moment of the recall: `as_of`, else the clock."""
        as_of = self.query.scope.as_of
        return self.inputs.now_us() if as_of is None else to_micros(aware(as_of))

    @property
    def wants_events(self) -> bool:
        """Say whether anybody will look at score events."""
        return self.profile.explain or self.profile.replay_log or has_hooks("post_score_event")

    # Retrieve and fuse.

    def retrieve(self) -> BaseRanking:
        """Return the candidates of the query, as many from each leg as it wants."""
        live = self.reader.end - self.reader.first_live
        return self.rank(self.query.text, self.query.depth(self.reader.count + live))

    def rank(self, text: str, depth: int) -> BaseRanking:
        """Return the candidates of a text, at most `depth` from each leg."""
        profile, run, reader = self.profile, self.run, self.reader
        legs, rows, opened = self._legs(text, depth), self.rows, None
        if rows.turns is not None:
            with run.step("fuse"):
                legs, rows, opened = self._open(legs, depth)
        if profile.mmr_enabled and profile.wing_diversity_weight > 0 and profile.wing_quota > 0:
            legs = (self._with_quota(legs[0], rows), self._with_quota(legs[1], rows))
        with run.step("fuse"):
            if profile.scorer == "fusion":
                positions = pool_candidates([leg.ranking for leg in legs])
                fused = fuse(positions, legs, profile)
            else:
                from noctuary.recall.phases import score_candidates

                positions, fused = score_candidates(self, text, legs[1])
        ranking = BaseRanking(positions, fused, fused, fused, fused, fused, *legs)
        # The walk's additions are on the scale of a fusion; libravdb's own hops are authored.
        if profile.graph_weight > 0 and positions.size and profile.scorer == "fusion":
            ranking = self._with_graph(text, ranking, rows)
        if profile.exact_match_bonus > 0:
            with run.step("exact"):
                exact = find_exact_matches(reader, text, ranking.positions)
                matched = add_exact_match(ranking.with_graph, exact, profile.exact_match_bonus)
                ranking = ranking._replace(matched=matched, relevance=matched, exact=exact)
        if ranking.positions.size and int(ranking.positions[-1]) >= reader.count:
            from noctuary.recall.phases import quality

            confidences = reader.confidences_at(ranking.positions)
            worth = quality(confidences, profile.quality_penalty)
            ranking = ranking._replace(relevance=ranking.matched * worth)
        importance = importance_of(reader, ranking.positions)
        final = apply_importance(ranking.relevance, importance, profile.importance_prior)
        return ranking._replace(final=final, opened=opened)

    def unhidden(self) -> BaseRanking:
        """Return the ranking if all that the scope shows of the snapshot were searched."""
        whole = self.reader.whole
        rows = Rows.of(whole, self.rows.allowed, self.rows.allowed)
        # Its own clock and warnings: it explains the recall and is no part of it.
        apart = Search(whole, self.graph, self.query, self.inputs, rows=rows, encode=self.encode)
        apart.known_share = self.known_share
        live = self.reader.end - self.reader.first_live
        return apart.rank(self.query.text, self.query.depth(self.reader.count + live))

    def _legs(self, text: str, depth: int) -> tuple[Leg, Leg]:
        lexical = dense = Leg.empty()
        profile, searched = self.profile, self.rows.searched
        if profile.lexical_weight > 0:
            with self.run.step("lexical"):
                coverage = profile.lexical_coverage
                lexical = rank_lexical(self.reader, text, searched, depth, coverage)
        if profile.dense_weight > 0 and self.encode is not None:
            dense = self._dense_leg(self.encode, text, depth)
        return lexical, dense

    def _open(self, legs: tuple[Leg, Leg], depth: int) -> tuple[tuple[Leg, Leg], Rows, Positions]:
        """Rank the turns of every summary that was hit, by itself or by a turn, in its place.

        Returns the legs, the rows that may come back, and the summaries, ascending.
        """
        reader, rows = self.reader, self.rows
        found, summaries = pool_candidates([leg.ranking for leg in legs]), reader.summaries
        turns = found[rows.are_behind(found)]
        is_summary = rows.are_summaries(found)
        owners = reader.count + summaries.summary_of[turns].astype(np.int64)
        hit = pool_candidates([found[is_summary], owners])
        sources = [np.array(summaries.at(p).sources, dtype=np.int64) for p in hit.tolist()]
        read = pool_candidates(sources)
        ranked = pool_candidates([found[~is_summary], read])
        opened = (legs[0].among(ranked, depth), legs[1].among(ranked, depth))
        return opened, rows.opened(read), hit

    def _dense_leg(self, encode: QueryVector, text: str, depth: int) -> Leg:
        run, reader = self.run, self.reader
        if run.late():
            run.warn("deadline_dense", "the deadline passed before the dense leg; it was skipped")
            return Leg.empty()
        rows = self.rows
        by_turns = rows.turns is not None and self.profile.summary_vectors == TURNS
        try:
            with run.step("encode"):
                vector = encode(text)
            if reader.live is not None:
                with run.step("live"):
                    reader.live.encode(text)
            with run.step("dense"):
                searched = rows.turns if by_turns else rows.searched
                leg = rank_dense(reader, vector, searched, depth)
            return leg._replace(readable=max(self.known_share(text), LEAST_TRUST))
        except (EncoderError, OSError, ValueError) as error:
            run.warn("dense_unavailable", f"answered without the dense leg: {error}")
            return Leg.empty()

    def _with_quota(self, leg: Leg, rows: Rows) -> Leg:
        """Return the leg with the best of every wing behind its ranking, best first."""
        if leg.all_scores is None:
            return leg
        # Rows of the snapshot only: live ones have no part in the quota.
        end, searched = self.reader.first_live, rows.searched
        mask = None if searched is None else searched[:end]
        quota, wings = self.profile.wing_quota, self.reader.wing_codes
        found = quota_positions(wings, leg.all_scores[:end], quota, mask)
        late = found[~np.isin(found, leg.ranking)]
        late = late[np.lexsort((late, -leg.all_scores[late]))]
        return leg._replace(ranking=np.concatenate([leg.ranking, late]))

    def _with_graph(self, text: str, ranking: BaseRanking, rows: Rows) -> BaseRanking:
        run, profile = self.run, self.profile
        if run.late():
            run.warn("deadline_graph", "the deadline passed before the graph leg; it was skipped")
            return ranking
        legs = (ranking.lexical, ranking.dense)
        # Paths lead to memories alone, which come first.
        size = int(np.searchsorted(ranking.positions, self.reader.count))
        rest, rest_fused = ranking.positions[size:], ranking.fused[size:]

        def fuse_at(positions: Positions) -> Scores:
            # With the others, whose scores are on the same scale, and without them again.
            everyone = np.concatenate([positions, rest]) if rest.size else positions
            return fuse(everyone, legs, profile)[: positions.size]

        as_of_us = None if self.query.scope.as_of is None else self.now_us
        with run.step("graph"):
            weights = (profile.graph_weight, profile.session_weight)
            leg = GraphLeg(self.graph, rows.memories, *weights, as_of_us)
            found = leg.rank(text, ranking.positions[:size], ranking.fused[:size], fuse_at)
        if found is None:
            return ranking
        if found.talk is not None and found.talk.left_out:
            run.warn(
                "sessions_left_out",
                f"{found.talk.left_out} sessions of weaker hits were not looked into: the graph "
                "leg's bounds on sessions or members were reached",
            )
        # Everything is scaled back by the same divisor, so that all stay on one scale.
        fused = np.concatenate([found.fused, rest_fused])
        scores = np.concatenate([found.scores, rest_fused / found.scale])
        positions = np.concatenate([found.positions, rest])
        return BaseRanking(positions, fused, scores, scores, scores, scores, *legs, found)

    # What a phase may ask, beside the reader.

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Ask the base ranking another question in the same scope."""
        found = self.rank(text, depth)
        return found.positions[found.order], found.final[found.order]

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        values = self.reader.facets["wing"].values
        codes = self.reader.codes_at("wing", positions)
        return [None if code < 0 else values[code] for code in codes]

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the window, zeros where none is known; a summary has none."""
        if not self.inputs.knows_usage():
            from noctuary.usage.reader import Usage

            return Usage.none(positions.size)
        return self.inputs.usage_of(self._ids_of(positions))

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with any of the others."""
        if not self.inputs.knows_usage():
            return np.zeros(positions.size, dtype=np.int64)
        return self.inputs.co_retrieved(self._ids_of(positions))

    def _ids_of(self, positions: Positions) -> list[str]:
        wanted: list[int] = positions.tolist()
        missing = [p for p in wanted if p not in self._ids]
        if missing:
            self._ids.update(self.reader.memory_ids(missing))
        return [self._ids[p] for p in wanted]

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories that this recall may see, most first."""

        # Others' memories may fill the head of the list: they must not use up the limit.
        def visible(ids: list[str]) -> list[int]:
            return self._visible(list(self.reader.positions_of(ids).values())).tolist()

        return np.array(look_down(self.inputs.most_used, visible, limit), dtype=np.int64)

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each source of which this recall may see every turn."""
        found, mask = self.reader.summaries.of_sources(positions), self.rows.memories
        return {p: s for p, s in found.items() if mask is None or mask[list(s.sources)].all()}

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return what the night found to replace the positions, and these successors in turn.

        `as_of` is in the mask: a memory ends when its successor was created, or later, so whoever
        sees both asks for a moment after that. A successor that is not searched is passed through.
        """
        from noctuary.graph.successors import NO_SUCCESSOR

        index = self.reader.superseded
        rows: dict[int, SupersessionRow] = {}
        while positions.size:
            newer = index.successors(positions, visible=self.rows.allowed)
            found = map(index.row_of, positions[newer != NO_SUCCESSOR].tolist())
            fresh = {row.older: row for row in found if row is not None and row.older not in rows}
            rows.update(fresh)
            positions = np.array([row.newer for row in fresh.values()], dtype=np.int64)
        wanted = ("supersessions", "older", "older, evidence_position")
        evidence = dict(self.reader.look_up(*wanted, [str(older) for older in rows]))
        links = {
            r.older: Successor(
                r.newer, r.reason, r.confidence, r.similarity, r.age_gap_days, evidence[r.older]
            )
            for r in rows.values()
        }
        return links if self.rows.hidden is None else through_hidden(links, self.rows)

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries of other wording, most similar first, with what is still seen."""
        logged, fault = self.inputs.past_queries(
            self.query.text, since_us=since_us, limit=limit, user=self.query.scope.user
        )
        if fault is not None:
            self.run.warn("query_log", fault)
        places = self.reader.positions_of(sorted({i for *_, found in logged for i in found}))
        seen = [self._visible([places[i] for i in found if i in places]) for *_, found in logged]
        return [
            PastQuery(*row[:3], tuple(kept.tolist()))
            for row, kept in zip(logged, seen, strict=True)
        ]

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        rows = self.reader.describe(positions.tolist())
        texts = [str(rows[p]["content"]) for p in positions.tolist()]
        timeout_ms = min(self.profile.rerank_timeout_ms, self.run.left_ms())
        return self.inputs.rerank(self.profile.reranker, self.query.text, texts, timeout_ms)

    def _visible(self, positions: Sequence[int]) -> Positions:
        kept, mask = np.array(positions, dtype=np.int64), self.rows.memories
        return kept if mask is None else kept[mask[kept]]


def rank_alone(
    reader: SnapshotReader,
    graph: SnapshotGraph,
    profile: RetrievalProfile,
    mask: Mask | None,
    encode: QueryVector | None,
    text: str,
    depth: int,
) -> BaseRanking:
    """Return the ranking of a snapshot by itself: no phases, no live rows, nothing that changes."""
    query, nothing = Query(text, depth, profile, dry_run=True), cast("Inputs", None)
    search = Search(reader, graph, query, nothing, rows=Rows.of(reader, mask, mask), encode=encode)
    return search.rank(text, depth)


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

_SHOWN = ("content", "category", "tags", "importance", "wing", "room", "session_id", "user")


class _Found(NamedTuple):
    """Rows of what is shown and of what the graph reached it by, and these paths; by position."""

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
    """Return what is told about positions: by phases, and of turns behind a summary which it is."""
    told, rows = search.ledger.annotations, search.rows
    notes = {p: told[p] for p in positions if p in told}
    if rows.turns is not None:
        for p in positions:
            if (summary := rows.stands_for(p)) is not None:
                notes[p] = {**notes.get(p, {}), "summarized_by": PositionRef(summary)}
    return notes


def _leg_hits(leg: Leg, positions: list[int]) -> dict[int, LegHit]:
    """Return what a leg said about those of the positions that it ranked."""
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
        """Return the inputs as this store has them now, with what it may tell a user about use."""

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
        self, query: str, k: int, *, profile: RetrievalProfile, scope: Scope | None = None
    ) -> list[tuple[str, float]]:
        """Return ids and final scores of what `recall` returns; reads no text, judges nothing."""
        scope = scope or Scope()
        check_arguments(query, k, "relevance", scope, None)
        asked = Query(query, k, profile, scope=scope)
        search = Search(self.reader, self._graph, asked, self.inputs_now(scope.user))
        self._answer(search)
        best = search.candidates.first(k).score_of()
        named = search.reader.public_ids(best)
        return [(str(named[position]), score) for position, score in best.items()]

    def ask(
        self, query: Query, inputs: Inputs | None = None, deadline_ms: float | None = None
    ) -> RecallResult:
        """Return the answer to a query whose arguments are sound."""
        run = RecallRun(deadline_ms)
        inputs = inputs or self.inputs_now(query.scope.user)
        search = Search(self.reader, self._graph, query, inputs, run=run)
        self._answer(search)
        with run.step("fetch"):
            found = _read(search)
        answerability, supports = self._judge(search)
        with run.step("fetch"):
            memories = _describe(search, found, supports)
        extras: dict[str, Any] = {}
        if search.wants_events or query.profile.candidate_trace or has_hooks("post_cross_wing"):
            from noctuary.recall.explain import explain

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
            base = search.base = search.retrieve()
            order = base.order
            unexpanded = np.zeros(order.size, dtype=np.bool_)
            candidates = Candidates(base.positions[order], base.final[order], unexpanded)
            search.total_in = candidates.size
            if search.wants_events:
                from noctuary.recall.explain import record_base

                record_base(search.ledger, base, query.profile)
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
                from noctuary.recall.live import lay_over

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
