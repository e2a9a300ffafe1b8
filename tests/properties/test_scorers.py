from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.scorers import (
    authority,
    decayed,
    quality,
    score_hybrid,
    score_two_pass,
    unit_of,
)
from noctuary.recall.search import ages_s
from tests.support.lookups import NOW_US

Three = tuple[float, float, float]

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
    quality_penalty=share,
    coarse_depth=st.integers(1, 8),
    coarse_threshold=st.floats(-1, 1),
    authority_floor=share,
)


@st.composite
def weights(draw: st.DrawFn) -> tuple[float, float, float]:
    """Three shares that sum to 1."""
    first, second = sorted(draw(st.tuples(share, share)))
    return first, second - first, 1.0 - second


rates = st.tuples(rate, rate, rate)
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


@given(memories, weights(), rates, share)
def test_hybrid_scores_lie_in_the_unit_interval_whatever_comes_in(
    rows: list[tuple[float, int, int, float, int, float, float]],
    mixture: Three, per_s: Three, delta: float,
) -> None:  # fmt: skip
    cosines, created, scopes, confidences, *_ = columns(rows)
    assert lies_in(score_hybrid(cosines, created, NOW_US, scopes, mixture, per_s), 0.0, 1.0)
    assert lies_in(quality(confidences, delta), 0.0, 1.0)


@given(st.floats(-1, 1), past, st.integers(0, 2), weights(), rates)
def test_hybrid_is_the_formula(
    cosine: float, created: int, scope: int, mixture: Three, per_s: Three
) -> None:
    dates = np.array([created])
    found = score_hybrid(np.array([cosine]), dates, NOW_US, np.array([scope]), mixture, per_s)
    age_s = float(ages_s(dates, NOW_US)[0])
    parts = [max(cosine, 0.0), math.exp(-per_s[scope] * age_s), (1.0, 0.6, 0.3)[scope]]
    naive = sum(w * part for w, part in zip(mixture, parts, strict=True))
    assert found.tolist() == pytest.approx([naive], abs=1e-12)


@given(share, share)
def test_quality_is_the_formula(confidence: float, delta: float) -> None:
    found = quality(np.array([confidence]), delta)
    assert found.tolist() == pytest.approx([1 - delta * (1 - confidence)], abs=1e-12)


@given(memories, profiles, weights(), kappa, st.integers(0, 10), st.integers(0, 10**9))
def test_two_pass_scores_stay_below_authority_whatever_comes_in(
    rows: list[tuple[float, int, int, float, int, float, float]],
    profile: RetrievalProfile, shares: Three, gain: float, k: int, most: int,
) -> None:  # fmt: skip
    cosines, created, _, _, accesses, importance, coverage = columns(rows)
    found, scores = score_two_pass(
        cosines, created, NOW_US, accesses, most, importance, coverage, profile, k, shares, gain
    )
    omegas = authority(ages_s(created, NOW_US), accesses, most, importance, shares)
    assert lies_in(omegas, 0.0, 1.0)
    factors = profile.authority_floor + (1.0 - profile.authority_floor) * omegas
    assert lies_in(scores, 0.0, 1.0)
    assert (scores <= factors[found]).all()
    assert len(set(found.tolist())) == found.size <= max(profile.coarse_depth, k)
    # An infinite cosine counts as 0 and is compared as such.
    known = np.where(np.isfinite(cosines), cosines, 0.0)
    assert (known[found] >= profile.coarse_threshold).all()


AUTHORED_ONLY = (0.0, 0.0, 1.0)  # authority is what is passed as authored


@given(st.floats(-1, 1), share, share, kappa, share)
def test_two_pass_is_the_formula(
    cosine: float, omega: float, coverage: float, gain: float, floor: float
) -> None:
    # The first pass lets everything through.
    profile = RetrievalProfile(coarse_threshold=-1.0, authority_floor=floor)
    none = np.zeros(1, dtype=np.int64)
    _, found = score_two_pass(
        np.array([cosine]), none, NOW_US, none, 0, np.array([omega]), np.array([coverage]), profile,
        10, AUTHORED_ONLY, gain,
    )  # fmt: skip
    factor = floor + (1 - floor) * omega
    naive = factor * max(cosine, 0.0) * (1 + gain * coverage) / (1 + gain)
    assert found.tolist() == pytest.approx([naive], abs=1e-12)


@given(age, st.integers(0, 10**6), st.integers(0, 10**6), share, weights(), st.floats(0, 1))
def test_authority_is_the_formula(
    age_s: float, uses: int, most: int, authored: float, shares: Three, per_s: float
) -> None:
    found = authority(
        np.array([age_s]), np.array([uses]), most, np.array([authored]), shares, per_s
    )
    used = math.log1p(min(uses, most)) / math.log(2 + most) if most else 0.0
    parts = (math.exp(-per_s * age_s), used, authored)
    naive = sum(w * part for w, part in zip(shares, parts, strict=True))
    assert found.tolist() == pytest.approx([naive], abs=1e-12)


@given(st.lists(anything))
def test_what_is_no_number_is_nothing(values: list[float]) -> None:
    naive = [min(max(v, 0.0), 1.0) if math.isfinite(v) else 0.0 for v in values]
    assert unit_of(np.array(values, dtype=np.float64)).tolist() == naive


@given(st.floats(0, 1e300), st.floats(0, 1e308))
def test_decay_is_finite_for_any_age_and_rate(age_s: float, per_s: float) -> None:
    assert lies_in(decayed(np.array([0.0, age_s]), per_s), 0.0, 1.0)
