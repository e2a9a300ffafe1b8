from __future__ import annotations

import math

import numpy as np
import pytest

from noctuary.evaluate.statistics import Resampling, minimum_detectable_difference


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


def test_the_mean_does_not_matter() -> None:
    values = np.random.default_rng(1).normal(size=40)
    assert minimum_detectable_difference(values + 5.0) == pytest.approx(
        minimum_detectable_difference(values), abs=1e-12
    )


def test_below_two_queries_there_is_none_and_without_variation_it_is_zero() -> None:
    assert minimum_detectable_difference(np.array([])) is None
    assert minimum_detectable_difference(np.array([0.3])) is None
    assert minimum_detectable_difference(np.full(7, 0.1)) == 0.0  # std of it is 1e-17


def test_a_difference_of_that_size_is_found_as_often_as_promised() -> None:
    rng = np.random.default_rng(10)
    n, trials, deviation = 100, 4000, 0.4
    reference = rng.normal(size=n)
    reference = (reference - reference.mean()) / reference.std(ddof=1) * deviation
    effect = minimum_detectable_difference(reference)
    assert effect is not None
    samples = rng.normal(effect, deviation, size=(trials, n))
    errors = samples.std(axis=1, ddof=1) / math.sqrt(n)
    found = float(np.mean(np.abs(samples.mean(axis=1)) > 1.959964 * errors))
    # Binomial standard error is 0.006.
    assert found == pytest.approx(0.8, abs=0.025)


def test_bad_input_is_named() -> None:
    values = np.array([0.0, 1.0])
    with pytest.raises(ValueError, match="expected finite values"):
        minimum_detectable_difference(np.array([0.0, math.nan]))
    with pytest.raises(ValueError, match=r"got shape \(2, 1\)"):
        minimum_detectable_difference(values[:, None])
