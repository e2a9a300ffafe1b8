"""Phases that move scores, one function each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.candidates import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    Candidates,
    PastQuery,
    PhaseContext,
    PhaseOutcome,
    Positions,
    ages_s,
    is_dated,
    unchanged,
)
from noctuary.recall.result import RecallWarning
from noctuary.text.marks import estimate_tokens
from noctuary.text.tokens import MARKS, is_stop_word, tokenize
from noctuary.usage.reader import ltp_multiplier

# What every phase does that multiplies scores: one factor per candidate, and why.


def multiplied(
    candidates: Candidates, factors: NDArray[np.float64], reason_at: Callable[[int], str]
) -> PhaseOutcome:
    """Return the outcome of multiplying every candidate's score.

    Args:
        candidates: As the phase got them.
        factors: Finite and >= 0, aligned with them; factors of 1 throughout change nothing.
        reason_at: Row among `candidates` -> why; only asked for what somebody wants to know.
    """
    if not (factors != 1.0).any():
        return unchanged(candidates)
    positions = candidates.positions

    def reason_of(position: int) -> str:
        return reason_at(int(np.flatnonzero(positions == position)[0]))

    return PhaseOutcome(candidates.rescored(candidates.scores * factors), reason_of)


# Phase 1: what was recalled often lately ranks higher. The formula is in `noctuary.usage.reader`.


def ltp(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `ltp_multiplier` of the retrievals inside the profile's window.

    Source: research/mempalace.md section 1, phase 1. A memory that was never recalled keeps its
    score.
    """
    profile = context.profile
    recent = context.lookups.usage_of(candidates.positions).recent
    factors = ltp_multiplier(recent, profile.ltp_max_boost)

    def reason_at(row: int) -> str:
        return f"recalls lately: {recent[row]} (factor {factors[row]:.3f})"

    return multiplied(candidates, factors, reason_at)


# Phase 2: what was recalled together with the other candidates before ranks higher.


def association_factor(
    co_retrievals: NDArray[np.integer], coefficient: float, max_boost: float
) -> NDArray[np.float64]:
    """Return clamp(1 + c ln(1 + n), 1, max_boost); never falls as n grows.

    Source: research/mempalace.md section 1, phase 2 (c 0.15, maximum 1.5 in effect).

    Args:
        co_retrievals: Common retrievals with other candidates, summed; below 0 counts as 0.
        coefficient: c, finite, >= 0.
        max_boost: Finite, >= 1.

    Returns:
        In [1, max_boost], shape of `co_retrievals`.
    """
    counts = np.maximum(co_retrievals, 0).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.minimum(1.0 + coefficient * np.log1p(counts), max_boost)


def association(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `association_factor` of the common retrievals with the other candidates.

    The others are all candidates of this recall; the reference, which has no larger pool, takes the
    hits.
    """
    profile = context.profile
    together = context.lookups.co_retrievals(candidates.positions)
    factors = association_factor(
        together, profile.association_coefficient, profile.association_max_boost
    )

    def reason_at(row: int) -> str:
        return f"recalls with other candidates: {together[row]} (factor {factors[row]:.3f})"

    return multiplied(candidates, factors, reason_at)


# Phase 1: what is old ranks lower, down to a floor.


def decay_factor(
    age_days: NDArray[np.float64], half_life_days: float, floor: float
) -> NDArray[np.float64]:
    """Return floor + (1 - floor) * 0.5 ** (age / half-life); never rises with age.

    Source: research/mempalace.md section 1, which has no floor (floor 0): what is a few half-lives
    old then vanishes however well it answers. DESIGN section 4 asks for one.

    Args:
        age_days: >= 0, any shape.
        half_life_days: > 0; age at which the part above the floor has halved.
        floor: In [0, 1]; share of the score that age never takes.

    Returns:
        In [floor, 1], shape of `age_days`; exactly 1 at age 0.
    """
    with np.errstate(over="ignore"):
        half_lives = age_days / half_life_days
    return floor + (1.0 - floor) * np.exp2(-half_lives)


def time_decay(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `decay_factor` of the age; undated memories keep their score.

    So do those with a date after the recall's moment: both have age 0.
    """
    profile = context.profile
    created = context.lookups.created_at_us(candidates.positions)
    age_days = ages_s(created, context.now_us) / SECONDS_PER_DAY
    factors = decay_factor(age_days, profile.half_life_days, profile.decay_floor)

    def reason_at(row: int) -> str:
        return (
            f"{age_days[row]:.1f} days old, half-life {profile.half_life_days:g} days, "
            f"floor {profile.decay_floor:g} (factor {factors[row]:.3f})"
        )

    return multiplied(candidates, factors, reason_at)


# Phase 1: what was filed in the last hours ranks higher (synaptic tagging).


def tagging_factor(
    age_hours: NDArray[np.float64], window_hours: float, max_boost: float
) -> NDArray[np.float64]:
    """Return max_boost at age 0, falling linearly to 1 at the window's end and 1 from there on.

    Source: research/mempalace.md section 1, tagging: 1.5 to 1 over 24 hours.

    Args:
        age_hours: Hours since filing, any shape; below 0 counts as 0.
        window_hours: > 0.
        max_boost: Finite, >= 1.

    Returns:
        In [1, max_boost], shape of `age_hours`; never rises with age.
    """
    with np.errstate(over="ignore"):
        elapsed = np.clip(age_hours / window_hours, 0.0, 1.0)
    return np.clip(1.0 + (max_boost - 1.0) * (1.0 - elapsed), 1.0, max_boost)


def tagging(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `tagging_factor` of the time since filing.

    The moment of filing is the memory's date; undated memories keep their score.
    """
    profile = context.profile
    created = context.lookups.created_at_us(candidates.positions)
    age_hours = ages_s(created, context.now_us) / SECONDS_PER_HOUR
    boosts = tagging_factor(age_hours, profile.tagging_window_hours, profile.tagging_max_boost)
    factors = np.where(is_dated(created), boosts, 1.0)

    def reason_at(row: int) -> str:
        window = f"window {profile.tagging_window_hours:g} h"
        return f"filed {age_hours[row]:.1f} h ago, {window} (factor {factors[row]:.3f})"

    return multiplied(candidates, factors, reason_at)


# Phase 6: what was used most, filed last or tagged "pinned" ranks a little higher.
#
# Departures from the reference (research/mempalace.md section 1, phase 6): there a pinned set is a
# tool of its own and changes no search; its boost here is the RFC's pinned_boost. There the spread
# of a memory counts the distinct texts of the queries that found it; we keep no query texts by
# memory and count the distinct days on which it was recalled. There the first memory that exceeds
# the token budget ends the list, so that one long one empties it; here it is passed over.


PINNED_TAG = "pinned"
"""Memories with this tag, in any case, are pinned by their author."""
SPREAD_GAIN = 0.2
"""What one more day of use adds to the pinning score: more favours steady use over a busy day."""
SPREAD_CAP_DAYS = 10
"""Days from which spread adds nothing: a higher cap lets years of use crowd out this month's."""
USED_PER_ITEM = 2
"""Most-used memories considered per pinned item (the reference: 10 for 5): more finds a substitute
for one that is too long, and costs its row."""


@dataclass(frozen=True, slots=True)
class _Pool:
    """Memories that may be pinned, those among the candidates first; all of one length.

    Attributes:
        positions: The memories, each once.
        reasons: Why each may be pinned, in words.
        scores: Pinning scores.
        tokens: Estimated tokens.
    """

    positions: list[int]
    reasons: list[str]
    scores: NDArray[np.float64]
    tokens: list[int]


def pinning_score(
    multipliers: NDArray[np.float64], days: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return multiplier * (1 + 0.2 * min(days, 10)).

    Source: research/mempalace.md section 1, phase 6, with days in place of distinct query texts.

    Args:
        multipliers: LTP multipliers, >= 1.
        days: Distinct days of use, same shape; below 0 counts as 0.

    Returns:
        In [multiplier, 3 * multiplier]; never falls as either grows.
    """
    spread = np.clip(days, 0, SPREAD_CAP_DAYS).astype(np.float64)
    return multipliers * (1.0 + SPREAD_GAIN * spread)


def pinned_score(scores: NDArray[np.float64], boost: float) -> NDArray[np.float64]:
    """Return score + boost * (1 - score): never more than 1, never out of order.

    Args:
        scores: >= 0; what exceeds 1 (a boost that is not scaled back yet) stays as it is.
        boost: In [0, 1].

    Returns:
        In [score, 1] for a score in [0, 1], same shape.
    """
    lifted = np.minimum(scores + boost * np.maximum(1.0 - scores, 0.0), 1.0)
    return np.maximum(lifted, scores)


def choose_pinned(
    scores: NDArray[np.float64], tokens: Sequence[int], max_items: int, max_tokens: int
) -> list[int]:
    """Return the rows of the best memories that fit, best first; ties by lower row.

    One that does not fit beside those already chosen is passed over.

    Args:
        scores: Pinning scores.
        tokens: Estimated tokens of each, >= 0.
        max_items: At most so many are chosen.
        max_tokens: At most so many tokens together.
    """
    chosen: list[int] = []
    used = 0
    for row in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) == max_items:
            break
        if used + tokens[row] <= max_tokens:
            chosen.append(row)
            used += tokens[row]
    return chosen


def pinned(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Lift the candidates that are pinned by `pinned_score`.

    Pinned are, best `pinning_score` first and inside the profile's budget of items and tokens: the
    most used memories with an LTP multiplier of at least pinned_ltp_threshold, whether this query
    found them or not, and, with pinned_include_tagged, candidates that were filed inside
    pinned_tagged_window_hours or carry the tag "pinned". Only candidates gain score.
    """
    if not candidates.size:
        return unchanged(candidates)
    profile = context.profile
    pool = _pool(candidates, context)
    chosen = choose_pinned(
        pool.scores, pool.tokens, profile.pinned_max_items, profile.pinned_max_tokens
    )
    reasons = {pool.positions[row]: pool.reasons[row] for row in chosen}
    hits = [p for p in candidates.positions.tolist() if p in reasons]
    if not hits:
        return unchanged(candidates)
    lifted = np.array([p in reasons for p in candidates.positions.tolist()])
    gained = pinned_score(candidates.scores, profile.pinned_boost)
    return PhaseOutcome(
        candidates.rescored(np.where(lifted, gained, candidates.scores)),
        reason_of=lambda position: f"pinned: {reasons[position]}",
        notes={
            "pinned": len(chosen),
            "pinned_candidates": len(hits),
            "pinned_tokens": sum(pool.tokens[row] for row in chosen),
        },
        annotations={position: {"pinned_reason": reasons[position]} for position in hits},
    )


def _pool(candidates: Candidates, context: PhaseContext) -> _Pool:
    """Gather who may be pinned, and why."""
    profile = context.profile
    most_used = context.lookups.most_used(USED_PER_ITEM * profile.pinned_max_items).tolist()
    used = set(most_used)
    # Candidates first and in their order: of equal pinning scores, the better answer is pinned.
    known = list(dict.fromkeys([*candidates.positions.tolist(), *most_used]))
    rows = context.lookups.rows_of(known)
    usage = context.lookups.usage_of(np.array(known, dtype=np.int64))
    multipliers = ltp_multiplier(usage.recent, profile.ltp_max_boost)
    reasons = {
        p: f"recalls lately: {recent}; days with recalls: {days}"
        for p, recent, days, m in zip(known, usage.recent, usage.days, multipliers, strict=True)
        if p in used and m >= profile.pinned_ltp_threshold
    }
    if profile.pinned_include_tagged:
        reasons |= _pinned_by_author(candidates.positions, rows, context)
    kept = [index for index, position in enumerate(known) if position in reasons]
    return _Pool(
        [known[index] for index in kept],
        [reasons[known[index]] for index in kept],
        pinning_score(multipliers, usage.days)[kept],
        [estimate_tokens(rows[known[index]]["content"]) for index in kept],
    )


def _pinned_by_author(
    positions: Positions, rows: Mapping[int, Mapping[str, Any]], context: PhaseContext
) -> dict[int, str]:
    """Return, by position, why a candidate is pinned by its tag or by when it was filed."""
    created = context.lookups.created_at_us(positions)
    age_hours = ages_s(created, context.now_us) / SECONDS_PER_HOUR
    window = context.profile.pinned_tagged_window_hours
    recent = is_dated(created) & (age_hours <= window)
    reasons: dict[int, str] = {}
    for row, position in enumerate(positions.tolist()):
        if any(tag.strip().casefold() == PINNED_TAG for tag in rows[position]["tags"]):
            reasons[position] = f'tagged "{PINNED_TAG}"'
        elif recent[row]:
            reasons[position] = f"filed {age_hours[row]:.1f} h ago (window {window:g} h)"
    return reasons


# Phase 7: ask again with words of what similar queries found before.
#
# What only a further question found is marked `expanded`, so that it is not logged as a retrieval:
# else expansion would feed itself. Where the reference's words were any words, here function words
# are left out, and words that the query holds in another form ("flights" for "flight") as well.
#
# Source: research/mempalace.md section 1, phase 7.


PAST_QUERIES_AT_MOST = 20
"""Similar past queries whose results are read; more smooths the choice of words, fewer keeps it to
the nearest."""

RESULTS_PER_QUERY = 5
"""Best results of a past query whose words count; more adds words of weaker hits."""

CONTENT_CHARS = 240
"""Characters of a memory whose words count; more adds words from beside its point."""

LEAST_CHARS = 2
"""Shorter words say too little to ask with."""

_DAY_US = 86_400_000_000
_NOT_FOUND = (0.0, "")

_Found = dict[int, tuple[float, str]]
"""Position -> best boosted score, and the word that brought it."""


def expansion_terms(query: str, texts: Iterable[str], at_most: int) -> list[str]:
    """Return the words that the texts hold most often and the query does not.

    Args:
        query: As asked; a word of the same stem as one of its words is no new word.
        texts: What similar queries found; a text that comes twice counts twice.
        at_most: Most words returned.

    Returns:
        Lower-case words of `LEAST_CHARS` and more, no function words, most frequent first, those
        of equal frequency in order of appearance. Of several forms of a word the first.
    """
    asked = set(tokenize(query))
    counts: dict[str, int] = {}
    shown: dict[str, str] = {}
    for text in texts:
        for word in _words().findall(text.lower()):
            for token, form in _tokens_of(word):
                if token not in asked and len(form) >= LEAST_CHARS:
                    counts[token] = counts.get(token, 0) + 1
                    shown.setdefault(token, form)
    ranked = sorted(counts, key=lambda token: -counts[token])
    return [shown[token] for token in ranked[:at_most]]


def query_expansion(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Add what further questions find; what the query itself found keeps its score."""
    similar = _similar_queries(context)
    terms = expansion_terms(
        context.query, _texts_found(similar, context), context.profile.query_expansion_max_terms
    )
    found = _ask(terms, candidates, context)
    return PhaseOutcome(
        _merged(candidates, found),
        reason_of=lambda position: (
            f"found by asking again with '{found[position][1]}': "
            f"x{context.profile.query_expansion_boost:g}"
        ),
        notes={
            "applied": bool(terms),
            "original_query": context.query,
            "similar_past_queries": len(similar),
            "expansion_terms": terms,
            "expansion_boost": context.profile.query_expansion_boost,
            "results_from_original": candidates.size,
            "results_from_expansion": len(found),
        },
    )


def _similar_queries(context: PhaseContext) -> list[PastQuery]:
    profile = context.profile
    since_us = context.now_us - profile.query_expansion_lookback_days * _DAY_US
    past = context.lookups.past_queries(since_us=since_us, limit=PAST_QUERIES_AT_MOST)
    wording = context.query.split()
    return [
        q
        for q in past
        if q.similarity >= profile.query_expansion_similarity_threshold
        and q.asked_us <= context.now_us
        and q.text.split() != wording
    ]


def _texts_found(similar: Sequence[PastQuery], context: PhaseContext) -> list[str]:
    positions = [p for q in similar for p in q.positions[:RESULTS_PER_QUERY]]
    rows = context.lookups.rows_of(list(dict.fromkeys(positions)))
    texts: list[str] = []
    for position in positions:
        row = rows[position]
        parts = (row["content"][:CONTENT_CHARS], row["room"], row["wing"])
        texts.append(" ".join(part for part in parts if part))
    return texts


def _ask(terms: Sequence[str], candidates: Candidates, context: PhaseContext) -> _Found:
    """Ask once per word; a memory that several words find has its best score."""
    profile = context.profile
    known = set(candidates.positions.tolist())
    found: _Found = {}
    for term in terms:
        question = f"{context.query} {term}"
        positions, scores = context.lookups.search(question, max(profile.depth, context.k))
        boosted = scores * profile.query_expansion_boost
        for position, score in zip(positions.tolist(), boosted.tolist(), strict=True):
            if position not in known and score > found.get(position, _NOT_FOUND)[0]:
                found[position] = (score, term)
    return found


def _merged(candidates: Candidates, found: _Found) -> Candidates:
    if not found:
        return candidates
    positions = np.array(list(found), dtype=np.int64)
    scores = np.array([score for score, _ in found.values()], dtype=np.float64)
    both = Candidates(
        np.concatenate([candidates.positions, positions]),
        np.concatenate([candidates.scores, scores]),
        np.concatenate([candidates.expanded, np.ones(positions.size, dtype=np.bool_)]),
    )
    return both.rescored(both.scores)


def _tokens_of(word: str) -> list[tuple[str, str]]:
    """Return a word's tokens, each with the form to ask with: the word itself if it is one."""
    tokens = [token for token in tokenize(word) if not is_stop_word(token)]
    return [(t, word) for t in tokens] if len(tokens) == 1 else [(t, t) for t in tokens]


# Compiled on first use: most processes never expand a query.
@cache
def _words() -> re.Pattern[str]:
    letters = rf"(?:[^\W_]|[{MARKS}])+"
    return re.compile(rf"{letters}(?:['’]{letters})*")


# Stage 2: the head of the list in a cross-encoder's order. A permutation, nothing else.
#
# A cross-encoder's scores are on its own scale (logits, probabilities, anything), so they decide
# the order and never become scores: the head keeps its multiset of fused scores, what follows
# stays where it was, and every later phase works on numbers of the same meaning.
#
# Source: hybrid-recall design A.6.


LEAST_HEAD = 2
"""One memory has only one order."""


def rerank(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Put the first `rerank_depth` candidates in the cross-encoder's order; ties keep theirs."""
    size = min(context.profile.rerank_depth, candidates.size)
    if size < LEAST_HEAD:
        return unchanged(candidates)
    head = candidates.positions[:size]
    answer = context.lookups.rerank_scores(head)
    if isinstance(answer, RecallWarning):
        return PhaseOutcome(candidates, notes={"fallback": answer.code}, warnings=(answer,))
    order = np.concatenate([np.argsort(-answer, kind="stable"), np.arange(size, candidates.size)])
    moved = Candidates(
        positions=candidates.positions[order],
        scores=candidates.scores,
        expanded=candidates.expanded[order],
    )

    def reason_of(position: int) -> str:
        before = int(np.flatnonzero(head == position)[0])
        after = int(np.flatnonzero(moved.positions == position)[0])
        return (
            f"cross-encoder moved it from place {before + 1} to {after + 1} "
            f"(score {float(answer[before]):.2f})"
        )

    places_changed = int(np.count_nonzero(order != np.arange(candidates.size)))
    return PhaseOutcome(moved, reason_of=reason_of, notes={"read": size, "moved": places_changed})


# After the boosts: bring the scores back into [0, 1] without touching their order.


def scaled_to_unit(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide by the largest score if it exceeds 1, else return the scores as they are.

    Args:
        scores: Finite, >= 0, any length.

    Returns:
        In [0, 1], same shape, same order; ratios between scores stay.
    """
    best = float(scores.max(initial=0.0))
    return scores / best if best > 1.0 else scores


def scale(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Apply `scaled_to_unit`; all candidates lose the same share of their score."""
    del context
    scaled = scaled_to_unit(candidates.scores)
    if scaled is candidates.scores:
        return unchanged(candidates)
    best = float(candidates.scores.max())

    def reason_of(position: int) -> str:
        del position
        return f"boosts lifted the best score to {best:.3f}: all are divided by it"

    return PhaseOutcome(candidates.rescored(scaled), reason_of)
