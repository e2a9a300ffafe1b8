from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.statistics.bootstrap import Interval
from noctuary.reports.numbers import (
    as_count,
    as_interval,
    as_mean,
    as_p,
    as_percent,
    as_signed,
)


def plain(text: str) -> float:
    return float(text.replace("\u2212", "-"))


@given(st.floats(-1, 1))
def test_numbers_are_rounded_to_three_decimals_and_nothing_else(value: float) -> None:
    for text in (as_mean(value), as_signed(value)):
        assert plain(text) == pytest.approx(value, abs=0.0005 + 1e-12)
        assert "-" not in text, "a hyphen is no minus"


@given(st.floats(-1, 1).filter(lambda value: abs(value) >= 0.0006))
def test_differences_carry_their_sign(value: float) -> None:
    assert as_signed(value)[0] == ("+" if value > 0 else "\u2212")


def test_a_difference_that_rounds_to_zero_has_no_sign() -> None:
    assert as_signed(-0.0004) == as_signed(0.0004) == as_signed(0.0) == "0.000"


@given(st.floats(0, 1))
def test_p_values_never_look_like_zero(value: float) -> None:
    text = as_p(value)
    if text == "<0.0001":
        assert value < 0.0001
    else:
        assert float(text) > 0
        assert float(text) == pytest.approx(value, abs=0.00005 + 1e-12)


def test_intervals_name_both_ends() -> None:
    assert as_interval(Interval(0.5, 0.4, 0.6, 9)) == "0.400 to 0.600"
    assert as_interval(Interval(0.0, -0.1, 0.1, 9), signed=True) == "\u22120.100 to +0.100"


def test_what_is_missing_says_so() -> None:
    assert {as_mean(None), as_signed(None), as_interval(None)} == {"none"}


def test_counts_and_percentages() -> None:
    assert as_count(1234567) == "1\u202f234\u202f567"
    assert as_percent(0.95) == "95%"
