"""The two-pass scorer: the nearest by cosine, then authority and keywords among them.

What belongs here: libravdb mathematics section 7.3 to 7.6 over arrays. What does not: where the
arrays come from, the hops of 7.7 (the concept graph's walk does that) and packing.

Decisions where the reference does not fit a memory store or contradicts itself:

- The authored term a(d) is the memory's importance. The reference gives 1 to pieces of hand-written
  identity documents and 0 to the rest; importance is the weight that whoever wrote a memory gave
  it, on the same scale.
- The largest access count is the corpus's, as the document says; the code takes that of the first
  pass, so that the same memory's authority would depend on the query.
- Authority weights that are all 0 fall back to their own defaults, not to section 1's.
- Authority multiplies through a floor: without one (floor 0, the reference) a memory that nobody
  wrote by hand or recalled keeps 0.1 % of its score after a week, whatever its similarity.
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

DEFAULT_AUTHORITY = (0.5, 0.2, 0.3)
"""alpha_r, alpha_f, alpha_a if a profile sets all three to 0."""


def coarse_pass(cosines: NDArray[np.floating], depth: int, threshold: float) -> NDArray[np.int64]:
    """Return the rows of the `depth` nearest whose cosine reaches the threshold, best first.

    Source: section 7.4. Ties by lower row; a cosine that is no number counts as 0.

    Args:
        cosines: To the query, shape (m,).
        depth: k1, >= 1.
        threshold: theta1, in [-1, 1].
    """
    exact = cosines.astype(np.float64)
    known = np.clip(np.where(np.isfinite(exact), exact, 0.0), -1.0, 1.0)
    rows = np.argsort(-known, kind="stable")[:depth]
    return rows[known[rows] >= threshold]


def frequency(access_counts: NDArray[np.integer], max_access: int) -> FloatArray:
    """Return f = ln(1 + count) / ln(max_access + 2), in [0, 1); 0 for what was never recalled.

    Source: section 7.3; the asymmetry keeps a corpus without any access defined.

    Args:
        access_counts: Retrievals, of all time or of one window; below 0 counts as 0.
        max_access: Largest count of the corpus, counted alike; a larger one among `access_counts`
            counts as this.
    """
    most = max(max_access, 0)
    counts = np.clip(access_counts, 0, most).astype(np.float64)
    return np.log1p(counts) / np.log(most + 2.0)


def authority(
    ages_s: FloatArray,
    access_counts: NDArray[np.integer],
    max_access: int,
    authored: NDArray[np.floating],
    profile: RetrievalProfile,
) -> FloatArray:
    """Return omega = alpha_r exp(-lambda_r age) + alpha_f f + alpha_a a, in [0, 1].

    Source: section 7.3. Never rises with age, never falls with accesses or `authored`.

    Args:
        ages_s: In seconds; below 0 counts as 0.
        access_counts: As for `frequency`.
        max_access: As for `frequency`.
        authored: a(d), in [0, 1]; what is no number counts as 0.
        profile: The authority_* values; weights are scaled to sum to 1.
    """
    recency_weight, frequency_weight, authored_weight = convex_weights(
        (
            profile.authority_recency_weight,
            profile.authority_frequency_weight,
            profile.authority_authored_weight,
        ),
        DEFAULT_AUTHORITY,
    )
    omega = (
        recency_weight * decayed(ages_s, profile.authority_decay_per_s)
        + frequency_weight * frequency(access_counts, max_access)
        + authored_weight * unit_of(authored)
    )
    return np.minimum(omega, 1.0)


def authority_factor(omegas: FloatArray, floor: float) -> FloatArray:
    """Return floor + (1 - floor) * omega, in [floor, 1]; with floor 0 omega itself.

    Args:
        omegas: In [0, 1].
        floor: In [0, 1].
    """
    return floor + (1.0 - floor) * omegas


def score_two_pass(
    cosines: NDArray[np.floating],
    omegas: FloatArray,
    coverage: FloatArray,
    kappa: float,
    floor: float,
) -> FloatArray:
    """Return factor * max(cos, 0) * (1 + kappa M) / (1 + kappa), in [0, factor].

    Source: section 7.5, with `authority_factor` in place of omega. A memory with every keyword
    scores (1 + kappa) times one with none; the latter loses kappa / (1 + kappa) of its score.

    Args:
        cosines: Any values; NaN and infinities are 0.
        omegas: Authority, in [0, 1].
        coverage: M, in [0, 1].
        kappa: Finite, >= 0; 0 ignores coverage.
        floor: In [0, 1].
    """
    support = np.minimum((1.0 + kappa * unit_of(coverage)) / (1.0 + kappa), 1.0)
    return authority_factor(unit_of(omegas), floor) * unit_of(cosines) * support


def rank(
    positions: NDArray[np.int64],
    cosines: NDArray[np.floating],
    created_at_us: NDArray[np.int64],
    now_us: int,
    access_counts: NDArray[np.integer],
    max_access: int,
    importance: NDArray[np.floating],
    coverage: FloatArray,
    profile: RetrievalProfile,
    k: int,
) -> Ranked:
    """Return the positions that pass the first pass, best second-pass score first, and the scores.

    Args:
        positions: Candidates, distinct, best cosine first; at least max(coarse_depth, k) of them
            where there are as many.
        cosines: To the query, aligned; as are all arrays below.
        created_at_us: Dates; UNDATED_US and future ones count as now.
        now_us: The moment of the recall.
        access_counts: As for `frequency`.
        max_access: As for `frequency`.
        importance: In [0, 1], taken as a(d).
        coverage: As from `keyword_coverage`.
        profile: How to score.
        k: How many memories were asked for; the first pass keeps at least so many (k2 <= k1).
    """
    rows = coarse_pass(cosines, max(profile.coarse_depth, k), profile.coarse_threshold)
    omegas = authority(
        ages_s(created_at_us[rows], now_us),
        access_counts[rows],
        max_access,
        importance[rows],
        profile,
    )
    scores = score_two_pass(
        cosines[rows], omegas, coverage[rows], profile.keyword_gain, profile.authority_floor
    )
    return best_first(positions[rows], scores)
