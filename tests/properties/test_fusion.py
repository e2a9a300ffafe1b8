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
def test_rrf_lies_in_the_unit_interval(
    legs: tuple[NDArray[np.int64], NDArray[np.int64]], weighed: tuple[float, float], k: int
) -> None:
    scores = fuse_rrf(pool_candidates(legs), legs, weighed, k)
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1 + 1e-12)).all()


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
    assert fuse_rrf(pool, legs, weighed, k).tolist() == pytest.approx(naive)


@given(ranking, st.floats(1e-6, 1e6), st.integers(1, 1000))
def test_rrf_of_a_single_leg_keeps_its_order(
    leg: NDArray[np.int64], weighed: float, k: int
) -> None:
    pool = pool_candidates([leg])
    scores = fuse_rrf(pool, (leg, np.empty(0, dtype=np.int64)), (weighed, 1.0), k)
    assert pool[order_of(scores)].tolist() == leg.tolist()


@given(rankings, weights, st.integers(1, 1000), st.floats(1e-3, 1e3))
def test_rrf_does_not_see_the_order_of_legs_or_the_scale_of_weights(
    legs: tuple[NDArray[np.int64], NDArray[np.int64]],
    weighed: tuple[float, float],
    k: int,
    factor: float,
) -> None:
    assume(all(w == 0 or w > 1e-3 for w in weighed))
    pool = pool_candidates(legs)
    scores = fuse_rrf(pool, legs, weighed, k)
    assert fuse_rrf(pool, legs[::-1], weighed[::-1], k).tolist() == pytest.approx(scores.tolist())
    scaled = (weighed[0] * factor, weighed[1] * factor)
    assert fuse_rrf(pool, legs, scaled, k).tolist() == pytest.approx(scores.tolist())


@given(columns(leg_score, leg_score), weights)
def test_convex_lies_in_the_unit_interval(
    legs: list[NDArray[np.float64]], weighed: tuple[float, float]
) -> None:
    scores = fuse_convex(legs, weighed)
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores <= 1)).all()


@given(columns(unit, unit), weights, st.floats(1e-3, 1e3))
def test_convex_does_not_see_the_scale_of_a_leg_or_of_the_weights(
    legs: list[NDArray[np.float64]], weighed: tuple[float, float], factor: float
) -> None:
    assume(all(w == 0 or w > 1e-3 for w in weighed))
    assume(all(leg.max(initial=0.0) == 0 or leg.max() > 1e-6 for leg in legs))
    scores = fuse_convex(legs, weighed).tolist()
    assert fuse_convex([legs[0] * factor, legs[1]], weighed).tolist() == pytest.approx(scores)
    scaled = (weighed[0] * factor, weighed[1] * factor)
    assert fuse_convex(legs, scaled).tolist() == pytest.approx(scores)


@given(columns(unit, unit), weights, st.randoms(use_true_random=False))
def test_convex_treats_candidates_alike_wherever_they_stand(
    legs: list[NDArray[np.float64]], weighed: tuple[float, float], random: object
) -> None:
    places = np.arange(legs[0].size)
    random.shuffle(places)  # pyright: ignore[reportAttributeAccessIssue]
    shuffled = fuse_convex([leg[places] for leg in legs], weighed)
    assert shuffled.tolist() == fuse_convex(legs, weighed)[places].tolist()


@given(columns(st.floats(0, 1e4, width=32)), st.floats(1e-6, 1e6))
def test_convex_of_a_single_leg_keeps_its_order_and_its_ties(
    legs: list[NDArray[np.float64]], weighed: float
) -> None:
    (leg,) = legs
    assume(leg.max(initial=0.0) == 0 or leg.max() > 1e-30)
    fused = fuse_convex([leg, np.zeros(leg.size)], (weighed, 1.0))
    assert order_of(fused) == order_of(leg)
    assert fused.max(initial=1.0) == 1.0 or leg.max() == 0.0


@given(columns(unit, unit), st.floats(0, 1e6))
def test_graph_lies_in_the_unit_interval_and_never_lowers_a_rank_by_itself(
    legs: list[NDArray[np.float64]], weighed: float
) -> None:
    base, arriving = legs
    scores = add_graph(base, arriving, weighed)
    assert ((scores >= 0) & (scores <= 1 + 1e-12)).all()
    # Among candidates that nothing reached, the order is that of the base.
    untouched = arriving == 0
    assert (np.diff(scores[untouched][order_of(base[untouched])]) <= 1e-12).all()


@given(columns(unit, unit))
def test_graph_off_means_off(legs: list[NDArray[np.float64]]) -> None:
    base, arriving = legs
    assert add_graph(base, arriving, 0.0).tobytes() == base.tobytes()
    assert add_graph(base, np.zeros(base.size), 1.0).tobytes() == base.tobytes()


@given(columns(unit, unit), unit)
def test_importance_only_takes_away_and_at_most_its_share(
    legs: list[NDArray[np.float64]], prior: float
) -> None:
    scores, importance = legs[0], legs[1].astype(np.float32)
    weighed = apply_importance(scores, importance, prior)
    assert (weighed <= scores + 1e-12).all()
    assert (weighed >= scores * (1 - prior) - 1e-12).all()


@given(columns(unit, unit))
def test_importance_off_means_off(legs: list[NDArray[np.float64]]) -> None:
    scores, importance = legs
    assert (
        apply_importance(scores, importance.astype(np.float32), 0.0).tobytes() == scores.tobytes()
    )


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=12))
def test_what_is_no_number_counts_as_in_the_plain_form(values: list[float]) -> None:
    scores = np.array(values, dtype=np.float64)
    plain = np.maximum(np.nan_to_num(scores), 0.0)
    peak = float(plain.max())
    expected = np.minimum(plain / peak, 1.0) if peak > 0 else np.zeros_like(plain)
    assert np.array_equal(fuse_convex([scores], (1.0,)), expected)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=2), st.floats(0.01, 1))
def test_words_are_trusted_by_the_share_that_they_hold(shares: list[float], full: float) -> None:
    less, more = (trust_words(share, full) for share in sorted(shares))
    assert 0.0 <= less <= more <= 1.0
    assert trust_words(full, full) == 1.0
    assert trust_words(full / 2, full) == pytest.approx(0.25)
