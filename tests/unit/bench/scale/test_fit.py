"""Exponents come back from values that were made with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.scale.fit import exponent, extrapolate


@given(st.floats(0.1, 3.0), st.floats(0.01, 1e6))
def test_the_exponent_of_a_power_is_found_and_carries_on(slope: float, factor: float) -> None:
    sizes = [10_000, 100_000, 1_000_000]
    values = [factor * size**slope for size in sizes]
    found = exponent(sizes, values)
    assert found == pytest.approx(slope, rel=1e-6)
    assert extrapolate(sizes[0], values[0], slope, sizes[2]) == pytest.approx(values[2], rel=1e-6)


def test_one_point_says_nothing_and_a_stage_that_took_no_time_is_left_out() -> None:
    assert exponent([10], [1.0]) is None
    assert exponent([10, 100], [0.0, 1.0]) is None
    assert exponent([10, 100, 1000], [0.0, 1.0, 10.0]) == pytest.approx(1.0)
