from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US
from noctuary.usage.reader import decayed, idle_days, last_accessed, ltp_multiplier, ltp_score

DAY_US = 86_400_000_000
COUNTS = st.lists(st.integers(0, 2**62), min_size=1, max_size=30)
MAX = st.floats(1.01, 50.0)
DAYS = st.floats(0.0, 1e6)
LAMBDA = st.floats(0.0, 10.0)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(0, 1.0), (1, 1.20794), (2, 1.32958), (5, 1.53753), (9, 1.69078), (26, 1.98875),
     (27, 1.99966), (28, 2.0), (1000, 2.0)],
)  # fmt: skip
def test_the_reference_s_multiplier(n: int, expected: float) -> None:
    """MemPalace #441: clamp(1 + 0.3 ln(1 + n), 1, 2), about 2 at 27 retrievals."""
    assert ltp_multiplier(np.array([n]), 2.0)[0] == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize(
    ("multiplier", "max_boost", "expected"),
    [(1.0, 2.0, 0.0), (1.3, 2.0, 0.3), (2.0, 2.0, 1.0), (2.0, 3.0, 0.5), (1.0, 3.0, 0.0)],
)
def test_the_score_starts_at_nothing(multiplier: float, max_boost: float, expected: float) -> None:
    assert ltp_score(np.array([multiplier]), max_boost)[0] == pytest.approx(expected)


def test_decay_is_the_rfc_s() -> None:
    faded = decayed(np.array([0.18, 0.18, 0.5]), np.array([0.0, 47.0, 100.0]), 0.01)
    assert faded == pytest.approx([0.18, 0.18 * math.exp(-0.47), 0.5 / math.e])
    assert decayed(np.array([0.7]), np.array([1e9]), 0.0)[0] == 0.7


def test_a_memory_never_recalled_was_last_of_use_when_it_was_made() -> None:
    last_us = np.array([5 * DAY_US, UNDATED_US, UNDATED_US])
    created_us = np.array([1 * DAY_US, 2 * DAY_US, UNDATED_US])
    accessed = last_accessed(last_us, created_us)
    assert accessed.tolist() == [5 * DAY_US, 2 * DAY_US, UNDATED_US]
    assert idle_days(accessed, 10 * DAY_US).tolist() == [5.0, 8.0, 0.0]
    assert idle_days(np.array([11 * DAY_US]), 10 * DAY_US).tolist() == [0.0]


@given(COUNTS, MAX)
def test_multiplier_and_score_keep_their_ranges_and_rise_with_use(
    counts: list[int], max_boost: float
) -> None:
    multiplier = ltp_multiplier(np.array(sorted(counts), dtype=np.int64), max_boost)
    score = ltp_score(multiplier, max_boost)
    assert np.all((multiplier >= 1.0) & (multiplier <= max_boost))
    assert np.all((score >= 0.0) & (score <= 1.0))
    assert np.all(np.diff(multiplier) >= 0.0)
    assert np.all(np.diff(score) >= 0.0)


@given(st.floats(0.0, 1.0), st.lists(DAYS, min_size=1, max_size=20), LAMBDA)
def test_decay_keeps_the_range_and_falls_with_time(
    score: float, days: list[float], decay_lambda: float
) -> None:
    faded = decayed(np.full(len(days), score), np.array(sorted(days)), decay_lambda)
    assert np.all((faded >= 0.0) & (faded <= score))
    assert np.all(np.diff(faded) <= 0.0)


@given(
    st.lists(st.integers(-(2**63), 2**62), min_size=1, max_size=20),
    st.integers(0, 2**62),
)
def test_idle_days_are_finite_and_never_negative(moments: list[int], now_us: int) -> None:
    days = idle_days(np.array(moments, dtype=np.int64), now_us)
    assert np.all(np.isfinite(days))
    assert np.all(days >= 0.0)
