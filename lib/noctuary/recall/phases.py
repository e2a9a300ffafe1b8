"""Phases that move scores, and scorers in the place of fusion: formula, source, reasons."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.store import keep_caches_in_home
from noctuary.recall.candidates import (
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    US_PER_SECOND,
    Candidates,
    PastQuery,
    PhaseOutcome,
    Positions,
    Scores,
    ages_s,
    is_dated,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallWarning
from noctuary.text.marks import estimate_tokens
from noctuary.text.tokens import MARKS, is_stop_word, tokenize
from noctuary.usage.reader import ltp_multiplier

if TYPE_CHECKING:
    from noctuary.recall.engine import Search
    from noctuary.recall.legs import Leg
    from noctuary.recall.reader import SnapshotReader

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
    """Multiply by 1 + boost inside the windows of `noctuary.text.dates.find_windows`.

    What was written at a date in the question, or soon after, ranks higher; it is never a filter.
    """
    from noctuary.text.dates import find_windows

    created_us = search.reader.created_at(candidates.positions)
    days = (created_us // (US_PER_SECOND * 86_400)).astype("datetime64[D]")
    dated = is_dated(created_us)
    years = np.unique(days[dated].astype("datetime64[Y]").astype(np.int64) + 1970)
    windows = find_windows(search.query.text, years.tolist())
    said = np.full(candidates.size, -1)
    for number, window in enumerate(windows):
        first, last = np.datetime64(window.first), np.datetime64(window.last)
        said[dated & (first <= days) & (days <= last)] = number
    factors = np.where(said >= 0, 1.0 + search.profile.date_boost, 1.0)
    return _multiplied(
        candidates, factors, lambda row: f"{days[row]} fits {windows[said[row]].text!r}"
    )


# Phase 1: what was recalled often lately ranks higher, what is old lower, what was filed in the
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


# Phase 2: what was recalled together with the other candidates before ranks higher.


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
CONTENT_CHARS = 240  # of a memory whose words count; more adds words from beside its point
LEAST_CHARS = 2  # shorter words say too little to ask with
MAX_TERMS = 3  # further questions at most; each costs a search
LEAST_QUERY_SIMILARITY = 0.65  # cosine of a past query; less takes words from unrelated ones
EXPANSION_BOOST = 0.7  # factor on what only a further question found
LOOKBACK_DAYS = 60  # how old a past query may be
_DAY_US = 86_400_000_000


def expansion_terms(query: str, texts: Iterable[str], at_most: int) -> list[str]:
    """Return the words that the texts hold most often and the query does not, in any form.

    No function words, the first form of each, ties by appearance; a text that comes twice counts
    twice.
    """
    asked = set(tokenize(query))
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
    """Add what further questions find; what the query itself found keeps its score."""
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
    wording, since_us = search.query.text.split(), search.now_us - LOOKBACK_DAYS * _DAY_US
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


# Phase 6: what was used most, filed last or tagged "pinned" ranks a little higher.
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
LEAST_MULTIPLIER = 1.5  # LTP multiplier from which what is used most is pinned
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


# Base rankings other than fusion, as libravdb defines them, each one function over arrays.
#
# Decisions where the reference does not fit a memory store or contradicts itself:
#
# - A memory without a date counts as made now (research/peers.md 1.5), so undated stores rank by
#   cosine and scope alone; a negative cosine counts as 0.
# - The authored term a(d) is the memory's importance: the weight that whoever wrote it gave it.
# - The largest access count is the corpus's, as the document says; the code takes that of the
#   first pass, so that the same memory's authority would depend on the query.
# - Authority multiplies through a floor: without one (floor 0, the reference) a memory that nobody
#   wrote by hand or recalled keeps 0.1 % of its score after a week, whatever its similarity.

# Of the active conversation, a durable one of whoever asks, one of nobody in particular where
# others are somebody's; and S, what that closeness is worth (section 1.3: tuned, not derived).
SCOPE_SESSION, SCOPE_USER, SCOPE_GLOBAL = 0, 1, 2
SCOPE_WEIGHTS = (1.0, 0.6, 0.3)
# alpha, beta, gamma of section 1; alpha_r, alpha_f, alpha_a of section 7, each summing to 1; kappa.
MIXTURE = (0.7, 0.2, 0.1)
AUTHORITY = (0.5, 0.2, 0.3)
KEYWORD_GAIN = 0.3
# lambda by scope: half-lives of 1.9 hours, 19 hours and 4 days; and that of authority, 19 hours.
DECAYS_PER_S = (1e-4, 1e-5, 2e-6)
AUTHORITY_DECAY_PER_S = 1e-5


def score_hybrid(
    cosines: NDArray[np.floating],
    created_at_us: Positions,
    now_us: int,
    scopes: Codes,
    mixture: tuple[float, float, float] = MIXTURE,
    decays_per_s: tuple[float, float, float] = DECAYS_PER_S,
) -> Scores:
    """Return alpha cos + beta exp(-lambda age) + gamma S, in [0, 1], (m,) (sections 1, 2)."""
    alpha, beta, gamma = mixture
    recency = decayed(ages_s(created_at_us, now_us), np.array(decays_per_s)[scopes])
    closeness = np.array(SCOPE_WEIGHTS)[scopes]
    return np.minimum(alpha * unit_of(cosines) + beta * recency + gamma * closeness, 1.0)


def score_two_pass(
    cosines: NDArray[np.floating],
    created_at_us: Positions,
    now_us: int,
    access_counts: Codes,
    max_access: int,
    authored: NDArray[np.floating],
    coverage: Scores,
    profile: RetrievalProfile,
    k: int,
    weights: tuple[float, float, float] = AUTHORITY,
    kappa: float = KEYWORD_GAIN,
) -> tuple[NDArray[np.int64], Scores]:
    """Return the rows that pass the first pass, nearest first, and their scores of the second.

    First pass: the k1 nearest (at least `k`) whose cosine reaches theta1, ties by lower row; a
    cosine that is no number counts as 0. Second pass: factor * max(cos, 0) * (1 + kappa M) /
    (1 + kappa), in [0, factor], where the factor is floor + (1 - floor) * omega, omega is
    `authority` and M `keyword_coverage`. Source: sections 7.4 and 7.5.
    """
    exact = cosines.astype(np.float64)
    known = np.clip(np.where(np.isfinite(exact), exact, 0.0), -1.0, 1.0)
    rows = np.argsort(-known, kind="stable")[: max(profile.coarse_depth, k)]
    rows = rows[known[rows] >= profile.coarse_threshold]
    ages = ages_s(created_at_us[rows], now_us)
    omegas = authority(ages, access_counts[rows], max_access, authored[rows], weights)
    factor = profile.authority_floor + (1.0 - profile.authority_floor) * omegas
    support = np.minimum((1.0 + kappa * unit_of(coverage[rows])) / (1.0 + kappa), 1.0)
    return rows, factor * np.maximum(known[rows], 0.0) * support


def authority(
    ages_s: Scores,
    access_counts: Codes,
    max_access: int,
    authored: NDArray[np.floating],
    weights: tuple[float, float, float] = AUTHORITY,
    decay_per_s: float = AUTHORITY_DECAY_PER_S,
) -> Scores:
    """Return omega = alpha_r exp(-lambda_r age) + alpha_f f + alpha_a a, in [0, 1] (section 7.3).

    f = ln(1 + count) / ln(max_access + 2); the asymmetry keeps a corpus without any access defined.
    """
    alpha_r, alpha_f, alpha_a = weights
    most = max(max_access, 0)
    counts = np.clip(access_counts, 0, most).astype(np.float64)
    frequency = np.log1p(counts) / np.log(most + 2.0)
    recency = decayed(ages_s, decay_per_s)
    return np.minimum(alpha_r * recency + alpha_f * frequency + alpha_a * unit_of(authored), 1.0)


def quality(confidences: NDArray[np.floating], delta: float) -> Scores:
    """Return Q = 1 - delta * (1 - confidence), in [1 - delta, 1]. Source: section 1."""
    return 1.0 - delta * (1.0 - unit_of(confidences))


def scope_codes(
    in_session: NDArray[np.bool_], owners: Codes, asking: int | None, *, has_owners: bool
) -> NDArray[np.int8]:
    """Return the scope code of every memory; the session is looked at first."""
    of_user = np.full(owners.shape, not has_owners)
    if has_owners and asking is not None:
        of_user = owners == asking
    durable = np.where(of_user, SCOPE_USER, SCOPE_GLOBAL)
    return np.where(in_session, SCOPE_SESSION, durable).astype(np.int8)


def keyword_coverage(
    reader: SnapshotReader, query_tokens: Iterable[str], positions: Positions
) -> Scores:
    """Return |K and terms(d)| / max(|K|, 1) of every row asked for, in [0, 1] (section 7.5).

    K are the distinct tokens of the query as the index has them. The reference keeps only a-z, 0-9
    and underscores, so that a query in another script has no keywords there.
    """
    tokens = sorted(set(query_tokens))
    return reader.holding(tokens, positions).sum(axis=0) / max(len(tokens), 1)


def unit_of(values: NDArray[np.floating]) -> Scores:
    """Return values clipped to [0, 1]; NaN and infinities are 0."""
    exact = values.astype(np.float64)
    return np.clip(np.where(np.isfinite(exact), exact, 0.0), 0.0, 1.0)


def decayed(ages_s: Scores, rates_per_s: Scores | float) -> Scores:
    """Return exp(-rate * age), in [0, 1], exactly 1 at age 0."""
    with np.errstate(over="ignore"):
        return np.exp(-np.maximum(ages_s, 0.0) * np.maximum(rates_per_s, 0.0))


def score_candidates(search: Search, text: str, dense: Leg) -> tuple[Positions, Scores]:
    """Score the nearest rows by the profile's scorer: what is left, ascending, in [0, 1]."""
    positions, profile, reader = dense.ranking, search.profile, search.reader
    if not positions.size:
        return positions, np.empty(0, dtype=np.float64)
    cosines, created = dense.scores_at(positions), reader.created_at(positions)
    if profile.scorer == "hybrid":
        owners, session_id = reader.facets["user"], search.query.session_id
        asking = owners.code_of(search.query.scope.user)
        of_session = reader.facets["session_id"].code_of(session_id)
        scopes = scope_codes(
            reader.codes_at("session_id", positions) == of_session,
            reader.codes_at("user", positions),
            None if asking < 0 else asking,
            has_owners=bool(owners.values),
        )
        scores = score_hybrid(cosines, created, search.now_us, scopes)
    else:
        counts, inputs = search.usage_of(positions).recent, search.inputs
        first = inputs.most_used(1) if inputs.knows_usage() else []
        most = int(inputs.usage_of(first).recent.max()) if first else 0
        rows, scores = score_two_pass(
            cosines, created, search.now_us, counts, most, reader.importance_at(positions),
            keyword_coverage(reader, tokenize(text), positions), profile, search.k,
        )  # fmt: skip
        positions = positions[rows]
    order = np.argsort(positions)
    return positions[order], scores[order]


# A cross-encoder behind a hard time limit: reads query and memory together, scores each pair.
#
# sentence-transformers and torch are imported when a reranker is first asked, in a thread of its
# own, and nothing is fetched: local files only. A thread cannot be stopped from outside, so a
# question that was given up ends by itself: between two batches it looks whether anybody waits.
#
# Source: hybrid-recall design A.6 (over the fused top 20 to 30, fallback to the fused order).

_BATCH_PAIRS = 8  # per forward pass: fewer give up sooner after a timeout, more cost fewer calls

_RETRY_AFTER_S = 30.0
"""A model that could not be loaded is tried again after this long: shorter slows every recall of a
store whose reranker is broken, longer keeps a repaired one unused in a running server."""

_EXIT_PATIENCE_S = 5.0
"""How long a process that ends waits for the batch that is being computed: an interpreter that goes
away under torch's compiled code aborts (measured), a model that hangs must not keep it for ever."""

_making = threading.Lock()


class _Job:
    """One question to a model: what is asked, what came back, and whether anybody still waits."""

    def __init__(self, query: str, texts: Sequence[str]) -> None:
        self.pairs = [(_readable(query), _readable(text)) for text in texts]
        self.done = threading.Event()
        self.given_up = self.computing = False
        self.answer: NDArray[np.float64] | RecallWarning | None = None


class Reranker:
    """One cross-encoder of this process; safe to share between threads, one question at a time."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._turn = threading.Lock()
        self._given_up = False
        self._loaded: Any = None
        self._broken: RecallWarning | None = None
        self._retry_at_s = 0.0
        self._running: set[_Job] = set()
        # Not atexit: that would keep a model that nobody uses any more.
        weakref.finalize(self, _leave, self._running)

    def score(
        self, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return how well each text answers, (m,), higher is better, or why that is not known.

        While a question that was given up still runs, others are refused at once; while somebody
        waits for one, the next waits too, within its own time.
        """
        if not texts:
            return np.empty(0, dtype=np.float64)
        limit_s = min(max(timeout_ms, 0.0) / 1000, threading.TIMEOUT_MAX)
        until_s = time.monotonic() + limit_s
        if not self._turn.acquire(timeout=0.0 if self._given_up else limit_s):
            return self._late(timeout_ms)
        self._given_up = False
        if self._broken is not None and time.monotonic() < self._retry_at_s:
            self._turn.release()
            return self._broken
        job = _Job(query, texts)
        self._running.add(job)
        # A daemon: a process that has its answer does not stay for a model that is still loading.
        threading.Thread(target=self._work, args=(job,), daemon=True).start()
        job.done.wait(max(until_s - time.monotonic(), 0.0))
        if job.answer is None:
            job.given_up = self._given_up = True
            return self._late(timeout_ms)
        return job.answer

    def _late(self, timeout_ms: float) -> RecallWarning:
        if self._loaded is None:
            return RecallWarning(
                "reranker_loading",
                f"the reranker {self.model} was not loaded within {timeout_ms:g} ms; the fused "
                "order stands. Ask again in a process that stays (noctuary serve)",
            )
        return RecallWarning(
            "reranker_timeout",
            f"the reranker {self.model} did not answer within {timeout_ms:g} ms; the fused order "
            "stands. Raise rerank_timeout_ms, lower rerank_depth or use a smaller model",
        )

    def _work(self, job: _Job) -> None:
        try:
            if self._loaded is None:
                self._loaded, self._broken = _load(self.model), None
            job.answer = self._ask(job)
        except _UnavailableError as error:
            self._broken = job.answer = RecallWarning("reranker_unavailable", str(error))
            self._retry_at_s = time.monotonic() + _RETRY_AFTER_S
        # A model raises whatever its code raises; recall answers without it and says so.
        except Exception as error:
            job.answer = self._failed(f"raised {type(error).__name__}: {str(error)[:200]}")
        finally:
            self._running.discard(job)
            self._turn.release()
            job.done.set()

    def _ask(self, job: _Job) -> NDArray[np.float64] | RecallWarning | None:
        scores: list[float] = []
        job.computing = True
        for start in range(0, len(job.pairs), _BATCH_PAIRS):
            if job.given_up:
                return None
            batch = job.pairs[start : start + _BATCH_PAIRS]
            found = self._loaded.predict(batch, batch_size=_BATCH_PAIRS, show_progress_bar=False)
            part = np.asarray(found, dtype=np.float64)
            if part.shape != (len(batch),):
                shape = f"an array of shape {part.shape} for {len(batch)} pairs"
                return self._failed(f"gave {shape}; expected one score per pair")
            scores += part.tolist()
        answer = np.array(scores)
        if not np.isfinite(answer).all():
            return self._failed("gave a score that is not a finite number")
        return answer

    def _failed(self, what: str) -> RecallWarning:
        rest = "the fused order stands. Choose another model or set reranker to nothing"
        return RecallWarning("reranker_failed", f"the reranker {self.model} {what}; {rest}")


def open_reranker(model: str) -> Reranker:
    """Return this process's reranker of a name or directory; it is loaded when it is asked."""
    # Two threads that ask first would otherwise load the model twice.
    with _making:
        return _make(model)


@lru_cache(maxsize=2)  # one, and its successor while they are being compared
def _make(model: str) -> Reranker:
    return Reranker(model)


def _leave(running: set[_Job]) -> None:
    """Give up what still runs when the process ends, and wait for the batch at hand."""
    for job in tuple(running):
        job.given_up = True
        # Loading is left alone: it takes seconds, and Python ends an import without harm.
        if job.computing:
            job.done.wait(_EXIT_PATIENCE_S)


class _UnavailableError(Exception):
    """The library or the model cannot be loaded."""


def _load(model: str) -> Any:
    try:
        keep_caches_in_home()
        library: Any = import_module("sentence_transformers")
    except ImportError as error:
        raise _UnavailableError(
            f"sentence-transformers cannot be imported ({error}); the fused order stands. Install "
            "noctuary[pipelines] or set reranker to nothing"
        ) from error
    quiet: Any = import_module("transformers.utils.logging")
    bars = quiet.is_progress_bar_enabled()
    quiet.disable_progress_bar()
    try:
        return library.CrossEncoder(model, local_files_only=True)
    # The loader raises whatever its many parts raise.
    except Exception as error:
        raise _UnavailableError(
            f"the reranker {model} cannot be loaded ({type(error).__name__}: {str(error)[:200]}); "
            "the fused order stands. Give the directory of a whole sentence-transformers "
            "cross-encoder, or download it before"
        ) from error
    finally:
        if bars:
            quiet.enable_progress_bar()


def _readable(text: str) -> str:
    # A lone surrogate cannot be handed to a tokenizer: it is not UTF-8 and carries no text.
    return text.encode("utf-8", "replace").decode("utf-8")
