from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest

from noctuary.evaluate.statistics import (
    Interval,
    Resampling,
    bootstrap_means,
    chunks,
    column_intervals,
    mean_interval,
)

stats: Any = importlib.import_module("scipy.stats")


def interval(found: Interval | None) -> Interval:
    assert found is not None
    return found


def test_the_resampling_distribution_of_two_values_is_the_binomial_one() -> None:
    means = bootstrap_means(np.array([[0.0], [1.0]]), Resampling(40_000, seed=1))[:, 0]
    shares = [float(np.mean(means == value)) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_the_interval_of_a_symmetric_sample_is_the_normal_one() -> None:
    n = 1000
    values = np.tile([0.0, 1.0], n // 2)
    found = interval(mean_interval(values))
    half_width = 1.959964 * 0.5 / math.sqrt(n)
    assert found.mean == 0.5
    assert found.low == pytest.approx(0.5 - half_width, rel=0.01)
    assert found.high == pytest.approx(0.5 + half_width, rel=0.01)
    assert found.n == n


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


def test_skew_moves_the_interval_off_the_plain_percentiles() -> None:
    values = np.array([0.0] * 18 + [1.0] * 2)
    means = bootstrap_means(values[:, None])
    plain_low, plain_high = np.quantile(means, [0.025, 0.975])
    found = interval(mean_interval(values))
    assert (found.low, found.high) != (plain_low, plain_high)
    assert found.high >= plain_high


def test_a_paired_interval_is_over_the_differences() -> None:
    rng = np.random.default_rng(11)
    baseline = rng.uniform(0.0, 1.0, size=200)
    ours = baseline + 0.1 + rng.normal(0.0, 0.01, size=200)
    paired = interval(mean_interval(ours - baseline))
    assert paired.mean == pytest.approx(0.1, abs=0.003)
    assert paired.high - paired.low < 0.005  # unpaired it would be about 0.11 wide
    assert paired.excludes_zero
    assert interval(mean_interval(baseline - ours)).excludes_zero


def test_identical_runs_do_not_differ() -> None:
    values = np.array([0.0, 0.3, 1.0])
    found = interval(mean_interval(values - values))
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)
    assert not found.excludes_zero


def test_the_same_seed_gives_the_same_interval_and_another_seed_nearly_the_same() -> None:
    values = np.random.default_rng(2).uniform(size=50)
    first, again, other = (interval(mean_interval(values, Resampling(seed=s))) for s in (1, 1, 2))
    assert first == again
    assert other != first
    assert other.low == pytest.approx(first.low, abs=0.01)


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).uniform(size=(30, 2))
    whole = bootstrap_means(values, Resampling(500))
    monkeypatch.setattr("noctuary.evaluate.statistics._CHUNK_CELLS", 90)
    assert np.allclose(bootstrap_means(values, Resampling(500)), whole, atol=1e-12)


@pytest.mark.parametrize(("total", "cells"), [(10, 900_000), (3, 5_000_000), (10_000, 7), (1, 1)])
def test_chunks_cover_all_draws_within_memory(total: int, cells: int) -> None:
    sizes = chunks(total, cells)
    assert sum(sizes) == total
    assert all(size == 1 or size * cells <= 2_000_000 for size in sizes)


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    assert mean_interval(np.array([0.4])) is None
    with pytest.raises(ValueError, match="at least one query"):
        mean_interval(np.array([]))


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="expected finite values"):
        mean_interval(np.array([0.0, math.nan]))
    with pytest.raises(ValueError, match="expected finite values"):
        column_intervals(np.array([[0.0, 1.0], [math.inf, 0.0]]))
