from __future__ import annotations

import importlib
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.evaluate.statistics import (
    Interval,
    Resampling,
    bootstrap_means,
    chunks,
    column_intervals,
    holm,
    mean_interval,
    minimum_detectable_difference,
    permutation_p_values,
)

stats: Any = importlib.import_module("scipy.stats")


def interval(found: Interval | None) -> Interval:
    assert found is not None
    return found


def p_value(values: list[float] | NDArray[np.float64], draws: int = 10_000, seed: int = 1) -> float:
    column = np.asarray(values, dtype=np.float64)[:, None]
    return float(permutation_p_values(column, Resampling(draws, seed))[0])


SEEDED = np.random.default_rng(2).normal(0.3, 1.0, size=50)


def p_value_of_seed(seed: int) -> float:
    return p_value(SEEDED, seed=seed)


def low_end_of_seed(seed: int) -> float:
    return interval(mean_interval(SEEDED, Resampling(seed=seed))).low


def test_the_interval_covers_the_truth_as_often_as_it_claims() -> None:
    rng = np.random.default_rng(3)
    trials = 300
    covered = 0
    for trial in range(trials):
        values = rng.exponential(1.0, size=60)  # skewed on purpose, true mean 1
        found = interval(mean_interval(values, Resampling(800, seed=trial)))
        covered += found.low <= 1.0 <= found.high
    # Binomial standard error is 0.013; small skewed samples cover slightly less than 95 %.
    assert 0.90 <= covered / trials <= 0.98


def test_bca_agrees_with_scipy_on_a_skewed_sample() -> None:
    values = np.random.default_rng(5).exponential(1.0, size=80)
    found = interval(mean_interval(values))
    theirs = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="BCa", rng=7)
    width = found.high - found.low
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)


@pytest.mark.parametrize(
    ("ones", "zeros"), [(8, 8), (4, 12), (14, 6)], ids=["symmetric", "few", "many"]
)
def test_half_of_the_ties_count_as_below(ones: int, zeros: int) -> None:
    """Metrics of few queries are discrete: a fifth of the resampled means equals the mean."""
    values = np.repeat([1.0, 0.0], [ones, zeros])
    found = interval(mean_interval(values))
    theirs = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="BCa", rng=7)
    ends = theirs.confidence_interval
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), abs=1e-9)
    if ones == zeros:
        assert found.low + found.high == pytest.approx(1.0)


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).uniform(size=(30, 2))
    whole = bootstrap_means(values, Resampling(500))
    monkeypatch.setattr("noctuary.evaluate.statistics._CHUNK_CELLS", 90)
    assert np.allclose(bootstrap_means(values, Resampling(500)), whole, atol=1e-12)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    assert mean_interval(np.array([0.4])) is None


@pytest.mark.parametrize(
    ("function", "values", "says"),
    [
        (mean_interval, np.array([]), "at least one query"),
        (mean_interval, np.array([0.0, math.nan]), "expected finite values"),
        (column_intervals, np.array([[0.0, 1.0], [math.inf, 0.0]]), "expected finite values"),
        (permutation_p_values, np.zeros((0, 2)), "at least one query"),
        (permutation_p_values, np.zeros(3), r"in 2 dimensions, got shape \(3,\)"),
        (permutation_p_values, np.array([[math.nan]]), "expected finite values"),
        (minimum_detectable_difference, np.array([0.0, math.nan]), "expected finite values"),
        (minimum_detectable_difference, np.zeros((2, 1)), r"got shape \(2, 1\)"),
    ],
)
def test_bad_input_is_named(
    function: Callable[[NDArray[np.float64]], object], values: NDArray[np.float64], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        function(values)


@pytest.mark.parametrize("draw", [p_value_of_seed, low_end_of_seed])
def test_the_same_seed_gives_the_same_number_and_another_seed_nearly_the_same(
    draw: Callable[[int], float],
) -> None:
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert draw(1) == pytest.approx(draw(2), abs=0.02)


@pytest.mark.parametrize(("total", "cells"), [(10, 900_000), (3, 5_000_000), (10_000, 7), (1, 1)])
def test_chunks_cover_all_draws_within_memory(total: int, cells: int) -> None:
    sizes = chunks(total, cells)
    assert sum(sizes) == total
    assert all(size == 1 or size * cells <= 2_000_000 for size in sizes)


def test_the_smallest_is_multiplied_by_the_number_of_tests() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04 raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-15)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        # Sums of +-1 +-2 +-4 are 7, 5, 3, 1 and their opposites: how many reach the observed one?
        ([1.0, 2.0, 4.0], 2 / 8),
        ([-1.0, -2.0, -4.0], 2 / 8),
        ([1.0, -2.0, 4.0], 6 / 8),
        # The sign test: 2 * (C(10,0) + C(10,1)) / 2^10; many sums tie, and not in floats.
        ([0.1] * 9 + [-0.1], 22 / 1024),
        ([0.1, 0.2, -0.3, 0.4], 10 / 16),
        # What does not differ has no sign to flip.
        ([0.0] * 500 + [1.0, 2.0, 4.0], 2 / 8),
        ([0.7], 1.0),
        ([0.0] * 50, 1.0),
        # Drawn, not enumerated: never zero.
        ([1.0] * 60, 1 / 10_001),
    ],
)
def test_the_p_value_is_the_share_of_flips_that_are_as_extreme(
    differences: list[float], expected: float
) -> None:
    assert p_value(differences) == pytest.approx(expected, abs=1e-15)


def test_enumeration_ends_where_the_draws_do() -> None:
    values = [1.0] * 4
    assert p_value(values, draws=16) == 2 / 16
    drawn = p_value(values, draws=15)
    assert (drawn * 16) == pytest.approx(round(drawn * 16), abs=1e-12)  # (count + 1) / (15 + 1)


def test_drawn_p_values_are_near_the_enumerated_ones() -> None:
    values = np.random.default_rng(8).normal(0.25, 1.0, size=16)
    exact = p_value(values, draws=2**16)
    drawn = p_value(values, draws=20_000)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


def test_columns_share_the_flips_and_are_judged_apart() -> None:
    rng = np.random.default_rng(5)
    column = rng.normal(0.2, 1.0, size=40)
    found = permutation_p_values(np.column_stack([column, -column, 3.0 * column, np.zeros(40)]))
    assert found.shape == (4,)
    assert found[0] == found[1] == found[2]
    assert found[3] == 1.0
    assert found[0] == p_value(column, seed=20_260_101)


@pytest.mark.parametrize("n", [10, 40])
def test_chunks_do_not_change_the_p_values(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(0.2, 1.0, size=(n, 3))
    whole = permutation_p_values(values, Resampling(2000))
    monkeypatch.setattr("noctuary.evaluate.statistics._CHUNK_CELLS", 7 * n)
    assert permutation_p_values(values, Resampling(2000)).tolist() == whole.tolist()


def test_memory_stays_bounded_however_many_queries_there_are() -> None:
    values = np.random.default_rng(2).normal(size=(20_000, 2))
    tracemalloc.start()
    try:
        permutation_p_values(values, Resampling(1000))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 60e6  # the whole flip matrix would be 160 MB


def test_the_p_value_agrees_with_scipys_permutation_test() -> None:
    values = np.random.default_rng(6).normal(0.4, 1.0, size=11)
    theirs = stats.permutation_test(
        (values, np.zeros(11)),
        lambda x, y, axis: np.mean(x - y, axis=axis),  # pyright: ignore[reportUnknownLambdaType]
        permutation_type="samples",
        n_resamples=math.inf,
        vectorized=True,
    )
    assert p_value(values) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_the_formula_by_hand() -> None:
    # Sample variance of 50 times +1 and 50 times -1: 100 / 99.
    values = np.tile([1.0, -1.0], 50)
    expected = (1.959963984540054 + 0.8416212335729143) * math.sqrt(100 / 99) / 10
    assert minimum_detectable_difference(values) == pytest.approx(expected, abs=1e-12)


def test_a_stricter_test_and_more_power_ask_for_more() -> None:
    values = np.tile([1.0, -1.0], 50)
    standard_error = math.sqrt(100 / 99) / 10
    assert minimum_detectable_difference(
        values, Resampling(confidence=0.99, power=0.9)
    ) == pytest.approx((2.5758293035489004 + 1.2815515655446004) * standard_error, abs=1e-12)
    assert minimum_detectable_difference(values, Resampling(power=0.5)) == pytest.approx(
        1.959963984540054 * standard_error, abs=1e-12
    )


def test_below_two_queries_there_is_none_and_without_variation_it_is_zero() -> None:
    assert minimum_detectable_difference(np.array([])) is None
    assert minimum_detectable_difference(np.array([0.3])) is None
    assert minimum_detectable_difference(np.full(7, 0.1)) == 0.0  # std of it is 1e-17


FAST = Resampling(draws=400, seed=3)


def test_a_column_has_the_interval_it_would_have_alone() -> None:
    values = np.random.default_rng(1).random((40, 5))
    together = column_intervals(values, FAST)
    for column, found in enumerate(together):
        alone = mean_interval(values[:, column], FAST)
        assert found is not None
        assert alone is not None
        assert (found.mean, found.n) == (alone.mean, 40)
        assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=1e-12)
