"""The hybrid scorer: cosine, recency and scope in one mixture, times the quality of summaries.

What belongs here: libravdb mathematics sections 1 and 2 over arrays. What does not: where the
arrays come from.

Where the code of libravdb 1.3.12 and its document leave room, this follows the code: a memory
without a date counts as made now (research/peers.md 1.5), so undated stores rank by cosine and
scope alone; a negative cosine counts as 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.ages import ages_s
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.scorers.shared import (
    FloatArray,
    Ranked,
    best_first,
    convex_weights,
    decayed,
    unit_of,
)

SCOPE_SESSION = 0
"""Code of a memory of the active conversation."""
SCOPE_USER = 1
"""Code of a durable memory of whoever asks."""
SCOPE_GLOBAL = 2
"""Code of a memory of nobody in particular, where others are somebody's."""
SCOPE_WEIGHTS = (1.0, 0.6, 0.3)
"""S by code: what closeness to the asker is worth (section 1.3: tuned, not derived)."""
DEFAULT_MIXTURE = (0.7, 0.2, 0.1)
"""alpha, beta, gamma if a profile sets all three to 0."""

Codes = NDArray[np.integer]


def scope_codes(
    in_session: NDArray[np.bool_], owners: Codes, asking: int | None, *, has_owners: bool
) -> NDArray[np.int8]:
    """Return the scope code of every memory; the session is looked at first.

    Args:
        in_session: Whether it belongs to the active conversation.
        owners: Code of its owner, -1 for none; same shape.
        asking: Code of whoever asks; None for nobody, or for somebody who owns nothing.
        has_owners: Whether any memory of the store has an owner. Where none has, all of them are
            the one user's.
    """
    if has_owners:
        of_user = np.zeros(owners.shape, dtype=bool) if asking is None else owners == asking
    else:
        of_user = np.ones(owners.shape, dtype=bool)
    durable = np.where(of_user, SCOPE_USER, SCOPE_GLOBAL)
    return np.where(in_session, SCOPE_SESSION, durable).astype(np.int8)


def quality(confidences: NDArray[np.floating], delta: float) -> FloatArray:
    """Return Q = 1 - delta * (1 - confidence), in [1 - delta, 1].

    Args:
        confidences: Of summaries, in [0, 1]; 1 for what is no summary, which makes Q 1. What is no
            number counts as 0.
        delta: In [0, 1].
    """
    return 1.0 - delta * (1.0 - unit_of(confidences))


def score_hybrid(
    cosines: NDArray[np.floating],
    ages_s: FloatArray,
    scopes: Codes,
    confidences: NDArray[np.floating],
    profile: RetrievalProfile,
) -> FloatArray:
    """Return (alpha cos + beta R + gamma S) * Q, in [0, 1].

    R = exp(-lambda * age) with the lambda of the memory's scope; alpha, beta and gamma are scaled
    to sum to 1 (all 0: 0.7, 0.2, 0.1).

    Args:
        cosines: To the query, any values: outside [0, 1] they are clipped, NaN and infinities are
            0.
        ages_s: In seconds; below 0 counts as 0.
        scopes: SCOPE_SESSION, SCOPE_USER or SCOPE_GLOBAL.
        confidences: As for `quality`.
        profile: The hybrid_*, *_decay_per_s and quality_penalty values.
    """
    alpha, beta, gamma = convex_weights(
        (
            profile.hybrid_similarity_weight,
            profile.hybrid_recency_weight,
            profile.hybrid_scope_weight,
        ),
        DEFAULT_MIXTURE,
    )
    rates = np.array(
        [profile.session_decay_per_s, profile.user_decay_per_s, profile.global_decay_per_s]
    )
    recency = decayed(ages_s, rates[scopes])
    closeness = np.array(SCOPE_WEIGHTS)[scopes]
    base = alpha * unit_of(cosines) + beta * recency + gamma * closeness
    return np.minimum(base * quality(confidences, profile.quality_penalty), 1.0)


def rank(
    positions: NDArray[np.int64],
    cosines: NDArray[np.floating],
    created_at_us: NDArray[np.int64],
    now_us: int,
    scopes: Codes,
    confidences: NDArray[np.floating],
    profile: RetrievalProfile,
) -> Ranked:
    """Return the positions, best `score_hybrid` first, ties by lower position, and their scores.

    Args:
        positions: Candidates, distinct; in the reference the nearest by cosine.
        cosines: To the query, aligned; as are all arrays below.
        created_at_us: Dates; UNDATED_US and future ones count as now.
        now_us: The moment of the recall.
        scopes: As from `scope_codes`.
        confidences: As for `quality`.
        profile: How to score.
    """
    ages = ages_s(created_at_us, now_us)
    return best_first(positions, score_hybrid(cosines, ages, scopes, confidences, profile))
