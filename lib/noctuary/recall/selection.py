"""Phases that choose: for diversity, and one memory or summary in the place of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import DAY_US, UNDATED_US
from noctuary.graph.successors import (
    CONFIDENCES,
    LEAST_DAYS,
    LEAST_SIMILARITY,
    confidence_of,
    keys_of,
)
from noctuary.recall.query import Positions, Scores
from noctuary.recall.reader import SummaryView
from noctuary.recall.result import RecallWarning
from noctuary.recall.rows import Successor
from noctuary.recall.scorers import quality
from noctuary.recall.search import Candidates, Dropped, PhaseOutcome, PositionRef, Search
from noctuary.text.kinds import are_apart


def quoted(text: str | None) -> str:
    """Return a name in quotes; its braces become parentheses, because {123} means a memory."""
    return "(none)" if text is None else f"'{text}'".replace("{", "(").replace("}", ")")


def ordinal(number: int) -> str:
    """Return a rank as words have it: 1st, 2nd, 3rd, 11th, 37th."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# Greedy selection by maximal marginal relevance, with wing saturation. For a candidate d of
# relevance s(d), with S the memories selected so far,
#
#     value(d) = lambda s(d) - (1 - lambda) max cos(d, S) - gamma saturation(d, S)
#
# with max cos clipped to [0, 1] and both penalties 0 while S is empty. The largest value is
# selected next, equal ones in the order given. Relevance is the ranking key so far, and not the raw
# cosine, with which the reference ignores every phase before this one.
#
# Sources: RFC 914 phase 11; research/mempalace.md sections 1 and 3 (phase 5; |S| = 0).

MOST_PICKS = 256  # selected one by one; those after them are ordered by their value given these


class Selection(NamedTuple):
    """Candidates in the order of their selection; every array has length m and that order."""

    order: NDArray[np.int64]  # places in the input
    picked: int  # how many were selected one by one; the rest follows by value
    # In [0, 1]: max(0, value), never above an earlier one: sorting by score gives this order.
    scores: Scores
    similarity: Scores  # largest cosine to those selected before, clipped to [0, 1]
    nearest: NDArray[np.int64]  # place (in the input) of that memory; -1 for none
    saturation: Scores  # in [0, 1], share of the candidate's wing in those selected before
    mmr_values: Scores  # the value without its saturation term, in [-1, 1]
    values: Scores  # in [-1 - gamma, 1]

    @property
    def max_internal_similarity(self) -> float:
        """Largest cosine between two of the selected, clipped to [0, 1]; 0 for fewer than two."""
        return float(self.similarity[: self.picked].max(initial=0.0))


def wing_codes(wings: Sequence[str | None]) -> NDArray[np.int64]:
    """Return one number per wing, from 0 on in order of appearance; no wing is one of its own."""
    numbers: dict[str | None, int] = {}
    return np.array([numbers.setdefault(w, len(numbers)) for w in wings], dtype=np.int64)


def wing_saturation(codes: NDArray[np.int64], counts: NDArray[np.int64]) -> Scores:
    """Return count(wing of d in S) / |S| per candidate (m,) from selected counts per wing."""
    return counts[codes] / max(int(counts.sum()), 1)


def mmr_score(relevance: Scores, similarity: Scores, mmr_lambda: float) -> Scores:
    """Return lambda x relevance - (1 - lambda) x similarity, in [-1, 1]."""
    return mmr_lambda * relevance - (1.0 - mmr_lambda) * similarity


def penalized(mmr_scores: Scores, saturation: Scores, gamma: float) -> Scores:
    """Return mmr_score - gamma x saturation (RFC 914 phase 11: 0.71 - 0.3 x 0.80 = 0.47)."""
    return mmr_scores - gamma * saturation


def select(
    relevance: Scores,
    k: int,
    mmr_lambda: float,
    *,
    vectors: NDArray[np.float32] | None = None,
    codes: NDArray[np.int64] | None = None,
    gamma: float = 0.0,
) -> Selection:
    """Order candidates by maximal marginal relevance; O(k m d) time and O(m) memory.

    Lambda 1 with gamma 0 keeps order and scores. Without `vectors` (m, d), unit rows, every
    similarity counts as 0, as a row of zeros does; without `codes` (m,) saturation does.
    """
    size = relevance.size
    counts = np.zeros(0 if codes is None else int(codes.max(initial=-1)) + 1, np.int64)
    waiting = np.ones(size, dtype=np.bool_)
    picked: list[int] = []
    # A row of each is final from the moment that its candidate is selected.
    similarity, saturation = np.zeros(size), np.zeros(size)
    nearest = np.full(size, -1, dtype=np.int64)
    plain = values = mmr_score(relevance, similarity, mmr_lambda)
    for _ in range(min(k, size, MOST_PICKS)):
        best = int(np.argmax(np.where(waiting, values, -np.inf)))
        waiting[best] = False
        picked.append(best)
        if vectors is not None:
            # Not BLAS, whose last bit depends on the place of a row in the matrix: "mmr" and
            # "cross_wing_balancing" must agree on every cosine.
            cosines = np.einsum("md,d->m", vectors, vectors[best]).astype(np.float64)
            closer = waiting & (cosines > similarity)
            similarity[closer] = np.minimum(cosines[closer], 1.0)
            nearest[closer] = best
        if codes is not None:
            counts[codes[best]] += 1
            saturation = np.where(waiting, wing_saturation(codes, counts), saturation)
        plain = mmr_score(relevance, similarity, mmr_lambda)
        values = penalized(plain, saturation, gamma)
    rest = np.flatnonzero(waiting)
    rest = rest[np.argsort(-values[rest], kind="stable")]
    order = np.concatenate([np.array(picked, dtype=np.int64), rest])
    scores = np.minimum.accumulate(np.clip(values[order], 0.0, 1.0))
    return Selection(
        order, len(picked), scores, similarity[order], nearest[order], saturation[order],
        plain[order], values[order],
    )  # fmt: skip


# Phase 5: trade relevance for diversity, so that near-copies do not fill the answer. Where wings
# are to be balanced (a `wing_diversity_weight` above 0, candidates of several wings) it orders and
# scores, and keeps everybody: "cross_wing_balancing" then chooses by both penalties at once.


def mmr(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Order candidates by maximal marginal relevance; without wing balance, keep the first k."""
    if not candidates.size:
        return PhaseOutcome(candidates)
    profile, size, k = search.profile, candidates.size, search.k
    vectors, warnings = _diversity_vectors(candidates, search)
    chosen = select(candidates.scores, k, profile.mmr_lambda, vectors=vectors)
    ordered = _in_order(candidates, chosen)
    balance_follows = (
        profile.wing_diversity_weight > 0 and len(set(search.wings_of(candidates.positions))) > 1
    )
    kept = size if balance_follows else min(max(k, 0), size)
    if min(k, size) > MOST_PICKS:
        message = (
            f"only the first {MOST_PICKS} of {min(k, size)} memories were selected for "
            "diversity; the rest follows by its value given these"
        )
        warnings = (*warnings, RecallWarning("mmr_bounded", message))

    def reason_of(position: int) -> str:
        row = ordered.row_of(position)
        share = f"{profile.mmr_lambda:g} x relevance {candidates.scores[chosen.order[row]]:.2f}"
        nearest = int(chosen.nearest[row])
        if nearest >= 0:
            near, weight = int(candidates.positions[nearest]), 1.0 - profile.mmr_lambda
            share += f" - {weight:g} x similarity {chosen.similarity[row]:.2f} to {{{near}}}"
        return share + _clamp_note(chosen, row)

    relevance = candidates.scores[chosen.order] if balance_follows else None
    return PhaseOutcome(
        ordered.first(kept)._replace(relevance=relevance),
        reason_of,
        tuple(_dropped_for_similarity(candidates, chosen, row, k) for row in range(kept, size)),
        notes={
            "applied": True,
            "lambda": profile.mmr_lambda,
            "candidates_before_mmr": size,
            "candidates_after_mmr": kept,
            "max_internal_similarity": chosen.max_internal_similarity,
        },
        warnings=warnings,
    )


def _diversity_vectors(
    candidates: Candidates, search: Search
) -> tuple[NDArray[np.float32] | None, tuple[RecallWarning, ...]]:
    """Return the candidates' vectors, None where they have no say, and a warning if missing."""
    if search.profile.mmr_lambda >= 1.0:
        return None, ()
    vectors = search.reader.vectors_at(candidates.positions)
    if vectors is not None:
        return vectors, ()
    said = "this snapshot has no vectors: near copies stay, and only wings are balanced"
    return None, (RecallWarning("mmr_without_vectors", said),)


def _in_order(candidates: Candidates, chosen: Selection) -> Candidates:
    """Return the candidates in the order and with the scores of a selection from them."""
    return candidates.at(chosen.order)._replace(scores=chosen.scores, relevance=None)


def _dropped_for_similarity(candidates: Candidates, chosen: Selection, row: int, k: int) -> Dropped:
    """Say why the candidate at a row of a selection from the candidates is not in the first k."""
    place, nearest = int(chosen.order[row]), int(chosen.nearest[row])
    reason, facts = f"ranked {ordinal(row + 1)}, {k} asked", dict[str, Any]()
    if place < k and nearest >= 0:
        similarity, near = float(chosen.similarity[row]), int(candidates.positions[nearest])
        reason = f"similar ({similarity:.2f}) to {{{near}}}, which was selected before it"
        facts = {"similarity": similarity, "similar_to": PositionRef(near)}
    facts["penalized_score"] = float(chosen.scores[row])
    position, score = int(candidates.positions[place]), float(candidates.scores[place])
    return Dropped("mmr", position, reason, score, facts)


def _clamp_note(chosen: Selection, row: int) -> str:
    """Explain a score that is not the value: the floor, or an earlier candidate."""
    value, score = chosen.values[row], chosen.scores[row]
    if score > value:
        return ", at least 0"
    return ", not above what was selected before" if score < value else ""


# Phase 11: keep one large wing from filling the answer. Its share of a memory's score is the joint
# score minus the plain MMR score: below 0 for a memory of a crowded wing, above 0 for one that the
# crowd had held down.


def cross_wing_balancing(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Select k of what "mmr" left by relevance, similarity and wing saturation at once."""
    if candidates.relevance is None:  # of one wing only: "mmr" has chosen among them
        return PhaseOutcome(candidates, notes={"applied": False})
    by_relevance = np.argsort(-candidates.relevance, kind="stable")
    before = candidates.at(by_relevance)._replace(scores=candidates.relevance[by_relevance])
    wings, (vectors, _) = search.wings_of(before.positions), _diversity_vectors(before, search)
    gamma, k = search.profile.wing_diversity_weight, search.k
    chosen = select(
        before.scores, k, search.profile.mmr_lambda,
        vectors=vectors, codes=wing_codes(wings), gamma=gamma,
    )  # fmt: skip
    ordered, kept = _in_order(before, chosen), min(max(k, 0), candidates.size)
    held = Counter(wings[int(place)] for place in chosen.order[:kept])

    def reason_of(position: int) -> str:
        row = ordered.row_of(position)
        wing, saturation = quoted(wings[int(chosen.order[row])]), float(chosen.saturation[row])
        share = f"wing {wing} holds {saturation:.0%} of those selected before it"
        return f"{share}: -{gamma * saturation:.2f}" + _clamp_note(chosen, row)

    return PhaseOutcome(
        ordered.first(kept),
        reason_of,
        _dropped_for_wings(candidates, before, wings, chosen, k),
        notes={
            "applied": True,
            "gamma": gamma,
            "candidates_before": candidates.size,
            "candidates_after": kept,
            "max_internal_similarity": chosen.max_internal_similarity,
            "wing_saturation": chosen.saturation[:kept].tolist(),
            "wing_shares": {wing or "": count / kept for wing, count in held.items()},
        },
    )


def _dropped_for_wings(
    plain: Candidates, before: Candidates, wings: Sequence[str | None], chosen: Selection, k: int
) -> tuple[Dropped, ...]:
    """Say which phase pushed out everybody beyond the first k; `plain` is "mmr"'s order."""
    kept = min(max(k, 0), plain.size)
    held = Counter(wings[int(place)] for place in chosen.order[: chosen.picked])
    score_of, in_plain_mmr = plain.score_of(), set(plain.positions[:kept].tolist())
    dropped: list[Dropped] = []
    for row in range(kept, plain.size):
        why = _dropped_for_similarity(before, chosen, row, k)
        if chosen.saturation[row] > 0 and why.position in in_plain_mmr:
            wing = wings[int(chosen.order[row])]
            full = f"({held[wing]}/{chosen.picked} selected results)"
            facts = {
                "wing_saturation": float(chosen.saturation[row]),
                "original_mmr_score": float(chosen.mmr_values[row]),
                "penalized_score": float(chosen.values[row]),
            }
            reason = f"wing {quoted(wing)} already saturated {full}"
            why = Dropped("cross_wing_balancing", why.position, reason, 0.0, facts)
        dropped.append(why._replace(score=score_of[why.position]))
    return tuple(dropped)


# Phase 8: a newer memory takes the place of an older one that it replaces. Decided here, because
# the reference does not say:
# - The findings of the night come first. Candidates that it found superseded take no part in the
#   search, so that no pair is reported twice, or both ways.
# - Both must have the same owner, or none: one person's news never hides another's. Wings
#   that differ keep both as well ("the deploy key is X" of two projects); a memory without a wing
#   may belong to any.
# - Two that differ in a number, an identifier, a date or a named thing are no pair
#   (`noctuary.graph.successors`).
# - Of several newer ones the newest is the successor, and of a chain the newest remains.
# - With "filter" the successor takes over the larger of both scores: it answers what its
#   predecessor was found for. One that was not found at all comes in.
#
# Source: research/mempalace.md section 1, phase 8.

LEAST_CONFIDENCE = 1
"""Least confidence (0 low, 1 medium, 2 high) with which a stored successor takes the place of the
older memory and a chain goes on; below, the older is only marked. 2 leaves more stale memories in
answers, 0 hides memories of which half the text may still hold."""

MOST_STALE = 10  # of one recall; more reads more texts

_ROWS_AT_ONCE = 128  # rows of the similarity matrix in memory: 10 MB at 10,000 candidates


class Stale(NamedTuple):
    """A candidate and its replacement, both by position."""

    older: int
    heir: int  # it need not be a candidate
    is_sure: bool  # whether the heir may take its place; otherwise both are only marked
    why: str  # for the reason of a drop, after "superseded by"
    note: str  # shown with the older one if it stays
    facts: Mapping[str, Any]  # for the trace, besides the two


class Superseded(NamedTuple):
    """Rows of an older candidate and of the newest one that repeats it."""

    older: int
    newer: int
    similarity: float
    age_gap_days: int
    confidence: int  # 0 low, 1 medium, 2 high


def supersede(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Hide ("filter") or mark ("annotate") candidates that a newer memory replaces."""
    if not candidates.size:
        return PhaseOutcome(candidates)
    stored = _find_stale(candidates.positions, search.successors_of(candidates.positions))
    known = [stale.older for stale in stored]
    # A summary has many turns: one that is repeated must not hide the others.
    is_memory = candidates.positions < search.reader.count
    unknown = candidates.keep(is_memory & ~np.isin(candidates.positions, known))
    stored = stored[:MOST_STALE]
    searched, warnings = _search_stale(unknown, search, MOST_STALE - len(stored))
    found = [*stored, *searched]
    hides = search.profile.supersede_action == "filter"
    hidden = [stale for stale in found if hides and stale.is_sure]
    marked = [stale for stale in found if not (hides and stale.is_sure)]
    rows = _predecessors(candidates.positions.tolist(), hidden)
    after, score_of = candidates, candidates.score_of()

    def reason_of(heir: int) -> str:
        return f"replaces the older {{{candidates.positions[rows[heir][0]]}}}"

    if hidden:
        gone = np.isin(candidates.positions, [stale.older for stale in hidden])
        heirs = [(heir, of, float(candidates.scores[of[0]])) for heir, of in rows.items()]
        after = _stood_in(candidates, gone, heirs)
    return PhaseOutcome(
        after,
        reason_of,
        tuple(
            Dropped(
                "supersede", stale.older, f"superseded by {{{stale.heir}}}: {stale.why}",
                score_of[stale.older], stale.facts,
            )
            for stale in hidden
        ),
        notes={
            "checked": candidates.size,
            "action": search.profile.supersede_action,
            "superseded_filtered": len(hidden),
            "superseded_annotated": len(marked),
            "superseded_stored": len(stored),
        },
        annotations=_marks(after, marked),
        warnings=warnings,
    )  # fmt: skip


def _find_stale(positions: Positions, links: Mapping[int, Successor]) -> list[Stale]:
    """Return the candidates that have a stored successor, the surest first, then in their order.

    The heir is the last memory of the chain that sure links lead to. A damaged table may hold a
    cycle: none of its memories replaces another.
    """
    sure = {older: link for older, link in links.items() if link.confidence >= LEAST_CONFIDENCE}
    found: list[Stale] = []
    rank = {position: row for row, position in enumerate(positions.tolist())}
    for older in sorted(links.keys() & rank):
        heir = links[older].newer
        for _ in sure:
            if heir not in sure:
                break
            heir = sure[heir].newer
        if heir not in sure and heir != older:
            found.append(_stale(older, heir, links[older]))
    found.sort(key=lambda stale: (-links[stale.older].confidence, rank[stale.older]))
    return found


def _stale(older: int, heir: int, link: Successor) -> Stale:
    confidence, why = CONFIDENCES[link.confidence], f"{link.reason}, evidence {{{link.evidence}}}"
    compared = "" if link.similarity is None else f", similarity {link.similarity:.2f}"
    # An explicit link may go against the dates, or have none.
    later = f", {link.age_gap_days} days later" if link.age_gap_days else ""
    note = f"{link.reason}, confidence {confidence}, evidence {{{link.evidence}}}{compared}{later}"
    facts = {
        "superseded_by": PositionRef(heir),
        "supersede_reason": link.reason,
        "confidence": confidence,
        "evidence": PositionRef(link.evidence),
        "similarity": link.similarity,
        "age_gap_days": link.age_gap_days,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    return Stale(older, heir, link.confidence >= LEAST_CONFIDENCE, why, note, facts)


def _search_stale(
    candidates: Candidates, search: Search, at_most: int
) -> tuple[list[Stale], tuple[RecallWarning, ...]]:
    """Return candidates that another one repeats, and why the search was skipped, if it was."""
    if candidates.size < 2 or not at_most:
        return [], ()
    reader = search.reader
    vectors = reader.vectors_at(candidates.positions)
    if vectors is None:
        message = "this snapshot has no vectors: only the night's successors replace memories"
        return [], (RecallWarning("supersede_without_vectors", message),)
    positions: list[int] = candidates.positions.tolist()
    rows, wings = reader.describe(positions), search.wings_of(candidates.positions)
    pairs = find_superseded(
        vectors,
        reader.created_at(candidates.positions),
        wing_codes([rows[p]["user"] for p in positions]),
        np.where([wing is None for wing in wings], -1, wing_codes(wings)),
        [rows[p]["content"] for p in positions],
        at_most,
    )
    found: list[Stale] = []
    for pair in pairs:
        heir, confidence = positions[pair.newer], CONFIDENCES[pair.confidence]
        said = f"similarity {pair.similarity:.2f}, {pair.age_gap_days} days"
        note = f"a newer memory says the same: {said} later, confidence {confidence}"
        facts = {
            "superseded_by": PositionRef(heir),
            "similarity": pair.similarity,
            "age_gap_days": pair.age_gap_days,
            "confidence": confidence,
        }
        found.append(Stale(positions[pair.older], heir, True, f"{said} newer", note, facts))
    return found, ()


def find_superseded(
    vectors: NDArray[np.float32],
    created_at_us: NDArray[np.int64],
    owners: NDArray[np.int64],
    wings: NDArray[np.int64],
    texts: Sequence[str],
    at_most: int,
    *,
    least_similarity: float = LEAST_SIMILARITY,
    least_days: int = LEAST_DAYS,
) -> list[Superseded]:
    """Return the superseded rows, those of the highest confidence first, then most similar.

    Memories without a date, of different owners, of wings (-1: none) that differ, or whose texts
    differ in `Keys.marks` or are set apart by `Keys.things` are no pair; with `least_days` 0 one
    must still be newer.
    """
    found: list[Superseded] = []
    # Floats: the difference of two int64 may not fit one, and 2^53 microseconds are 285 years.
    moments, dated = created_at_us.astype(np.float64), created_at_us != UNDATED_US
    marks, things = np.zeros(created_at_us.size, dtype=np.int64), np.full(len(texts), "", "O")
    read = np.zeros(created_at_us.size, dtype=np.bool_)
    for start in range(0, created_at_us.size, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        # By how much the columns are newer; 0 where either has no date.
        both = dated[rows, None] & dated
        gaps = np.where(both, moments - moments[rows, None], 0.0)
        cosines = np.nan_to_num((vectors[rows] @ vectors.T).astype(np.float64))
        pairs = (gaps > 0) & (gaps >= least_days * float(DAY_US)) & (cosines >= least_similarity)
        pairs &= owners[rows, None] == owners[None, :]
        pairs &= (wings[rows, None] == wings) | (wings[rows, None] < 0) | (wings < 0)[None, :]
        paired = pairs.any(axis=0)
        paired[rows] |= pairs.any(axis=1)
        # Reading a text takes longer than all the rest: only of those that are near another.
        for row in np.flatnonzero(paired & ~read).tolist():
            marks[row], _, things[row] = keys_of(texts[row])
        read |= paired
        pairs &= marks[rows, None] == marks[None, :]
        for row, column in np.argwhere(pairs & (things[rows, None] != things[None, :])).tolist():
            pairs[row, column] = not are_apart(things[start + row], things[column])
        newest = np.argmax(np.where(pairs, gaps, 0.0), axis=1)
        for row in np.flatnonzero(pairs.any(axis=1)).tolist():
            newer = int(newest[row])
            days = int(gaps[row, newer] // DAY_US)
            cosine = min(float(cosines[row, newer]), 1.0)
            found.append(Superseded(start + row, newer, cosine, days, confidence_of(cosine, days)))
    found.sort(key=lambda s: (-s.confidence, -s.similarity))
    return found[:at_most]


def _predecessors(positions: Sequence[int], found: Iterable[Stale]) -> dict[int, list[int]]:
    """Return the rows, best first, that every remaining heir replaces, through chains."""
    heir_of = {stale.older: stale.heir for stale in found}
    rows: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        heir = position
        while heir in heir_of:
            heir = heir_of[heir]
        if heir != position:
            rows.setdefault(heir, []).append(row)
    return rows


def _stood_in(
    candidates: Candidates,
    gone: NDArray[np.bool_],
    heirs: Iterable[tuple[int, Sequence[int], float]],
) -> Candidates:
    """Return the candidates without those that are gone (m,), sorted by score.

    Each heir (its position, the rows that it replaces, best first, and a score) takes the place
    of its best row; one that is a candidate itself keeps the better score.
    """
    positions, scores = candidates.positions.copy(), candidates.scores.copy()
    expanded, kept = candidates.expanded.copy(), ~gone
    for heir, rows, score in heirs:
        place, best = np.flatnonzero(candidates.positions == heir), rows[0]
        if place.size:
            scores[place] = np.maximum(scores[place], score)
        else:
            positions[best], scores[best], kept[best] = heir, score, True
            expanded[best] = candidates.expanded[list(rows)].all()
    still = Candidates(positions, scores, expanded).keep(kept)
    return still.rescored(still.scores)


def _marks(candidates: Candidates, marked: Iterable[Stale]) -> dict[int, dict[str, Any]]:
    present = set(candidates.positions.tolist())
    annotations: dict[int, dict[str, Any]] = {}
    for stale in marked:
        shown = annotations.setdefault(stale.older, {})
        shown.update(superseded_by=PositionRef(stale.heir), supersede_note=stale.note)
        if stale.heir in present:
            others = annotations.setdefault(stale.heir, {}).setdefault("supersedes", [])
            others.append(PositionRef(stale.older))
    return annotations


# Phase 9: an accepted summary replaces its turns if at least `LEAST_SOURCES` of them are
# candidates: one turn on point is worth more than a text about the whole conversation.
# The reference appends the summary with a fixed 0.5; here it has the score of its best turn times
# its quality. Nothing is ever out of reach: a summary expands to its turns.
#
# Sources: research/mempalace.md section 1, phase 9; libravdb section 1 (quality).

LEAST_SOURCES = 2  # more keeps more single turns, 1 would replace every turn that has a summary


def consolidation(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Replace turns by the accepted summary that they share."""
    profile, summaries = search.profile, search.summaries_of(candidates.positions)
    positions, scores = candidates.positions.tolist(), candidates.scores.tolist()
    # Rows of the turns of each summary, best first, in the order of their best.
    rows_of: dict[SummaryView, list[int]] = {}
    for row, position in enumerate(positions):
        if position in summaries:
            rows_of.setdefault(summaries[position], []).append(row)
    replaced = {s.position: (s, rows) for s, rows in rows_of.items() if len(rows) >= LEAST_SOURCES}
    if not replaced:
        return PhaseOutcome(candidates)
    confidences = np.array([summary.confidence for summary, _ in replaced.values()])
    worth = dict(zip(replaced, quality(confidences, profile.quality_penalty).tolist(), strict=True))

    def reason_of(position: int) -> str:
        summary, rows = replaced[position]
        return (
            f"stands for {len(rows)} of its {len(summary.sources)} turns: the best, "
            f"{{{positions[rows[0]]}}}, has {scores[rows[0]]:.2f}, x quality {worth[position]:.2f}"
        )

    def shown(summary: SummaryView) -> dict[str, Any]:
        told = {"is_consolidated": True, "source_count": len(summary.sources)}
        return {"consolidation": told}

    dropped = [
        Dropped(
            "consolidation", positions[row], f"summary {{{p}}} replaces it", scores[row],
            {"consolidated_into": PositionRef(p)},
        )
        for p, (_, rows) in replaced.items()
        for row in rows
    ]  # fmt: skip
    gone = np.isin(candidates.positions, [drop.position for drop in dropped])
    heirs = [(p, rows, scores[rows[0]] * worth[p]) for p, (_, rows) in replaced.items()]
    return PhaseOutcome(
        _stood_in(candidates, gone, heirs),
        reason_of,
        tuple(dropped),
        notes={"applied": True, "summaries": len(replaced), "turns_replaced": len(dropped)},
        annotations={p: shown(summary) for p, (summary, _) in replaced.items()},
    )
