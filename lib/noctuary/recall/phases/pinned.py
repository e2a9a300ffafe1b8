"""Phase 6: what was used most, filed last or tagged "pinned" ranks a little higher.

What belongs here: choosing the pinned memories and their boost. What does not: inserting any: only
what the query found is lifted.

Departures from the reference (research/mempalace.md section 1, phase 6): there a pinned set is a
tool of its own and changes no search; its boost here is the RFC's pinned_boost. There the spread of
a memory counts the distinct texts of the queries that found it; we keep no query texts by memory
and count the distinct days on which it was recalled. There the first memory that exceeds the token
budget ends the list, so that one long one empties it; here it is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.ages import SECONDS_PER_HOUR, ages_s, is_dated
from noctuary.recall.phases.base import (
    Candidates,
    PhaseContext,
    PhaseOutcome,
    Positions,
    unchanged,
)
from noctuary.text.token_estimate import estimate_tokens
from noctuary.usage.ltp import ltp_multiplier

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
