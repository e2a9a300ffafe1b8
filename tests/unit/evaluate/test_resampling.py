from __future__ import annotations

import numpy as np
import pytest

from noctuary.evaluate.metrics import Mean
from noctuary.evaluate.statistics import (
    Interval,
    Resampling,
    column_intervals,
    interval_json,
    mean_interval,
)

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


def test_a_single_row_has_no_interval() -> None:
    assert column_intervals(np.ones((1, 3)), FAST) == [None, None, None]


def test_confidence_widens_the_interval() -> None:
    values = np.random.default_rng(4).random((30, 1))
    narrow = column_intervals(values, Resampling(draws=400, confidence=0.5))[0]
    wide = column_intervals(values, Resampling(draws=400, confidence=0.99))[0]
    assert narrow is not None
    assert wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high


def test_interval_ends_survive_json() -> None:
    found = Interval(0.5, 0.25, 0.75, 8)
    assert interval_json(found) == {"low": 0.25, "high": 0.75}
    assert Mean.from_json(Mean(0.5, found, 8).to_json()) == Mean(0.5, found, 8)
    assert interval_json(None) == {"low": None, "high": None}
    assert Mean.from_json(Mean(0.5, None, 8).to_json()).interval is None
