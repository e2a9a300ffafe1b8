"""Base rankings other than fusion, as the reference documents define them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.search import TermLookup
from noctuary.recall.candidates import Positions, Scores, ages_s
from noctuary.recall.legs import Leg
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.text.tokens import tokenize

if TYPE_CHECKING:
    from noctuary.recall.engine import Search


# The scorers of libravdb, each one function over arrays, and what they share.
#
# Decisions where the reference does not fit a memory store or contradicts itself:
#
# - A memory without a date counts as made now (research/peers.md 1.5), so undated stores rank by
#   cosine and scope alone; a negative cosine counts as 0.
# - The authored term a(d) is the memory's importance. The reference gives 1 to pieces of
#   hand-written identity documents and 0 to the rest; importance is the weight that whoever wrote
#   a memory gave it, on the same scale.
# - The largest access count is the corpus's, as the document says; the code takes that of the
#   first pass, so that the same memory's authority would depend on the query.
# - Authority weights that are all 0 fall back to their own defaults, not to section 1's.
# - Authority multiplies through a floor: without one (floor 0, the reference) a memory that nobody
#   wrote by hand or recalled keeps 0.1 % of its score after a week, whatever its similarity.


FloatArray = NDArray[np.float64]
Codes = NDArray[np.integer]

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
DEFAULT_AUTHORITY = (0.5, 0.2, 0.3)
"""alpha_r, alpha_f, alpha_a if a profile sets all three to 0."""


def score_hybrid(
    cosines: NDArray[np.floating],
    created_at_us: NDArray[np.int64],
    now_us: int,
    scopes: Codes,
    profile: RetrievalProfile,
) -> FloatArray:
    """Return alpha cos + beta R + gamma S, in [0, 1], shape (m,).

    R = exp(-lambda * age) with the lambda of the memory's scope; alpha, beta and gamma are scaled
    to sum to 1 (all 0: 0.7, 0.2, 0.1). Q, the quality of summaries, comes after every scorer
    (base_ranking). Source: sections 1 and 2.
    """
    mixture = (
        profile.hybrid_similarity_weight,
        profile.hybrid_recency_weight,
        profile.hybrid_scope_weight,
    )
    rates = (profile.session_decay_per_s, profile.user_decay_per_s, profile.global_decay_per_s)
    alpha, beta, gamma = convex_weights(mixture, DEFAULT_MIXTURE)
    recency = decayed(ages_s(created_at_us, now_us), np.array(rates)[scopes])
    closeness = np.array(SCOPE_WEIGHTS)[scopes]
    return np.minimum(alpha * unit_of(cosines) + beta * recency + gamma * closeness, 1.0)


def score_two_pass(
    cosines: NDArray[np.floating],
    created_at_us: NDArray[np.int64],
    now_us: int,
    access_counts: NDArray[np.integer],
    max_access: int,
    authored: NDArray[np.floating],
    coverage: FloatArray,
    profile: RetrievalProfile,
    k: int,
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the rows that pass the first pass, nearest first, and their scores of the second.

    First pass: the k1 nearest whose cosine reaches theta1, ties by lower row. Second pass:
    factor * max(cos, 0) * (1 + kappa M) / (1 + kappa), in [0, factor], where the factor is
    floor + (1 - floor) * omega. A memory with every keyword scores (1 + kappa) times one with none.
    Source: sections 7.4 and 7.5.

    Args:
        cosines: To the query, shape (m,); one that is no number counts as 0.
        created_at_us: Dates; UNDATED_US and future ones count as now.
        now_us: The moment of the recall.
        access_counts: As for `authority`.
        max_access: As for `authority`.
        authored: a(d), in [0, 1].
        coverage: M, in [0, 1], as from `keyword_coverage`.
        profile: The coarse_*, keyword_gain and authority_* values.
        k: How many memories were asked for; the first pass keeps at least so many (k2 <= k1).
    """
    exact = cosines.astype(np.float64)
    known = np.clip(np.where(np.isfinite(exact), exact, 0.0), -1.0, 1.0)
    rows = np.argsort(-known, kind="stable")[: max(profile.coarse_depth, k)]
    rows = rows[known[rows] >= profile.coarse_threshold]
    ages = ages_s(created_at_us[rows], now_us)
    omegas = authority(ages, access_counts[rows], max_access, authored[rows], profile)
    floor, kappa = profile.authority_floor, profile.keyword_gain
    factor = floor + (1.0 - floor) * omegas
    support = np.minimum((1.0 + kappa * unit_of(coverage[rows])) / (1.0 + kappa), 1.0)
    return rows, factor * np.maximum(known[rows], 0.0) * support


def authority(
    ages_s: FloatArray,
    access_counts: NDArray[np.integer],
    max_access: int,
    authored: NDArray[np.floating],
    profile: RetrievalProfile,
) -> FloatArray:
    """Return omega = alpha_r exp(-lambda_r age) + alpha_f f + alpha_a a, in [0, 1].

    f = ln(1 + count) / ln(max_access + 2), in [0, 1); the asymmetry keeps a corpus without any
    access defined. Never rises with age, never falls with accesses or `authored`.
    Source: section 7.3.
    """
    weights = (
        profile.authority_recency_weight,
        profile.authority_frequency_weight,
        profile.authority_authored_weight,
    )
    alpha_r, alpha_f, alpha_a = convex_weights(weights, DEFAULT_AUTHORITY)
    most = max(max_access, 0)
    counts = np.clip(access_counts, 0, most).astype(np.float64)
    frequency = np.log1p(counts) / np.log(most + 2.0)
    recency = decayed(ages_s, profile.authority_decay_per_s)
    omega = alpha_r * recency + alpha_f * frequency + alpha_a * unit_of(authored)
    return np.minimum(omega, 1.0)


def quality(confidences: NDArray[np.floating], delta: float) -> FloatArray:
    """Return Q = 1 - delta * (1 - confidence), in [1 - delta, 1]. Source: section 1."""
    return 1.0 - delta * (1.0 - unit_of(confidences))


def scope_codes(
    in_session: NDArray[np.bool_], owners: Codes, asking: int | None, *, has_owners: bool
) -> NDArray[np.int8]:
    """Return the scope code of every memory; the session is looked at first."""
    if has_owners:
        of_user = np.zeros(owners.shape, dtype=bool) if asking is None else owners == asking
    else:
        of_user = np.ones(owners.shape, dtype=bool)
    durable = np.where(of_user, SCOPE_USER, SCOPE_GLOBAL)
    return np.where(in_session, SCOPE_SESSION, durable).astype(np.int8)


def keyword_coverage(
    query_tokens: Sequence[str],
    lookup: TermLookup,
    posting_positions: NDArray[np.int32],
    positions: NDArray[np.int64],
) -> FloatArray:
    """Return |K and terms(d)| / max(|K|, 1) of every memory asked for.

    K are the distinct tokens of the query as the index has them: stems without stop words, n-grams
    of unspaced scripts. The reference keeps only a-z, 0-9 and underscores, so that a query in
    another script has no keywords there. Source: section 7.5; research/peers.md 1.5.

    Args:
        query_tokens: What noctuary.text.tokens.tokenize returned; none gives 0 throughout.
        lookup: Posting ranges of known tokens.
        posting_positions: Memory positions, ascending inside a range.
        positions: Memories to judge, shape (m,), any order.

    Returns:
        In [0, 1], shape (m,).
    """
    held = np.zeros(positions.size, dtype=np.float64)
    tokens = sorted(set(query_tokens))
    # Of the postings' own type: searching them by another one would copy them.
    wanted = positions.astype(posting_positions.dtype)
    for start, stop in lookup(tokens):
        holders = posting_positions[start:stop]
        if not holders.size:
            continue
        # A search for few candidates in a long, sorted list instead of a pass over all of it.
        places = np.minimum(np.searchsorted(holders, wanted), holders.size - 1)
        held += holders[places] == wanted
    return held / max(len(tokens), 1)


def unit_of(values: NDArray[np.floating]) -> FloatArray:
    """Return values clipped to [0, 1], same shape; NaN and infinities are 0.

    Of cosines this makes similarities: a negative one is as good as none.
    """
    exact = values.astype(np.float64)
    return np.clip(np.where(np.isfinite(exact), exact, 0.0), 0.0, 1.0)


def convex_weights(weights: Sequence[float], fallback: Sequence[float]) -> FloatArray:
    """Return the weights clamped to [0, 1] and scaled to sum to 1.

    Source: libravdb mathematics section 1 and research/peers.md 1.1.

    Returns:
        In [0, 1], shape (len(weights),).
    """
    clamped = unit_of(np.array(weights, dtype=np.float64))
    total = math.fsum(clamped)
    return clamped / total if total > 0.0 else np.array(fallback, dtype=np.float64)


def decayed(ages_s: FloatArray, rates_per_s: FloatArray | float) -> FloatArray:
    """Return exp(-rate * age), in [0, 1], exactly 1 at age 0."""
    with np.errstate(over="ignore"):
        return np.exp(-np.maximum(ages_s, 0.0) * np.maximum(rates_per_s, 0.0))


# The scorers in the place of fusion: what they need, gathered from the search.


def score_candidates(search: Search, text: str, dense: Leg) -> tuple[Positions, Scores]:
    """Score the nearest rows by the profile's scorer: what is left, ascending, in [0, 1]."""
    positions, profile, reader = dense.ranking, search.profile, search.reader
    if not positions.size:
        return positions, np.empty(0, dtype=np.float64)
    cosines, created = dense.scores_at(positions), reader.created_at(positions)
    if profile.scorer == "hybrid":
        scores = score_hybrid(cosines, created, search.now_us, _scopes(search, positions), profile)
    else:
        counts, most = _use(search, positions)
        rows, scores = score_two_pass(
            cosines, created, search.now_us, counts, most, reader.importance_at(positions),
            _coverage(reader, text, positions), profile, search.k,
        )  # fmt: skip
        positions = positions[rows]
    order = np.argsort(positions)
    return positions[order], scores[order]


def _coverage(reader: SnapshotReader, text: str, positions: Positions) -> FloatArray:
    tokens, held = tokenize(text), reader.posting_positions
    coverage = keyword_coverage(tokens, reader.look_up_terms, held, positions)
    inside = (positions >= reader.count) & (positions < reader.first_live)
    if inside.any():
        ordinals, words = positions[inside] - reader.count, reader.summary_postings[0]
        lookup = reader.look_up_summary_terms
        coverage[inside] = keyword_coverage(tokens, lookup, words, ordinals)
    if reader.live is not None:
        asked, live = sorted(set(tokens)), positions >= reader.first_live
        shares = reader.live.held(asked).sum(axis=0) / max(len(asked), 1)
        coverage[live] = shares[positions[live] - reader.first_live]
    return coverage


def _scopes(search: Search, positions: Positions) -> NDArray[np.int8]:
    reader = search.reader
    sessions, owners = reader.facets["session_id"], reader.facets["user"]
    in_session = reader.codes_at("session_id", positions) == _code(
        sessions.values, search.query.session_id
    )
    asking = _code(owners.values, search.query.scope.user)
    return scope_codes(
        in_session,
        reader.codes_at("user", positions),
        None if asking < 0 else asking,
        has_owners=bool(owners.values),
    )


def _use(search: Search, positions: Positions) -> tuple[NDArray[np.int64], int]:
    """Return retrievals inside the window and the largest count of the store."""
    counts, inputs = search.usage_of(positions).recent, search.inputs
    first = inputs.most_used(1) if inputs.knows_usage() else []
    return counts, int(inputs.usage_of(first).recent.max()) if first else 0


def _code(values: tuple[str, ...], wanted: str | None) -> int:
    """Return the code of a value; -2 where there is none, which no memory has."""
    return values.index(wanted) if wanted is not None and wanted in values else -2
