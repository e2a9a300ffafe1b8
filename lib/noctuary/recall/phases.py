"""Phases that move scores: formula, source, reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import DAY_US
from noctuary.recall.query import Positions, Scores, query_tokens
from noctuary.recall.result import RecallWarning
from noctuary.recall.search import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    US_PER_SECOND,
    Candidates,
    PastQuery,
    PhaseOutcome,
    Search,
    ages_s,
    is_dated,
)
from noctuary.text.marks import estimate_tokens
from noctuary.text.tokens import MARKS, is_stop_word, tokenize
from noctuary.usage.reader import ltp_multiplier

Codes = NDArray[np.integer]


def _multiplied(
    candidates: Candidates, factors: Scores, reason_at: Callable[[int], str]
) -> PhaseOutcome:
    """Return the candidates with scores times factors (m,), and why, by row."""
    if not (factors != 1.0).any():
        return PhaseOutcome(candidates)

    def reason_of(position: int) -> str:
        row = candidates.row_of(position)
        return f"{reason_at(row)} (factor {factors[row]:.3f})"

    return PhaseOutcome(candidates.rescored(candidates.scores * factors), reason_of)


# Stage 2 (hybrid-recall design A.6): the head of the list in a cross-encoder's order. Its scores
# are on its own scale, so they decide the order and never become scores: the head keeps its
# multiset of fused scores, and what follows stays where it was.


def rerank(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Put the first `rerank_depth` candidates in the cross-encoder's order; ties keep theirs."""
    size = min(search.profile.rerank_depth, candidates.size)
    if size < 2:  # one memory has only one order
        return PhaseOutcome(candidates)
    answer = search.rerank_scores(candidates.positions[:size])
    if isinstance(answer, RecallWarning):
        return PhaseOutcome(candidates, notes={"fallback": answer.code}, warnings=(answer,))
    order = np.concatenate([np.argsort(-answer, kind="stable"), np.arange(size, candidates.size)])
    moved = candidates.at(order)._replace(scores=candidates.scores)

    def reason_of(position: int) -> str:
        before, after = candidates.row_of(position), moved.row_of(position)
        return (
            f"cross-encoder moved it from place {before + 1} to {after + 1} "
            f"(score {float(answer[before]):.2f})"
        )

    places_changed = int(np.count_nonzero(order != np.arange(candidates.size)))
    return PhaseOutcome(moved, reason_of, notes={"read": size, "moved": places_changed})


def dates(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `noctuary.text.dates.date_factor`; it is never a filter.

    Memories written at a date in the query, or soon after, rank higher, and so do those whose text
    says it; where the query asks "when", those that say any date.
    """
    from noctuary.text.dates import date_factor, find_windows, spoken_date, wanted_words

    created_us = search.reader.created_at(candidates.positions)
    days = (created_us // (US_PER_SECOND * 86_400)).astype("datetime64[D]")
    dated = is_dated(created_us)
    years = np.unique(days[dated].astype("datetime64[Y]").astype(np.int64) + 1970)
    windows = find_windows(search.query.text, years.tolist())
    fitting = np.full(candidates.size, -1)
    for number, window in enumerate(windows):
        first, last = np.datetime64(window.first), np.datetime64(window.last)
        fitting[dated & (first <= days) & (days <= last)] = number
    named, when = wanted_words(search.query.text)
    words = [*named, *when]
    held = search.reader.holding(words, candidates.positions)
    said = held[: len(named)].any(axis=0).astype(np.int64)
    says_when = held[len(named) :].any(axis=0).astype(np.int64)
    factors = date_factor(fitting >= 0, said, says_when, search.profile.date_boost)

    def reason_at(row: int) -> str:
        fits = [f"{days[row]} fits {windows[fitting[row]].text!r}"] if fitting[row] >= 0 else []
        said = [f"its text says {spoken_date(word)}" for word in compress(words, held[:, row])]
        return "; ".join(fits + said)

    return _multiplied(candidates, factors, reason_at)


# Phase 1: memories that were recalled often lately rank higher, old ones lower, those filed in the
# last hours higher (synaptic tagging). Source: research/mempalace.md section 1.


def ltp(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `noctuary.usage.reader.ltp_multiplier` of the retrievals inside the window."""
    recent = search.usage_of(candidates.positions).recent
    factors = ltp_multiplier(recent)
    return _multiplied(candidates, factors, lambda row: f"recalls lately: {recent[row]}")


def decay_factor(age_days: Scores, half_life_days: float, floor: float) -> Scores:
    """Return floor + (1 - floor) * 0.5 ** (age / half-life); the reference has no floor."""
    with np.errstate(over="ignore"):
        half_lives = age_days / half_life_days
    return floor + (1.0 - floor) * np.exp2(-half_lives)


def time_decay(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `decay_factor` of the age; memories without a date or of later have age 0."""
    profile = search.profile
    created = search.reader.created_at(candidates.positions)
    age_days = ages_s(created, search.now_us) / SECONDS_PER_DAY
    factors = decay_factor(age_days, profile.half_life_days, profile.decay_floor)
    said = f"half-life {profile.half_life_days:g} days, floor {profile.decay_floor:g}"
    return _multiplied(candidates, factors, lambda row: f"{age_days[row]:.1f} days old, {said}")


TAGGING_WINDOW_HOURS = 24.0
TAGGING_MAX_BOOST = 1.5  # of a memory filed this moment


def tagging_factor(
    age_hours: Scores,
    window_hours: float = TAGGING_WINDOW_HOURS,
    max_boost: float = TAGGING_MAX_BOOST,
) -> Scores:
    """Return max_boost at age 0, falling linearly to 1 at the window's end."""
    with np.errstate(over="ignore"):
        elapsed = np.clip(age_hours / window_hours, 0.0, 1.0)
    return np.clip(1.0 + (max_boost - 1.0) * (1.0 - elapsed), 1.0, max_boost)


def tagging(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `tagging_factor` of the time since filing, which is the memory's date."""
    created = search.reader.created_at(candidates.positions)
    age_hours = ages_s(created, search.now_us) / SECONDS_PER_HOUR
    factors = np.where(is_dated(created), tagging_factor(age_hours), 1.0)
    window = f"window {TAGGING_WINDOW_HOURS:g} h"
    return _multiplied(
        candidates, factors, lambda row: f"filed {age_hours[row]:.1f} h ago, {window}"
    )


# Phase 2: memories that were recalled together with the other candidates before rank higher.


ASSOCIATION_COEFFICIENT = 0.15  # how fast it grows
ASSOCIATION_MAX_BOOST = 1.5


def association_factor(
    co_retrievals: Codes,
    coefficient: float = ASSOCIATION_COEFFICIENT,
    max_boost: float = ASSOCIATION_MAX_BOOST,
) -> Scores:
    """Return clamp(1 + c ln(1 + n), 1, max_boost); below 0 n counts as 0."""
    counts = np.maximum(co_retrievals, 0).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.minimum(1.0 + coefficient * np.log1p(counts), max_boost)


def association(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Multiply by `association_factor` of the common retrievals with all other candidates."""
    together = search.co_retrievals(candidates.positions)
    return _multiplied(
        candidates,
        association_factor(together),
        lambda row: f"recalls with other candidates: {together[row]}",
    )


# After the boosts: bring the scores back into [0, 1] without touching their order.


def scaled_to_unit(scores: Scores) -> Scores:
    """Divide scores >= 0 by the largest if it exceeds 1, else return them as they are."""
    best = float(scores.max(initial=0.0))
    return scores / best if best > 1.0 else scores


def scale(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Apply `scaled_to_unit`; all candidates lose the same share of their score."""
    del search
    scaled = scaled_to_unit(candidates.scores)
    if scaled is candidates.scores:
        return PhaseOutcome(candidates)
    said = f"all scores are divided by the best, {candidates.scores.max():.3f}"

    def reason_of(_: int) -> str:
        return said

    return PhaseOutcome(candidates.rescored(scaled), reason_of)


# Phase 7 (research/mempalace.md section 1): ask again with words of what similar queries found
# before. What only a further question found is marked `expanded`, so that it is not logged as a
# retrieval: else expansion would feed itself. Unlike the reference's, its words are no function
# words and not held by the query in another form ("flights" for "flight").

PAST_QUERIES_AT_MOST = 20  # more smooths the choice of words, fewer keeps it to the nearest
RESULTS_PER_QUERY = 5  # best results of one whose words count; more adds words of weaker hits
CONTENT_CHARS = 240  # at the start of a memory whose words count; more adds words off its topic
LEAST_CHARS = 2  # shorter words say too little to ask with
MAX_TERMS = 3  # further questions at most; each costs a search
LEAST_QUERY_SIMILARITY = 0.65  # cosine of a past query; less takes words from unrelated ones
EXPANSION_BOOST = 0.7  # factor on what only a further question found
LOOKBACK_DAYS = 60  # how old a past query may be


def expansion_terms(query: str, texts: Iterable[str], at_most: int) -> list[str]:
    """Return the words that the texts hold most often and the query does not, in any form.

    No function words, the first form of each, ties by appearance; a text that comes twice counts
    twice.
    """
    asked = set(query_tokens(query))
    counts: dict[str, int] = {}
    shown: dict[str, str] = {}
    for text in texts:
        for word in _words().findall(text.lower()):
            tokens = [token for token in tokenize(word) if not is_stop_word(token)]
            for token in tokens:
                form = word if len(tokens) == 1 else token  # to ask with
                if token not in asked and len(form) >= LEAST_CHARS:
                    counts[token] = counts.get(token, 0) + 1
                    shown.setdefault(token, form)
    ranked = sorted(counts, key=lambda token: -counts[token])
    return [shown[token] for token in ranked[:at_most]]


def query_expansion(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Add results of further questions; those of the query itself keep their scores."""
    asked, similar = search.query.text, _similar(search)
    texts = _texts_found(similar, search)
    terms = expansion_terms(asked, texts, MAX_TERMS)
    found = _ask(terms, candidates, search)
    after = candidates
    if found:
        new, scores = np.array(list(found), dtype=np.int64), [score for score, _ in found.values()]
        both = Candidates(
            np.concatenate([candidates.positions, new]),
            np.concatenate([candidates.scores, scores]),
            np.concatenate([candidates.expanded, np.ones(new.size, dtype=np.bool_)]),
        )
        after = both.rescored(both.scores)

    def reason_of(position: int) -> str:
        return f"found by searching again with '{found[position][1]}': x{EXPANSION_BOOST:g}"

    return PhaseOutcome(
        after,
        reason_of,
        notes={
            "applied": bool(terms),
            "original_query": asked,
            "similar_past_queries": len(similar),
            "expansion_terms": terms,
            "expansion_boost": EXPANSION_BOOST,
            "results_from_original": candidates.size,
            "results_from_expansion": len(found),
        },
    )


def _similar(search: Search) -> list[PastQuery]:
    wording, since_us = search.query.text.split(), search.now_us - LOOKBACK_DAYS * DAY_US
    return [
        q
        for q in search.past_queries(since_us=since_us, limit=PAST_QUERIES_AT_MOST)
        if q.similarity >= LEAST_QUERY_SIMILARITY
        and q.asked_us <= search.now_us
        and q.text.split() != wording
    ]


def _texts_found(similar: Sequence[PastQuery], search: Search) -> list[str]:
    positions = [p for q in similar for p in q.positions[:RESULTS_PER_QUERY]]
    rows = search.reader.describe(list(dict.fromkeys(positions)))
    found = [row for row in map(rows.get, positions) if row]
    parts = ((row["content"][:CONTENT_CHARS], row["room"], row["wing"]) for row in found)
    return [" ".join(filter(None, part)) for part in parts]


def _ask(
    terms: Sequence[str], candidates: Candidates, search: Search
) -> dict[int, tuple[float, str]]:
    """Ask once per word: by position, the best boosted score and the word that brought it."""
    profile, known = search.profile, set(candidates.positions.tolist())
    found: dict[int, tuple[float, str]] = {}
    for term in terms:
        question = f"{search.query.text} {term}"
        positions, scores = search.search(question, max(profile.depth, search.k))
        boosted = scores * EXPANSION_BOOST
        for position, score in zip(positions.tolist(), boosted.tolist(), strict=True):
            if position not in known and score > found.get(position, (0.0, ""))[0]:
                found[position] = (score, term)
    return found


@cache  # compiled on first use: most processes never expand a query
def _words() -> re.Pattern[str]:
    letters = rf"(?:[^\W_]|[{MARKS}])+"
    return re.compile(rf"{letters}(?:['’]{letters})*")


# Phase 6: memories used most, filed last or tagged "pinned" rank a little higher.
#
# Departures from the reference (research/mempalace.md section 1): there a pinned set is a tool of
# its own and changes no search; its boost here is the RFC's pinned_boost. The spread of a memory is
# the distinct days on which it was recalled, not the distinct texts of queries. A memory that
# exceeds the token budget is passed over and does not end the list.

PINNED_TAG = "pinned"  # in any case: pinned by their author
SPREAD_GAIN = 0.2  # for one more day of use: more favours steady use over a busy day
SPREAD_CAP_DAYS = 10  # a higher cap lets years of use crowd out this month's
MOST_USED = 10  # most-used memories that may be pinned; a row each
PINNED_BOOST = 0.04  # a pinned memory gains this share of the way to 1
MOST_PINNED = 5
MOST_PINNED_TOKENS = 2_000  # of all pinned memories together
LEAST_MULTIPLIER = 1.5  # LTP multiplier from which a most used memory is pinned
NEW_HOURS = 48.0  # how long a memory is new, and pinned for that


def pinning_score(multipliers: Scores, days: Codes) -> Scores:
    """Return multiplier * (1 + 0.2 * min(days, 10)), in [1, 3] times the multiplier (phase 6)."""
    spread = np.clip(days, 0, SPREAD_CAP_DAYS).astype(np.float64)
    return multipliers * (1.0 + SPREAD_GAIN * spread)


def pinned_score(scores: Scores, boost: float) -> Scores:
    """Return score + boost * (1 - score), in [score, 1]; what exceeds 1 already stays as it is."""
    lifted = np.minimum(scores + boost * np.maximum(1.0 - scores, 0.0), 1.0)
    return np.maximum(lifted, scores)


def choose_pinned(
    scores: Scores, tokens: Sequence[int], max_items: int, max_tokens: int
) -> list[int]:
    """Return the rows of the best that fit, best first; one that does not is passed over."""
    chosen: list[int] = []
    for row in np.argsort(-scores, kind="stable").tolist():
        if len(chosen) < max_items and tokens[row] <= max_tokens:
            chosen.append(row)
            max_tokens -= tokens[row]
    return chosen


def pinned(candidates: Candidates, search: Search) -> PhaseOutcome:
    """Lift the candidates that are pinned by `pinned_score`.

    Pinned are, best `pinning_score` first, at most MOST_PINNED of MOST_PINNED_TOKENS: the most used
    memories with an LTP multiplier of at least LEAST_MULTIPLIER, whether this query found them or
    not, and candidates that are new or carry the tag "pinned". Only candidates gain score.
    """
    if not candidates.size:
        return PhaseOutcome(candidates)
    most_used = search.most_used(MOST_USED).tolist()
    # Candidates first and in their order: of equal pinning scores, the better answer is pinned.
    known = list(dict.fromkeys([*candidates.positions.tolist(), *most_used]))
    rows = search.reader.describe(known)
    usage = search.usage_of(np.array(known, dtype=np.int64))
    multipliers, used = ltp_multiplier(usage.recent), set(most_used)
    reasons = {
        p: f"recalls lately: {recent}; days with recalls: {days}"
        for p, recent, days, m in zip(known, usage.recent, usage.days, multipliers, strict=True)
        if p in used and m >= LEAST_MULTIPLIER
    }
    reasons |= _pinned_by_author(candidates.positions, rows, search)
    places = [index for index, position in enumerate(known) if position in reasons]
    tokens = [estimate_tokens(rows[known[place]]["content"]) for place in places]
    scores = pinning_score(multipliers, usage.days)[places]
    chosen = choose_pinned(scores, tokens, MOST_PINNED, MOST_PINNED_TOKENS)
    lifted = np.isin(candidates.positions, [known[places[row]] for row in chosen])
    if not lifted.any():
        return PhaseOutcome(candidates)
    gained = pinned_score(candidates.scores, PINNED_BOOST)
    hits: list[int] = candidates.positions[lifted].tolist()
    spent = sum(tokens[row] for row in chosen)

    def reason_of(position: int) -> str:
        return f"pinned: {reasons[position]}"

    return PhaseOutcome(
        candidates.rescored(np.where(lifted, gained, candidates.scores)),
        reason_of,
        notes={"pinned": len(chosen), "pinned_candidates": len(hits), "pinned_tokens": spent},
        annotations={position: {"pinned_reason": reasons[position]} for position in hits},
    )


def _pinned_by_author(
    positions: Positions, rows: Mapping[int, Mapping[str, Any]], search: Search
) -> dict[int, str]:
    """Return, by position, why a candidate is pinned by its tag or by when it was filed."""
    created = search.reader.created_at(positions)
    age_hours = ages_s(created, search.now_us) / SECONDS_PER_HOUR
    recent = is_dated(created) & (age_hours <= NEW_HOURS)
    reasons: dict[int, str] = {}
    for row, position in enumerate(positions.tolist()):
        if any(tag.strip().casefold() == PINNED_TAG for tag in rows[position]["tags"]):
            reasons[position] = f'tagged "{PINNED_TAG}"'
        elif recent[row]:
            reasons[position] = f"filed {age_hours[row]:.1f} h ago (window {NEW_HOURS:g} h)"
    return reasons
