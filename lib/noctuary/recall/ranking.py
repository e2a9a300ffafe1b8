"""From a question to the base ranking: legs, fusion, graph and priors, before any phase."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.recall.inputs import Inputs
from noctuary.recall.legs import (
    GraphLeg,
    Leg,
    SnapshotGraph,
    add_exact_match,
    apply_importance,
    find_exact_matches,
    fuse,
    importance_of,
    pool_candidates,
    quota_positions,
    rank_dense,
    rank_lexical,
)
from noctuary.recall.profile import TURNS, RetrievalProfile
from noctuary.recall.query import Mask, Positions, Query, Scores
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.rows import Rows
from noctuary.recall.search import BaseRanking, QueryVector, Search
from noctuary.recall.support import OTHER_WINGS
from noctuary.text.marks import may_concern_dates

LEAST_TRUST = 0.01  # of a dense leg: where no word is found either, its guess is all there is


def retrieve(search: Search) -> BaseRanking:
    """Return the candidates of the query, as many from each leg as it wants."""
    live = search.reader.end - search.reader.first_live
    return rank(search, search.query.text, search.query.depth(search.reader.count + live))


def rank(search: Search, text: str, depth: int) -> BaseRanking:
    """Return the candidates of a text, at most `depth` from each leg."""
    profile, run, reader = search.profile, search.run, search.reader
    legs, rows, opened = _ask_legs(search, text, depth), search.rows, None
    if rows.turns is not None:
        with run.step("fuse"):
            legs, rows, opened = _open_summaries(search, legs, depth)
    if profile.mmr_enabled and profile.wing_diversity_weight > 0 and profile.wing_quota > 0:
        legs = (_with_quota(search, legs[0], rows), _with_quota(search, legs[1], rows))
    with run.step("fuse"):
        if profile.scorer == "fusion":
            positions = pool_candidates([leg.ranking for leg in legs])
            fused = fuse(positions, legs, profile)
        else:
            from noctuary.recall.scorers import score_candidates

            positions, fused = score_candidates(search, text, legs[1])
    ranking = BaseRanking(positions, fused, fused, fused, fused, fused, *legs)
    # The walk's additions are on the scale of a fusion; libravdb's own hops are authored.
    if profile.graph_weight > 0 and positions.size and profile.scorer == "fusion":
        ranking = _with_graph(search, text, ranking, rows)
    if profile.exact_match_bonus > 0:
        with run.step("exact"):
            exact = find_exact_matches(reader, text, ranking.positions)
            matched = add_exact_match(ranking.with_graph, exact, profile.exact_match_bonus)
            ranking = ranking._replace(matched=matched, relevance=matched, exact=exact)
    if ranking.positions.size and int(ranking.positions[-1]) >= reader.count:
        from noctuary.recall.scorers import quality

        confidences = reader.confidences_at(ranking.positions)
        worth = quality(confidences, profile.quality_penalty)
        ranking = ranking._replace(relevance=ranking.matched * worth)
    importance = importance_of(reader, ranking.positions)
    final = apply_importance(ranking.relevance, importance, profile.importance_prior)
    return _own_first(search, ranking._replace(final=final, opened=opened))


def _own_first(search: Search, ranking: BaseRanking) -> BaseRanking:
    """Lower what reaches the wing that is asked for from others."""
    scope, reader = search.query.scope, search.reader
    if not scope.person or scope.wing is None:
        return ranking
    is_own = reader.codes_at("wing", ranking.positions) == reader.facets["wing"].code_of(scope.wing)
    final = np.where(is_own, ranking.final, ranking.final * OTHER_WINGS)
    return ranking._replace(final=final, anywhere=ranking.final)


def rank_unhidden(search: Search) -> BaseRanking:
    """Return the ranking if all that the scope shows of the snapshot were searched."""
    whole = search.reader.whole
    rows = Rows.of(whole, search.rows.allowed, search.rows.allowed)
    # Its own clock and warnings: it explains the recall and is no part of it.
    apart = Search(
        whole,
        search.graph,
        search.query,
        search.inputs,
        rows=rows,
        encode=search.encode,
        ranker=rank,
    )
    apart.known_share = search.known_share
    live = search.reader.end - search.reader.first_live
    return rank(apart, search.query.text, search.query.depth(search.reader.count + live))


def _ask_legs(search: Search, text: str, depth: int) -> tuple[Leg, Leg]:
    lexical = dense = Leg.empty()
    profile, searched = search.profile, search.rows.searched
    if profile.lexical_weight > 0:
        with search.run.step("lexical"):
            coverage = profile.lexical_coverage
            lexical = search.once(
                ("lexical", text, depth, coverage),
                lambda: rank_lexical(search.reader, text, searched, depth, coverage),
            )
    if profile.dense_weight > 0 and search.encode is not None:
        dense = _with_said(search, text, _ask_dense(search, search.encode, text, depth), depth)
    return lexical, dense


def _with_said(search: Search, text: str, leg: Leg, depth: int) -> Leg:
    """Return the leg with those behind its ranking that say a day which the text names."""
    if not leg.ranking.size or not may_concern_dates(text):
        return leg
    from noctuary.text.dates import wanted_days

    reader, searched = search.reader, search.rows.searched
    slices = reader.look_up_terms(wanted_days(text))
    saying = pool_candidates([reader.posting_positions[a:b].astype(np.int64) for a, b in slices])
    if searched is not None:
        saying = saying[searched[saying]]
    return leg.followed_by(saying, depth)


def _open_summaries(
    search: Search, legs: tuple[Leg, Leg], depth: int
) -> tuple[tuple[Leg, Leg], Rows, Positions]:
    """Rank the turns of every summary that was hit, by itself or by a turn, in its place.

    Returns the legs, the rows that may come back, and the summaries, ascending.
    """
    reader, rows = search.reader, search.rows
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


def _ask_dense(search: Search, encode: QueryVector, text: str, depth: int) -> Leg:
    run, reader = search.run, search.reader
    if run.late():
        run.warn("deadline_dense", "the deadline passed before the dense leg; it was skipped")
        return Leg.empty()
    rows = search.rows
    by_turns = rows.turns is not None and search.profile.summary_vectors == TURNS
    try:
        with run.step("encode"):
            vector = encode(text)
        if reader.live is not None and not reader.live.is_encoded:
            with run.step("live"):
                reader.live.encode(reader.live_word_scores(text))
        with run.step("dense"):
            searched = rows.turns if by_turns else rows.searched
            leg = search.once(
                ("dense", text, depth, by_turns),
                lambda: rank_dense(reader, vector, searched, depth),
            )
        return leg._replace(readable=max(search.known_share(text), LEAST_TRUST))
    except (EncoderError, OSError, ValueError) as error:
        run.warn("dense_unavailable", f"answered without the dense leg: {error}")
        return Leg.empty()


def _with_quota(search: Search, leg: Leg, rows: Rows) -> Leg:
    """Return the leg with the best of every wing behind its ranking, best first."""
    if leg.all_scores is None:
        return leg
    # Rows of the snapshot only: live ones have no part in the quota.
    end, searched = search.reader.first_live, rows.searched
    mask = None if searched is None else searched[:end]
    quota, wings = search.profile.wing_quota, search.reader.wing_codes
    found = quota_positions(wings, leg.all_scores[:end], quota, mask)
    return leg.followed_by(found, found.size)


def _with_graph(search: Search, text: str, ranking: BaseRanking, rows: Rows) -> BaseRanking:
    run, profile = search.run, search.profile
    if run.late():
        run.warn("deadline_graph", "the deadline passed before the graph leg; it was skipped")
        return ranking
    legs = (ranking.lexical, ranking.dense)
    # Paths lead to memories alone, which come first.
    size = int(np.searchsorted(ranking.positions, search.reader.count))
    rest, rest_fused = ranking.positions[size:], ranking.fused[size:]

    def fuse_at(positions: Positions) -> Scores:
        # With the others, whose scores are on the same scale, and without them again.
        everyone = np.concatenate([positions, rest]) if rest.size else positions
        return fuse(everyone, legs, profile)[: positions.size]

    scope = search.query.scope
    as_of_us = None if scope.as_of is None else search.now_us
    with run.step("graph"):
        weights = (profile.graph_weight, profile.session_weight)
        in_wing = scope.wing is not None
        leg = GraphLeg(search.graph, rows.memories, *weights, as_of_us, in_wing)
        links = search.once(("links", text), lambda: leg.link(text))
        pool, fused = ranking.positions[:size], ranking.fused[:size]
        found = leg.rank(text, links, pool, fused, fuse_at, ranking.dense)
    ranking = ranking._replace(links=None if rows.hide_any else links)
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
    return BaseRanking(
        positions, fused, scores, scores, scores, scores, *legs, found, ranking.links
    )


def rank_alone(
    reader: SnapshotReader,
    graph: SnapshotGraph,
    profile: RetrievalProfile,
    mask: Mask | None,
    encode: QueryVector | None,
    text: str,
    depth: int,
    shared: dict[Any, Any] | None = None,
) -> BaseRanking:
    """Return the ranking of a snapshot by itself: no phases, no live rows, nothing that changes.

    `shared` keeps legs for other profiles that ask the same.
    """
    query, nothing = Query(text, depth, profile, dry_run=True), cast("Inputs", None)
    rows = Rows.of(reader, mask, mask)
    search = Search(
        reader, graph, query, nothing, rows=rows, encode=encode, ranker=rank, shared=shared
    )
    return rank(search, text, depth)
