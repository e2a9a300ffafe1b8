"""The ranking before the phases, what phases may look up, and orders other than relevance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.types import UNDATED_US, dataclass
from noctuary.recall.candidates import (
    Candidates,
    Ledger,
    PastQuery,
    Positions,
    Scores,
    Successor,
    SummaryView,
    Usage,
)
from noctuary.recall.inputs import World
from noctuary.recall.legs import (
    GraphLeg,
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
from noctuary.recall.profile import TURNS, RetrievalProfile
from noctuary.recall.query import Mask, RecallRun
from noctuary.recall.reader import SnapshotGraph, SnapshotReader
from noctuary.recall.result import RecallWarning

if TYPE_CHECKING:
    from noctuary.graph.successors import SupersessionRow
    from noctuary.recall.hidden import Searched
    from noctuary.recall.live import Overlay
    from noctuary.recall.scorers import Scorer


# The ranking before the phases: legs, fusion, graph, exact matches, quality, importance prior.


QueryVector = Callable[[str], NDArray[np.float32]]
"""Encodes a query; raises EncoderError, OSError or ValueError where it cannot."""


class BaseRanking(NamedTuple):
    """Candidates with their scores after every step; all arrays have length m.

    Attributes:
        positions: int64, ascending, distinct.
        fused: After fusion (or the alternative scorer), in [0, 1].
        with_graph: After what the graph added.
        matched: After the exact-match bonus.
        relevance: Times the quality of summaries; what sort_by="relevance" starts from.
        final: After the importance prior.
        lexical: The lexical leg.
        dense: The dense leg.
        graph: What the graph added and by which paths, or None where it abstained.
        exact: Which hold every word of the query; None without a bonus for it.
    """

    positions: Positions
    fused: Scores
    with_graph: Scores
    matched: Scores
    relevance: Scores
    final: Scores
    lexical: Leg
    dense: Leg
    graph: GraphRanking | None
    exact: Mask | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """Places from best to worst: by final score, then relevance, then position."""
        return np.lexsort((self.positions, -self.relevance, -self.final))


class BaseRanker(NamedTuple):
    """Ranks texts over one snapshot within one scope.

    Attributes:
        reader: The snapshot.
        graph: Its graph.
        profile: How to rank.
        mask: What may be seen; None for everything.
        encode: How a text becomes a vector, or None where there is no dense leg.
        scorer: Takes the place of fusion; None for fusion.
        as_of_us: The moment whose edges are walked; None for now.
        summaries: Which summaries are searched beside the memories, shape (s,); None for none.
        overlay: Rows of the store itself that are searched as well; None for none.
    """

    reader: SnapshotReader
    graph: SnapshotGraph
    profile: RetrievalProfile
    mask: Mask | None
    encode: QueryVector | None
    scorer: Scorer | None = None
    as_of_us: int | None = None
    summaries: NDArray[np.bool_] | None = None
    overlay: Overlay | None = None

    def rank(self, run: RecallRun, query: str, depth: int) -> BaseRanking:
        """Return the candidates of a query, at most `depth` from each leg."""
        legs = self._legs(run, query, depth)
        with run.step("fuse"):
            if self.scorer is None:
                positions = pool_candidates([leg.ranking for leg in legs])
                fused = fuse(positions, legs, self.profile)
            else:
                positions, fused = self.scorer.score(query, legs[1])
        ranking = _plain(positions, fused, legs)
        # The walk's additions are on the scale of a fusion; libravdb's own hops are authored.
        if self.profile.graph_weight > 0 and positions.size and self.scorer is None:
            ranking = self._with_graph(run, query, ranking)
        if self.profile.exact_match_bonus > 0:
            with run.step("exact"):
                exact = self._exact_matches(query, ranking.positions)
                bonus = self.profile.exact_match_bonus
                matched = add_exact_match(ranking.with_graph, exact, bonus)
                ranking = ranking._replace(matched=matched, relevance=matched, exact=exact)
        if self.summaries is not None:
            quality = quality_of(self._view, ranking.positions, self.profile)
            ranking = ranking._replace(relevance=ranking.matched * quality)
        importance = importance_of(self._view, ranking.positions)
        prior = self.profile.importance_prior
        return ranking._replace(final=apply_importance(ranking.relevance, importance, prior))

    @property
    def _view(self) -> SnapshotReader:
        """Where candidates are looked up by position."""
        return self.reader if self.overlay is None else self.overlay.view

    def _exact_matches(self, query: str, positions: Positions) -> Mask:
        if self.overlay is None:
            return find_exact_matches(self.reader, query, positions)
        return self.overlay.find_exact_matches(query, positions)

    def _legs(self, run: RecallRun, query: str, depth: int) -> tuple[Leg, Leg]:
        lexical = dense = Leg.empty()
        if self.profile.lexical_weight > 0:
            with run.step("lexical"):
                lexical = self._lexical_leg(query, depth)
        if self.profile.dense_weight > 0 and self.encode is not None:
            dense = self._dense_leg(run, query, depth)
        profile = self.profile
        if profile.mmr_enabled and profile.wing_diversity_weight > 0 and profile.wing_quota > 0:
            return self._with_quota(lexical), self._with_quota(dense)
        return lexical, dense

    def _lexical_leg(self, query: str, depth: int) -> Leg:
        leg = rank_lexical(self.reader, query, self.mask, depth)
        if self.summaries is not None:
            from noctuary.recall.hidden import add_lexical

            leg = add_lexical(self.reader, query, leg, self.summaries, depth)
        return leg if self.overlay is None else self.overlay.add_lexical(query, leg, depth)

    def _dense_leg(self, run: RecallRun, query: str, depth: int) -> Leg:
        if run.late():
            run.warn("deadline_dense", "the deadline passed before the dense leg; it was skipped")
            return Leg.empty()
        assert self.encode is not None
        try:
            with run.step("encode"):
                vector = self.encode(query)
            with run.step("dense"):
                leg = rank_dense(self.reader, vector, self.mask, depth)
                if self.summaries is not None:
                    from noctuary.recall.hidden import add_dense

                    shown, by_turns = self.summaries, self.profile.summary_vectors == TURNS
                    leg = add_dense(self.reader, vector, leg, shown, depth, by_turns=by_turns)
            if self.overlay is None:
                return leg
            with run.step("live"):
                return self.overlay.add_dense(query, vector, leg, depth)
        except (EncoderError, OSError, ValueError) as error:
            run.warn("dense_unavailable", f"answered without the dense leg: {error}")
            return Leg.empty()

    def _with_quota(self, leg: Leg) -> Leg:
        """Return the leg with the best of every wing behind its ranking, best first."""
        if leg.all_scores is None:
            return leg
        wings, mask = self.reader.facets["wing"].codes, self.mask
        if self.summaries is not None:
            summaries = self.reader.summaries.arrays
            wings = np.concatenate([wings, wings[summaries.first_sources()]])
            seen = np.ones(self.reader.count, dtype=np.bool_) if mask is None else mask
            mask = np.concatenate([seen, self.summaries])
        found = quota_positions(wings, leg.all_scores, self.profile.wing_quota, mask)
        late = found[~np.isin(found, leg.ranking)]
        late = late[np.lexsort((late, -leg.all_scores[late]))]
        return replace(leg, ranking=np.concatenate([leg.ranking, late]))

    def _with_graph(self, run: RecallRun, query: str, ranking: BaseRanking) -> BaseRanking:
        if run.late():
            run.warn("deadline_graph", "the deadline passed before the graph leg; it was skipped")
            return ranking
        legs = (ranking.lexical, ranking.dense)
        weights = (self.profile.graph_weight, self.profile.session_weight)
        alone = self.summaries is None and self.overlay is None
        memories = ranking if alone else _only_memories(ranking, self.reader.count)
        rest = ranking.positions[memories.positions.size :]

        def fuse_at(positions: Positions) -> Scores:
            # With the summaries, whose scores are on the same scale, and without them again.
            everyone = np.concatenate([positions, rest]) if rest.size else positions
            return fuse(everyone, legs, self.profile)[: positions.size]

        with run.step("graph"):
            leg = GraphLeg(self.graph, self.mask, *weights, self.as_of_us)
            found = leg.rank(query, memories.positions, memories.fused, fuse_at)
        if found is None:
            return ranking
        if found.talk is not None and found.talk.left_out:
            run.warn(
                "sessions_left_out",
                f"{found.talk.left_out} sessions of weaker hits were not looked into: the graph "
                "leg's bounds on sessions or members were reached",
            )
        return _with_arrivals(ranking, found, legs, rest.size)


def fuse(positions: Positions, legs: tuple[Leg, Leg], profile: RetrievalProfile) -> Scores:
    """Fuse the legs' scores of some positions, in [0, 1]."""
    weights = (profile.lexical_weight, profile.dense_weight)
    if profile.fusion == "rrf":
        rankings = (legs[0].ranking, legs[1].ranking)
        return fuse_rrf(positions, rankings, weights, profile.rrf_k)
    return fuse_convex([leg.scores_at(positions) for leg in legs], weights)


def lexical_share(ranking: BaseRanking, profile: RetrievalProfile) -> Scores:
    """Return what the lexical leg contributed to the fused scores; the rest is the dense leg's.

    Both fusions divide the sum of the legs' parts by the weights of the legs that found something.
    """
    legs = (ranking.lexical, Leg.empty())
    alone = fuse(ranking.positions, legs, profile)
    weights = [
        weight
        for weight, leg in (
            (profile.lexical_weight, ranking.lexical),
            (profile.dense_weight, ranking.dense),
        )
        if leg.ranking.size
    ]
    if not ranking.lexical.ranking.size:
        return np.zeros(ranking.positions.size)
    return np.minimum(alone * (profile.lexical_weight / sum(weights)), ranking.fused)


def record_base(ledger: Ledger, ranking: BaseRanking, profile: RetrievalProfile) -> None:
    """Note what every step before the phases contributed."""
    fusion, bonus = profile.scorer == "fusion", profile.exact_match_bonus
    share = lexical_share(ranking, profile) if fusion else np.zeros(ranking.positions.size)
    ranks = [leg.rank_of() for leg in (ranking.lexical, ranking.dense)]
    steps: list[tuple[str, Scores, Callable[[int], str]]] = [
        ("lexical", share, lambda p: f"lexical rank {ranks[0].get(p, 'none')}"),
        (
            "dense" if fusion else "scorer",
            ranking.fused,
            lambda p: f"dense rank {ranks[1].get(p, 'none')}",
        ),
        ("graph", _lifted(ranking, profile), lambda p: _graph_reason(ranking, p)),
        ("graph_scale", ranking.with_graph, lambda p: _scale_reason(ranking, p)),
        (
            "exact_match",
            ranking.with_graph + (0.0 if ranking.exact is None else bonus * ranking.exact),
            lambda _: "bonus for holding every word of the query",
        ),
        (
            "exact_match_scale",
            ranking.matched,
            lambda _: f"all scores are divided by {1.0 + bonus:.3f}",
        ),
        ("summary_quality", ranking.relevance, lambda p: _quality_reason(ranking, p)),
        ("importance", ranking.final, lambda _: "importance below 1 takes its share"),
    ]
    for phase, scores, reason_of in steps:
        ledger.record(phase, ranking.positions, scores, reason_of)


def _lifted(ranking: BaseRanking, profile: RetrievalProfile) -> Scores:
    """Return the fused scores with what the graph added, before they are scaled: never less."""
    found = ranking.graph
    if found is None:
        return ranking.fused
    lifted = ranking.fused.copy()
    lifted[: found.positions.size] += profile.graph_weight * found.added
    return lifted


def _graph_reason(ranking: BaseRanking, position: int) -> str:
    path = None if ranking.graph is None else path_of(ranking.graph, position)
    return "" if path is None else path.reason


def _scale_reason(ranking: BaseRanking, position: int) -> str:
    found, said = ranking.graph, list[str]()
    if found is not None and found.scale > 1.0:
        said.append(f"all scores are divided by {found.scale:.3f}")
    if found is not None and found.talk is not None and position in found.talk.members:
        said.append("members of sessions share out the scores that they had")
    return "; ".join(said)


def _quality_reason(ranking: BaseRanking, position: int) -> str:
    place = int(np.searchsorted(ranking.positions, position))
    share = ranking.relevance[place] / ranking.matched[place]
    return f"x quality {share:.3f}: a summary counts for what it preserves of its sources"


def importance_of(reader: SnapshotReader, positions: Positions) -> Scores:
    """Return importance in [0, 1] even where the file holds something else.

    A summary has its most important source's.
    """
    stored = reader.importance_at(positions).astype(np.float64)
    return np.clip(np.nan_to_num(stored), 0.0, 1.0)


def quality_of(reader: SnapshotReader, positions: Positions, profile: RetrievalProfile) -> Scores:
    """Return Q = 1 - quality_penalty x (1 - confidence) of summaries, 1 of memories; in [0, 1].

    Never falls as the confidence grows (libravdb mathematics sections 1 and 5.5: 1 - confidence is
    the summary's decay rate).
    """
    from noctuary.recall.scorers import quality

    return quality(reader.summaries.confidences(positions), profile.quality_penalty)


def _plain(positions: Positions, fused: Scores, legs: tuple[Leg, Leg]) -> BaseRanking:
    return BaseRanking(positions, fused, fused, fused, fused, fused, legs[0], legs[1], None)


def _only_memories(ranking: BaseRanking, count: int) -> BaseRanking:
    """Return the part of a plain ranking before the summaries, which come last."""
    size = int(np.searchsorted(ranking.positions, count))
    return _plain(ranking.positions[:size], ranking.fused[:size], (ranking.lexical, ranking.dense))


def _with_arrivals(
    ranking: BaseRanking, found: GraphRanking, legs: tuple[Leg, Leg], summaries: int
) -> BaseRanking:
    """Return the memories as the graph leaves them and the summaries, to which no path leads.

    Everything is scaled back by the same divisor, so that both stay on one scale.
    """
    positions, fused, scores = found.positions, found.fused, found.scores
    if summaries:
        rest = ranking.fused[-summaries:]
        positions = np.concatenate([positions, ranking.positions[-summaries:]])
        fused, scores = np.concatenate([fused, rest]), np.concatenate([scores, rest / found.scale])
    plain = _plain(positions, fused, legs)
    return plain._replace(
        with_graph=scores, matched=scores, relevance=scores, final=scores, graph=found
    )


# What phases may look up, answered from one snapshot and the world.
#
# No formula, no ranking.


Search = Callable[[str, int], tuple[Positions, Scores]]


@dataclass(frozen=True, slots=True)
class SnapshotLookups:
    """Implements `Lookups`.

    Attributes:
        reader: The snapshot.
        world: Everything that changes.
        mask: What the recall searches; None for everything.
        query: What was asked.
        profile: How to rank.
        user: Whose recall it is, or None.
        run: Its clock and its warnings.
        ask: Ranks another text in the same scope.
        searched: What is searched and what is not, and why; None where `mask` says it all.
    """

    reader: SnapshotReader
    world: World
    mask: Mask | None
    query: str
    profile: RetrievalProfile
    user: str | None
    run: RecallRun
    ask: Search
    searched: Searched | None = None
    _ids: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def count(self) -> int:
        """Memories in the snapshot."""
        return self.reader.count

    def created_at_us(self, positions: Positions) -> NDArray[np.int64]:
        """Return creation times; a summary has its latest turn's."""
        return self.reader.created_at(positions)

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        wings = self.reader.facets["wing"]
        codes = self.reader.codes_at("wing", positions)
        return [None if code < 0 else wings.values[code] for code in codes]

    def wing_counts(self) -> Mapping[str, int]:
        """Return the memories per wing that the scope allows; those without one are left out."""
        wings = self.reader.facets["wing"]
        codes = wings.codes if self.mask is None else wings.codes[self.mask]
        counts = np.bincount(codes[codes >= 0], minlength=len(wings.values))
        return {w: int(n) for w, n in zip(wings.values, counts, strict=True) if n}

    def vectors_of(self, positions: Positions) -> NDArray[np.float32] | None:
        """Return unit rows (m, d), each of what is shown: a summary has its own."""
        vectors = self.reader.vectors
        if vectors is None:
            return None
        rows = vectors[np.minimum(positions, self.count - 1)].astype(np.float32)
        inside = positions >= self.count
        if inside.any():
            of_summaries = self.reader.summary_vectors
            assert of_summaries is not None
            rows[inside] = of_summaries[positions[inside] - self.count]
        return rows

    def rows_of(self, positions: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        """Return the rows by position."""
        return self.reader.describe(positions)

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the window; a summary has none of its own."""
        if not self.world.knows_usage():
            zeros = np.zeros(positions.size, dtype=np.int64)
            return Usage(zeros, zeros, np.full(positions.size, UNDATED_US, dtype=np.int64))
        return self.world.usage_of(self.ids_of(positions))

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories that this recall may see, most first."""
        asked = limit
        while True:
            ids = self.world.most_used(asked)
            visible = self._visible(list(self.reader.positions_of(ids).values()))
            # Others' memories may fill the head of the list: they must not use up the limit.
            if visible.size >= limit or len(ids) < asked:
                return visible[:limit]
            asked *= 8

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with the others."""
        if not self.world.knows_usage():
            return np.zeros(positions.size, dtype=np.int64)
        return self.world.co_retrieved(self.ids_of(positions))

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each source among the positions.

        A summary of which the recall may not see every turn does not exist for it.
        """
        found = self.reader.summaries.of_sources(positions)
        return {p: s for p, s in found.items() if self._sees_all(s.sources)}

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return what the night found to replace the positions, and these successors in turn.

        `as_of` is in the mask: a memory ends when its successor was created, or later, so whoever
        sees both asks for a moment after that. A successor that is not searched is passed through.
        """
        from noctuary.graph.successors import NO_SUCCESSOR

        index = self.reader.superseded
        allowed = self.mask if self.searched is None else self.searched.allowed
        rows: dict[int, SupersessionRow] = {}
        while positions.size:
            newer = index.successors(positions, visible=allowed)
            replaced = positions[newer != NO_SUCCESSOR]
            found = [index.row_of(p) for p in replaced.tolist()]
            fresh = {row.older: row for row in found if row is not None and row.older not in rows}
            rows.update(fresh)
            positions = np.array([row.newer for row in fresh.values()], dtype=np.int64)
        wanted = ("supersessions", "older", "older, evidence_position")
        evidence = dict(self.reader.look_up(*wanted, [str(older) for older in rows]))
        links = {
            older: Successor(
                row.newer, row.reason, row.confidence, row.similarity, row.age_gap_days,
                evidence[older],
            )
            for older, row in rows.items()
        }  # fmt: skip
        if self.searched is None:
            return links
        from noctuary.recall.hidden import through_hidden

        return through_hidden(links, self.searched, self.reader.summaries)

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries with what of their results this recall may see."""
        logged, fault = self.world.past_queries(
            self.query, since_us=since_us, limit=limit, user=self.user
        )
        if fault is not None:
            self.run.warn("query_log", fault)
        ids = {i for _, _, _, found in logged for i in found}
        places = self.reader.positions_of(sorted(ids))
        return [
            PastQuery(text, asked_us, similarity, tuple(
                self._visible([places[i] for i in found if i in places]).tolist()
            ))
            for text, asked_us, similarity, found in logged
        ]  # fmt: skip

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Rank another text in the same scope."""
        return self.ask(text, depth)

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        rows = self.reader.describe(positions.tolist())
        texts = [str(rows[p]["content"]) for p in positions.tolist()]
        name = self.profile.reranker
        timeout_ms = min(self.profile.rerank_timeout_ms, self.run.left_ms())
        return self.world.rerank(name, self.query, texts, timeout_ms)

    def ids_of(self, positions: Positions) -> list[str]:
        """Return memory ids as text; a summary's own id."""
        wanted = [int(p) for p in positions]
        missing = [p for p in wanted if p not in self._ids]
        if missing:
            self._ids.update(self.reader.memory_ids(missing))
        return [self._ids[p] for p in wanted]

    def importance_of(self, positions: Positions) -> Scores:
        """Return importance in [0, 1]; a summary has its most important turn's."""
        return importance_of(self.reader, positions)

    def _visible(self, positions: Sequence[int]) -> Positions:
        kept = np.array(positions, dtype=np.int64)
        return kept if self.mask is None else kept[self.mask[kept]]

    def _sees_all(self, positions: Sequence[int]) -> bool:
        return self.mask is None or bool(self.mask[list(positions)].all())


# Orders other than relevance: by importance and by date. No filters, no phases.


_IMPORTANCE_SORT_RELEVANCE = 0.4
_IMPORTANCE_SORT_IMPORTANCE = 0.6
"""The reference store's blend for sort_by="importance" (research/peers.md 2.4): importance leads,
relevance still counts."""


def sort_candidates(
    sort_by: str,
    candidates: Candidates,
    base: BaseRanking,
    lookups: SnapshotLookups,
    all_created_at_us: NDArray[np.int64],
) -> Candidates:
    """Return the candidates with another key, in [0, 1]; ties by relevance, then position.

    Args:
        sort_by: "importance" or "recency".
        candidates: What the phases left.
        base: Where their relevance comes from.
        lookups: Where importance and dates come from.
        all_created_at_us: Of the whole snapshot: they set the scale of "recency".
    """
    relevance = relevance_of(candidates, base)
    if sort_by == "importance":
        importance = lookups.importance_of(candidates.positions)
        key = _IMPORTANCE_SORT_RELEVANCE * relevance + _IMPORTANCE_SORT_IMPORTANCE * importance
    else:
        key = _scale_dates(all_created_at_us, lookups.created_at_us(candidates.positions))
    order = np.lexsort((candidates.positions, -relevance, -key))
    return Candidates(candidates.positions[order], key[order], candidates.expanded[order])


def relevance_of(candidates: Candidates, base: BaseRanking) -> Scores:
    """Return the relevance before prior and phases; a late-comer's own score."""
    places = np.searchsorted(base.positions, candidates.positions)
    inside = places < base.positions.size
    known = np.zeros(candidates.size, dtype=np.bool_)
    known[inside] = base.positions[places[inside]] == candidates.positions[inside]
    relevance = candidates.scores.copy()
    relevance[known] = base.relevance[places[known]]
    return relevance


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
