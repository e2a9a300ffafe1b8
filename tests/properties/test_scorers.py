from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.lexical.build import build_postings
from noctuary.recall.candidates import ages_s
from noctuary.recall.phases import (
    authority,
    convex_weights,
    decayed,
    keyword_coverage,
    quality,
    score_hybrid,
    score_two_pass,
    unit_of,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.text.tokens import encode_tokens, tokenize
from tests.support.lookups import NOW_US

share = st.floats(0, 1)
rate = st.floats(0, 1e9)
kappa = st.floats(0, 1e9)
# Whatever an encoder or a damaged file could leave behind.
anything = st.floats(allow_nan=True, allow_infinity=True)
cosine = st.floats(-1, 1) | anything
age = st.floats(0, 1e12)
moment = st.sampled_from([UNDATED_US, UNDATED_US + 1, 2**63 - 1]) | st.integers(
    NOW_US - 10**15, NOW_US + 10**13
)
past = st.integers(NOW_US - 10**15, NOW_US)
profiles = st.builds(
    RetrievalProfile,
    hybrid_similarity_weight=share,
    hybrid_recency_weight=share,
    hybrid_scope_weight=share,
    quality_penalty=share,
    session_decay_per_s=rate,
    user_decay_per_s=rate,
    global_decay_per_s=rate,
    coarse_depth=st.integers(1, 8),
    coarse_threshold=st.floats(-1, 1),
    keyword_gain=kappa,
    authority_recency_weight=share,
    authority_frequency_weight=share,
    authority_authored_weight=share,
    authority_decay_per_s=rate,
    authority_floor=share,
)
memories = st.lists(
    st.tuples(cosine, moment, st.integers(0, 2), anything, st.integers(-3, 10**9), anything, share),
    max_size=8,
)
Columns = tuple[
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.float64],
]


def columns(rows: list[tuple[float, int, int, float, int, float, float]]) -> Columns:
    cosines, created, scopes, confidences, accesses, importance, coverage = (
        zip(*rows, strict=True) if rows else ((),) * 7
    )
    return (
        np.array(cosines, dtype=np.float64),
        np.array(created, dtype=np.int64),
        np.array(scopes, dtype=np.int64),
        np.array(confidences, dtype=np.float64),
        np.array(accesses, dtype=np.int64),
        np.array(importance, dtype=np.float64),
        np.array(coverage, dtype=np.float64),
    )


def lies_in(values: NDArray[np.float64], low: float, high: float) -> bool:
    return bool(np.isfinite(values).all() and (values >= low).all() and (values <= high).all())


@given(memories, profiles)
def test_hybrid_scores_lie_in_the_unit_interval_whatever_comes_in(
    rows: list[tuple[float, int, int, float, int, float, float]], profile: RetrievalProfile
) -> None:
    cosines, created, scopes, confidences, *_ = columns(rows)
    assert lies_in(score_hybrid(cosines, created, NOW_US, scopes, profile), 0.0, 1.0)
    assert lies_in(quality(confidences, profile.quality_penalty), 0.0, 1.0)


def naive_hybrid(cosine: float, age_s: float, scope: int, profile: RetrievalProfile) -> float:
    weights = [
        profile.hybrid_similarity_weight,
        profile.hybrid_recency_weight,
        profile.hybrid_scope_weight,
    ]
    if sum(weights) == 0:
        weights = [0.7, 0.2, 0.1]
    rates = [profile.session_decay_per_s, profile.user_decay_per_s, profile.global_decay_per_s]
    parts = [max(cosine, 0.0), math.exp(-rates[scope] * age_s), (1.0, 0.6, 0.3)[scope]]
    return sum(w / sum(weights) * part for w, part in zip(weights, parts, strict=True))


@given(st.floats(-1, 1), past, st.integers(0, 2), profiles)
def test_hybrid_is_the_formula(
    cosine: float, created: int, scope: int, profile: RetrievalProfile
) -> None:
    dates = np.array([created])
    found = score_hybrid(np.array([cosine]), dates, NOW_US, np.array([scope]), profile)
    naive = naive_hybrid(cosine, float(ages_s(dates, NOW_US)[0]), scope, profile)
    assert found.tolist() == pytest.approx([naive], abs=1e-12)


@given(share, share)
def test_quality_is_the_formula(confidence: float, delta: float) -> None:
    found = quality(np.array([confidence]), delta)
    assert found.tolist() == pytest.approx([1 - delta * (1 - confidence)], abs=1e-12)


@given(share, share, past, past, profiles)
def test_hybrid_prefers_near_and_new(
    one: float, other: float, date_one: int, date_other: int, profile: RetrievalProfile
) -> None:
    far, near = sorted((one, other))
    old, new = sorted((date_one, date_other))
    dates, scopes = np.array([old, old, new]), np.array([1, 1, 1])
    scores = score_hybrid(np.array([far, near, near]), dates, NOW_US, scopes, profile)
    assert (np.diff(scores) >= -1e-12).all()


@given(share, share, share)
def test_quality_prefers_what_is_sure(one: float, other: float, delta: float) -> None:
    unsure, sure = sorted((one, other))
    found = quality(np.array([unsure, sure, 1.0]), delta)
    assert (np.diff(found) >= -1e-12).all()


@given(memories, profiles, st.integers(0, 10), st.integers(0, 10**9))
def test_two_pass_scores_stay_below_authority_whatever_comes_in(
    rows: list[tuple[float, int, int, float, int, float, float]],
    profile: RetrievalProfile,
    k: int,
    most: int,
) -> None:
    cosines, created, _, _, accesses, importance, coverage = columns(rows)
    found, scores = score_two_pass(
        cosines, created, NOW_US, accesses, most, importance, coverage, profile, k
    )
    omegas = authority(ages_s(created, NOW_US), accesses, most, importance, profile)
    assert lies_in(omegas, 0.0, 1.0)
    factors = profile.authority_floor + (1.0 - profile.authority_floor) * omegas
    assert lies_in(scores, 0.0, 1.0)
    assert (scores <= factors[found]).all()
    assert len(set(found.tolist())) == found.size <= max(profile.coarse_depth, k)
    # An infinite cosine counts as 0 and is compared as such.
    known = np.where(np.isfinite(cosines), cosines, 0.0)
    assert (known[found] >= profile.coarse_threshold).all()


AUTHORED_ONLY = RetrievalProfile(
    coarse_threshold=-1.0,
    authority_recency_weight=0.0,
    authority_frequency_weight=0.0,
    authority_authored_weight=1.0,
)
"""Authority is what is passed as authored, and the first pass lets everything through."""


def second_pass(
    cosines: list[float], omegas: list[float], coverage: list[float], gain: float, floor: float
) -> NDArray[np.float64]:
    """Return the scores by row."""
    none = np.zeros(len(cosines), dtype=np.int64)
    profile = AUTHORED_ONLY.replaced(keyword_gain=gain, authority_floor=floor)
    rows, scores = score_two_pass(
        np.array(cosines), none, NOW_US, none, 0, np.array(omegas), np.array(coverage), profile, 10
    )
    assert rows.size == len(cosines)
    return scores[np.argsort(rows)]


@given(st.floats(-1, 1), share, share, kappa, share)
def test_two_pass_is_the_formula(
    cosine: float, omega: float, coverage: float, gain: float, floor: float
) -> None:
    found = second_pass([cosine], [omega], [coverage], gain, floor)
    factor = floor + (1 - floor) * omega
    naive = factor * max(cosine, 0.0) * (1 + gain * coverage) / (1 + gain)
    assert found.tolist() == pytest.approx([naive], abs=1e-12)


@given(st.floats(-1, 1), share, share)
def test_without_kappa_only_meaning_and_authority_count(
    cosine: float, omega: float, coverage: float
) -> None:
    with_words, without = (second_pass([cosine], [omega], [m], 0.0, 0.0) for m in (coverage, 0.0))
    assert with_words.tolist() == without.tolist() == [omega * max(cosine, 0.0)]


@given(share, share, share, share, kappa, share)
def test_two_pass_rises_with_meaning_authority_and_words(
    cosine: float, omega: float, one: float, other: float, gain: float, floor: float
) -> None:
    low, high = sorted((one, other))
    for values in (
        ([low, high], [omega] * 2, [cosine] * 2),
        ([cosine] * 2, [low, high], [omega] * 2),
        ([cosine] * 2, [omega] * 2, [low, high]),
    ):
        scores = second_pass(*values, gain, floor)
        assert scores[1] >= scores[0] - 1e-12


@given(age, age, st.integers(0, 10**6), st.integers(0, 10**6), share, share, profiles)
def test_authority_falls_with_age_and_rises_with_use_and_authorship(
    age_one: float,
    age_other: float,
    uses_one: int,
    uses_other: int,
    authored_one: float,
    authored_other: float,
    profile: RetrievalProfile,
) -> None:
    new, old = sorted((age_one, age_other))
    few, many = sorted((uses_one, uses_other))
    little, much = sorted((authored_one, authored_other))
    omegas = authority(
        np.array([old, new, new, new]),
        np.array([few, few, many, many]),
        10**6,
        np.array([little, little, little, much]),
        profile,
    )
    assert (np.diff(omegas) >= -1e-12).all()


@given(st.integers(0, 10**6), profiles)
def test_without_any_access_frequency_says_nothing(count: int, profile: RetrievalProfile) -> None:
    none, counted = (
        authority(np.zeros(1), np.array([n]), 0, np.zeros(1), profile) for n in (0, count)
    )
    assert none.tolist() == counted.tolist()


@given(st.lists(anything, min_size=3, max_size=3))
def test_weights_end_on_the_unit_sum(weights: list[float]) -> None:
    found = convex_weights(weights, (0.5, 0.2, 0.3))
    assert lies_in(found, 0.0, 1.0)
    assert math.fsum(found) == pytest.approx(1.0)


@given(st.lists(anything))
def test_what_is_no_number_is_nothing(values: list[float]) -> None:
    naive = [min(max(v, 0.0), 1.0) if math.isfinite(v) else 0.0 for v in values]
    assert unit_of(np.array(values, dtype=np.float64)).tolist() == naive


@given(st.floats(0, 1e300), st.floats(0, 1e308))
def test_decay_is_finite_for_any_age_and_rate(age_s: float, per_s: float) -> None:
    assert lies_in(decayed(np.array([0.0, age_s]), per_s), 0.0, 1.0)


words = st.sampled_from(["refund", "invoice", "Berlin", "退款", "врач", "the", "billing-api"])
texts = st.lists(words, max_size=6).map(" ".join)


@given(st.lists(texts, min_size=1, max_size=8), texts)
def test_coverage_equals_counting_the_words_of_every_text(contents: list[str], query: str) -> None:
    postings = build_postings(encode_tokens(tokenize(content)) for content in contents)
    positions = np.arange(len(contents))[::-1].astype(np.int64)
    found = keyword_coverage(tokenize(query), postings.ranges, postings.positions, positions)
    keywords = set(tokenize(query))
    naive = [len(keywords & set(tokenize(contents[p]))) / max(len(keywords), 1) for p in positions]
    assert found.tolist() == naive
