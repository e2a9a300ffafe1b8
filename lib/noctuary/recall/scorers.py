"""Base rankings other than fusion, as libravdb defines them: one function over arrays each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.legs import Leg
from noctuary.recall.phases import Codes
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Positions, Scores, query_tokens
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.search import Search, ages_s

# Base rankings other than fusion, as libravdb defines them, each one function over arrays.
#
# Decisions where the reference does not fit a memory store or contradicts itself:
#
# - A memory without a date counts as made now (research/peers.md 1.5), so undated stores rank by
#   cosine and scope alone; a negative cosine counts as 0.
# - The authored term a(d) is the memory's importance: the weight that its author gave it.
# - The largest access count is the corpus's, as the document says; the code takes that of the
#   first pass, so that the same memory's authority would depend on the query.
# - Authority multiplies through a floor: without one (floor 0, the reference) a memory that was
#   neither written by hand nor recalled keeps 0.1 % of its score after a week.

# A memory of the active conversation, a durable one of the asking user, one without an owner in a
# store with owners; and S, the weight of that closeness (section 1.3: tuned, not derived).
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
    """Score the nearest rows by the profile's scorer; positions ascending, scores in [0, 1]."""
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
            keyword_coverage(reader, query_tokens(text), positions), profile, search.k,
        )  # fmt: skip
        positions = positions[rows]
    order = np.argsort(positions)
    return positions[order], scores[order]
