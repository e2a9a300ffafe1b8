"""Phases that move scores, one function each: formula, source, and what it says of a memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.candidates import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    Candidates,
    PastQuery,
    PhaseOutcome,
    Positions,
    ages_s,
    is_dated,
)
from noctuary.recall.result import RecallWarning
from noctuary.text.marks import estimate_tokens
from noctuary.text.tokens import MARKS, is_stop_word, tokenize
from noctuary.usage.reader import ltp_multiplier

if TYPE_CHECKING:
    from noctuary.recall.engine import Search


def _multiplied(
    candidates: Candidates, factors: NDArray[np.float64], reason_at: Callable[[int], str]
) -> PhaseOutcome:
    """Return the candidates with scores times factors (m,), and why, by row."""
    if not (factors != 1.0).any():
        return PhaseOutcome(candidates)
    positions = candidates.positions

    def reason_of(position: int) -> str:
        row = int(np.flatnonzero(positions == position)[0])
        return f"{reason_at(row)} (factor {factors[row]:.3f})"

    return PhaseOutcome(candidates.rescored(candidates.scores * factors), reason_of)


# Phase 1: what was recalled often lately ranks higher. The formula is in `noctuary.usage.reader`.


def ltp(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `ltp_multiplier` of the retrievals inside the profile's window.

    Source: research/mempalace.md section 1, phase 1. A memory that was never recalled keeps its
    score.
    """
    profile = search.profile
    recent = search.usage_of(candidates.positions).recent
    factors = ltp_multiplier(recent, profile.ltp_max_boost)

    return _multiplied(candidates, factors, lambda row: f"recalls lately: {recent[row]}")


# Phase 2: what was recalled together with the other candidates before ranks higher.


def association_factor(
    co_retrievals: NDArray[np.integer], coefficient: float, max_boost: float
) -> NDArray[np.float64]:
    """Return clamp(1 + c ln(1 + n), 1, max_boost); never falls as n grows, below 0 it counts as 0.

    Source: research/mempalace.md section 1, phase 2 (c 0.15, maximum 1.5 in effect).
    """
    counts = np.maximum(co_retrievals, 0).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.minimum(1.0 + coefficient * np.log1p(counts), max_boost)


def association(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `association_factor` of the common retrievals with the other candidates.

    The others are all candidates of this recall; the reference, which has no larger pool, takes the
    hits.
    """
    profile = search.profile
    together = search.co_retrievals(candidates.positions)
    factors = association_factor(
        together, profile.association_coefficient, profile.association_max_boost
    )

    return _multiplied(
        candidates, factors, lambda row: f"recalls with other candidates: {together[row]}"
    )


# Phase 1: what is old ranks lower, down to a floor.


def decay_factor(
    age_days: NDArray[np.float64], half_life_days: float, floor: float
) -> NDArray[np.float64]:
    """Return floor + (1 - floor) * 0.5 ** (age / half-life); never rises with age.

    Source: research/mempalace.md section 1, which has no floor (floor 0): what is a few half-lives
    old then vanishes however well it answers. DESIGN section 4 asks for one. In [floor, 1], and
    exactly 1 at age 0.
    """
    with np.errstate(over="ignore"):
        half_lives = age_days / half_life_days
    return floor + (1.0 - floor) * np.exp2(-half_lives)


def time_decay(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `decay_factor` of the age; undated memories keep their score.

    So do those with a date after the recall's moment: both have age 0.
    """
    profile = search.profile
    created = search.created_at_us(candidates.positions)
    age_days = ages_s(created, search.now_us) / SECONDS_PER_DAY
    factors = decay_factor(age_days, profile.half_life_days, profile.decay_floor)

    said = f"half-life {profile.half_life_days:g} days, floor {profile.decay_floor:g}"
    return _multiplied(candidates, factors, lambda row: f"{age_days[row]:.1f} days old, {said}")


# Phase 1: what was filed in the last hours ranks higher (synaptic tagging).


def tagging_factor(
    age_hours: NDArray[np.float64], window_hours: float, max_boost: float
) -> NDArray[np.float64]:
    """Return max_boost at age 0, falling linearly to 1 at the window's end and 1 from there on.

    Source: research/mempalace.md section 1, tagging: 1.5 to 1 over 24 hours. An age below 0 counts
    as 0.
    """
    with np.errstate(over="ignore"):
        elapsed = np.clip(age_hours / window_hours, 0.0, 1.0)
    return np.clip(1.0 + (max_boost - 1.0) * (1.0 - elapsed), 1.0, max_boost)


def tagging(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `tagging_factor` of the time since filing.

    The moment of filing is the memory's date; undated memories keep their score.
    """
    profile = search.profile
    created = search.created_at_us(candidates.positions)
    age_hours = ages_s(created, search.now_us) / SECONDS_PER_HOUR
    boosts = tagging_factor(age_hours, profile.tagging_window_hours, profile.tagging_max_boost)
    factors = np.where(is_dated(created), boosts, 1.0)

    window = f"window {profile.tagging_window_hours:g} h"
    said = [f"filed {hours:.1f} h ago, {window}" for hours in age_hours.tolist()]
    return _multiplied(candidates, factors, said.__getitem__)


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


def pinning_score(
    multipliers: NDArray[np.float64], days: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return multiplier * (1 + 0.2 * min(days, 10)), in [1, 3] times the LTP multiplier.

    Source: research/mempalace.md section 1, phase 6, with days in place of distinct query texts.
    """
    spread = np.clip(days, 0, SPREAD_CAP_DAYS).astype(np.float64)
    return multipliers * (1.0 + SPREAD_GAIN * spread)


def pinned_score(scores: NDArray[np.float64], boost: float) -> NDArray[np.float64]:
    """Return score + boost * (1 - score), in [score, 1]: never more than 1, never out of order.

    What exceeds 1 (a boost that is not scaled back yet) stays as it is.
    """
    lifted = np.minimum(scores + boost * np.maximum(1.0 - scores, 0.0), 1.0)
    return np.maximum(lifted, scores)


def choose_pinned(
    scores: NDArray[np.float64], tokens: Sequence[int], max_items: int, max_tokens: int
) -> list[int]:
    """Return the rows of the best memories that fit, best first; ties by lower row.

    One that does not fit beside those already chosen is passed over.
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


def pinned(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Lift the candidates that are pinned by `pinned_score`.

    Pinned are, best `pinning_score` first and inside the profile's budget of items and tokens: the
    most used memories with an LTP multiplier of at least pinned_ltp_threshold, whether this query
    found them or not, and, with pinned_include_tagged, candidates that were filed inside
    pinned_tagged_window_hours or carry the tag "pinned". Only candidates gain score.
    """
    if not candidates.size:
        return PhaseOutcome(candidates)
    profile = search.profile
    most_used = search.most_used(USED_PER_ITEM * profile.pinned_max_items).tolist()
    # Candidates first and in their order: of equal pinning scores, the better answer is pinned.
    known = list(dict.fromkeys([*candidates.positions.tolist(), *most_used]))
    rows = search.rows_of(known)
    usage = search.usage_of(np.array(known, dtype=np.int64))
    multipliers = ltp_multiplier(usage.recent, profile.ltp_max_boost)
    used = set(most_used)
    reasons = {
        p: f"recalls lately: {recent}; days with recalls: {days}"
        for p, recent, days, m in zip(known, usage.recent, usage.days, multipliers, strict=True)
        if p in used and m >= profile.pinned_ltp_threshold
    }
    if profile.pinned_include_tagged:
        reasons |= _pinned_by_author(candidates.positions, rows, search)
    places = [index for index, position in enumerate(known) if position in reasons]
    pool = [known[index] for index in places]
    tokens = [estimate_tokens(rows[p]["content"]) for p in pool]
    scores = pinning_score(multipliers, usage.days)[places]
    chosen = choose_pinned(scores, tokens, profile.pinned_max_items, profile.pinned_max_tokens)
    pinned_now = {pool[row] for row in chosen}
    lifted = np.isin(candidates.positions, list(pinned_now))
    if not lifted.any():
        return PhaseOutcome(candidates)
    gained = pinned_score(candidates.scores, profile.pinned_boost)
    hits: list[int] = candidates.positions[lifted].tolist()
    return PhaseOutcome(
        candidates.rescored(np.where(lifted, gained, candidates.scores)),
        reason_of=lambda position: f"pinned: {reasons[position]}",
        notes={
            "pinned": len(chosen),
            "pinned_candidates": len(hits),
            "pinned_tokens": sum(tokens[row] for row in chosen),
        },
        annotations={position: {"pinned_reason": reasons[position]} for position in hits},
    )


def _pinned_by_author(
    positions: Positions, rows: Mapping[int, Mapping[str, Any]], search: Search
) -> dict[int, str]:
    """Return, by position, why a candidate is pinned by its tag or by when it was filed."""
    created = search.created_at_us(positions)
    age_hours = ages_s(created, search.now_us) / SECONDS_PER_HOUR
    window = search.profile.pinned_tagged_window_hours
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

    Lower-case words of `LEAST_CHARS` and more, no function words and none of a stem of the query,
    most frequent first, then in order of appearance. Of several forms of a word the first; a text
    that comes twice counts twice.
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


def query_expansion(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Add what further questions find; what the query itself found keeps its score."""
    similar = _similar_queries(search)
    terms = expansion_terms(
        search.query.text, _texts_found(similar, search), search.profile.query_expansion_max_terms
    )
    found = _ask(terms, candidates, search)
    return PhaseOutcome(
        _merged(candidates, found),
        reason_of=lambda position: (
            f"found by asking again with '{found[position][1]}': "
            f"x{search.profile.query_expansion_boost:g}"
        ),
        notes={
            "applied": bool(terms),
            "original_query": search.query.text,
            "similar_past_queries": len(similar),
            "expansion_terms": terms,
            "expansion_boost": search.profile.query_expansion_boost,
            "results_from_original": candidates.size,
            "results_from_expansion": len(found),
        },
    )


def _similar_queries(search: Search) -> list[PastQuery]:
    profile = search.profile
    since_us = search.now_us - profile.query_expansion_lookback_days * _DAY_US
    past = search.past_queries(since_us=since_us, limit=PAST_QUERIES_AT_MOST)
    wording = search.query.text.split()
    return [
        q
        for q in past
        if q.similarity >= profile.query_expansion_similarity_threshold
        and q.asked_us <= search.now_us
        and q.text.split() != wording
    ]


def _texts_found(similar: Sequence[PastQuery], search: Search) -> list[str]:
    positions = [p for q in similar for p in q.positions[:RESULTS_PER_QUERY]]
    rows = search.rows_of(list(dict.fromkeys(positions)))
    texts: list[str] = []
    for position in positions:
        row = rows[position]
        parts = (row["content"][:CONTENT_CHARS], row["room"], row["wing"])
        texts.append(" ".join(part for part in parts if part))
    return texts


def _ask(terms: Sequence[str], candidates: Candidates, search: Search) -> _Found:
    """Ask once per word; a memory that several words find has its best score."""
    profile = search.profile
    known = set(candidates.positions.tolist())
    found: _Found = {}
    for term in terms:
        question = f"{search.query.text} {term}"
        positions, scores = search.search(question, max(profile.depth, search.k))
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


def rerank(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Put the first `rerank_depth` candidates in the cross-encoder's order; ties keep theirs."""
    size = min(search.profile.rerank_depth, candidates.size)
    if size < LEAST_HEAD:
        return PhaseOutcome(candidates)
    head = candidates.positions[:size]
    answer = search.rerank_scores(head)
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
    """Divide scores >= 0 by the largest if it exceeds 1, else return them as they are."""
    best = float(scores.max(initial=0.0))
    return scores / best if best > 1.0 else scores


def scale(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Apply `scaled_to_unit`; all candidates lose the same share of their score."""
    del search
    scaled = scaled_to_unit(candidates.scores)
    if scaled is candidates.scores:
        return PhaseOutcome(candidates)
    said = f"boosts lifted the best score to {candidates.scores.max():.3f}: all are divided by it"
    return PhaseOutcome(candidates.rescored(scaled), lambda _: said)
