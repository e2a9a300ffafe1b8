from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.recall.legs import (
    add_graph,
    apply_importance,
    fuse_convex,
    fuse_rrf,
    pool_candidates,
    trust_words,
)

SIZE = 12
unit = st.floats(0, 1)
weight = st.floats(0, 1e6)
# Scores of real legs: BM25 sums and cosines; the property holds for any float32.
leg_score = st.floats(width=32, allow_nan=True, allow_infinity=False)
ranking = st.permutations(range(SIZE)).flatmap(
    lambda order: st.integers(0, SIZE).map(lambda n: np.array(order[:n], dtype=np.int64))
)
rankings = st.tuples(ranking, ranking)
weights = st.tuples(weight, weight)


def columns(*kinds: st.SearchStrategy[float]) -> st.SearchStrategy[list[NDArray[np.float64]]]:
    rows = st.lists(st.tuples(*kinds), max_size=SIZE)
    return rows.map(lambda table: [np.array([row[i] for row in table]) for i in range(len(kinds))])


def order_of(scores: NDArray[np.float64]) -> list[int]:
    return np.argsort(-scores, kind="stable").tolist()


@given(rankings, weights, st.integers(1, 1000))
def test_rrf_equals_the_sum_over_legs(
    legs: tuple[NDArray[np.int64], NDArray[np.int64]], weighed: tuple[float, float], k: int
) -> None:
    pool = pool_candidates(legs)
    live = [(leg.tolist(), w) for leg, w in zip(legs, weighed, strict=True) if w > 0 and leg.size]
    best = sum(w / (k + 1) for _, w in live)
    naive = [
        sum(w / (k + 1 + leg.index(p)) for leg, w in live if p in leg) / best if best > 0 else 0.0
        for p in pool.tolist()
    ]
    scores = fuse_rrf(pool, legs, weighed, k)
    assert scores.tolist() == pytest.approx(naive)
    assert ((scores >= 0) & (scores <= 1 + 1e-12)).all()


@given(columns(leg_score, leg_score), weights)
def test_convex_is_the_mean_of_the_legs_by_weight(
    legs: list[NDArray[np.float64]], weighed: tuple[float, float]
) -> None:
    assume(all(w == 0 or w > 1e-3 for w in weighed))
    scores = fuse_convex(legs, weighed)
    assert ((scores >= 0) & (scores <= 1)).all()
    clipped = [np.maximum(np.nan_to_num(leg), 0.0) for leg in legs]
    live = [(leg, w) for leg, w in zip(clipped, weighed, strict=True) if w > 0 and leg.any()]
    total = sum(w for _, w in live)
    naive = sum((w / total * (leg / leg.max()) for leg, w in live), np.zeros(legs[0].size))
    assert scores.tolist() == pytest.approx(naive.tolist())


@given(columns(st.floats(0, 1e4, width=32)), st.floats(1e-6, 1e6))
def test_convex_of_a_single_leg_keeps_its_order_and_its_ties(
    legs: list[NDArray[np.float64]], weighed: float
) -> None:
    (leg,) = legs
    assume(leg.max(initial=0.0) == 0 or leg.max() > 1e-30)
    fused = fuse_convex([leg, np.zeros(leg.size)], (weighed, 1.0))
    assert order_of(fused) == order_of(leg)
    assert fused.max(initial=1.0) == 1.0 or leg.max() == 0.0


@given(columns(unit, unit), st.floats(0, 1e6), unit)
def test_graph_and_importance_are_the_formulas(
    legs: list[NDArray[np.float64]], weighed: float, prior: float
) -> None:
    base, other = legs
    scale = 1 + weighed * max(1.0, other.max(initial=0.0)) if other.any() else 1.0
    found = add_graph(base, other, weighed)
    assert found.tolist() == pytest.approx(((base + weighed * other) / scale).tolist())
    assert ((found >= 0) & (found <= 1 + 1e-12)).all()
    importance = other.astype(np.float32)
    naive = base * ((1 - prior) + prior * importance.astype(np.float64))
    assert apply_importance(base, importance, prior).tolist() == pytest.approx(naive.tolist())
    assert apply_importance(base, importance, 0.0).tobytes() == base.tobytes()


@given(columns(unit, unit))
def test_graph_off_means_off(legs: list[NDArray[np.float64]]) -> None:
    base, arriving = legs
    assert add_graph(base, arriving, 0.0).tobytes() == base.tobytes()
    assert add_graph(base, np.zeros(base.size), 1.0).tobytes() == base.tobytes()


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=12))
def test_what_is_no_number_counts_as_in_the_plain_form(values: list[float]) -> None:
    scores = np.array(values, dtype=np.float64)
    plain = np.maximum(np.nan_to_num(scores), 0.0)
    peak = float(plain.max())
    expected = np.minimum(plain / peak, 1.0) if peak > 0 else np.zeros_like(plain)
    assert np.array_equal(fuse_convex([scores], (1.0,)), expected)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=2), st.floats(0.01, 1))
def test_words_are_trusted_by_the_share_that_they_hold(shares: list[float], full: float) -> None:
    less, more = (trust_words(best, full) for best in sorted(shares))
    assert 0.0 <= less <= more <= 1.0
    assert trust_words(full, full) == 1.0
    assert trust_words(full / 2, full) == pytest.approx(0.5**8)
