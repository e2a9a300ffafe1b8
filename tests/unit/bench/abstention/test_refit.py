"""Fits that never see what they judge, against data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from bench.abstention.refit import fit, held_out

RNG = np.random.default_rng(3)
N = 4000


def drawn(slope: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    values = RNG.normal(size=(N, 1))
    chance = 1.0 / (1.0 + np.exp(-(slope * values[:, 0] + offset)))
    return values, RNG.uniform(size=N) < chance


def test_a_fit_finds_the_slope_that_made_the_data() -> None:
    features, answerable = drawn(2.0, 0.0)
    slope, offset = fit(features, answerable)
    assert slope == pytest.approx(2.0, abs=0.2)
    assert offset == pytest.approx(0.0, abs=0.15)


def test_both_kinds_weigh_the_same_however_many_there_are() -> None:
    features, answerable = drawn(2.0, 3.0)
    assert answerable.mean() > 0.8
    _, offset = fit(features, answerable)
    assert abs(offset) < 2.0


def test_a_group_is_judged_by_a_fit_that_never_saw_it() -> None:
    features, answerable = drawn(2.0, 0.0)
    groups = ["left"] * (N // 2) + ["right"] * (N // 2)
    # In one group the feature says the contrary: only the other one's fit can be so wrong there.
    features[: N // 2] *= -1.0
    chances, folds = held_out(features, answerable, groups)
    assert folds[:, 0].tolist() == pytest.approx([2.0, -2.0], abs=0.3)
    left = chances[: N // 2]
    assert left[answerable[: N // 2]].mean() < left[~answerable[: N // 2]].mean()


def test_what_separates_completely_stays_finite() -> None:
    features = np.array([[0.0], [0.1], [0.9], [1.0]])
    found = fit(features, np.array([False, False, True, True]))
    assert np.isfinite(found).all()
    assert found[0] > 0.0
