from __future__ import annotations

import numpy as np
import pytest

from noctuary.evaluate.statistics import holm


def test_the_smallest_is_multiplied_by_the_number_of_tests() -> None:
    # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04 raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], abs=1e-15)


def test_one_test_needs_no_correction_and_none_is_none() -> None:
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_adjusted_values_are_capped_at_one() -> None:
    assert holm([0.6, 0.7, 1.0]) == [1.0, 1.0, 1.0]


def test_equal_values_stay_equal() -> None:
    assert holm([0.01, 0.01, 0.01]) == pytest.approx([0.03, 0.03, 0.03], abs=1e-15)


def test_false_alarms_of_the_family_stay_below_the_level() -> None:
    rng = np.random.default_rng(9)
    families = rng.uniform(size=(4000, 8))
    raw = float(np.mean(families.min(axis=1) < 0.05))
    adjusted = float(np.mean([min(holm(family.tolist())) < 0.05 for family in families]))
    assert raw == pytest.approx(1 - 0.95**8, abs=0.03)  # a third of the families, uncorrected
    assert adjusted == pytest.approx(1 - (1 - 0.05 / 8) ** 8, abs=0.012)
