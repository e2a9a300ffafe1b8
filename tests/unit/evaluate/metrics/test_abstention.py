from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.evaluate.metrics import auroc, risk_coverage


def floats(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def test_auroc_is_the_share_of_pairs_in_the_right_order() -> None:
    assert auroc(floats(3.0, 4.0), floats(1.0, 2.0)) == 1.0
    assert auroc(floats(1.0, 2.0), floats(3.0, 4.0)) == 0.0
    # Pairs: 2>1, 2<3, 4>1, 4>3.
    assert auroc(floats(2.0, 4.0), floats(1.0, 3.0)) == 3 / 4


def test_a_tie_counts_half() -> None:
    assert auroc(floats(1.0), floats(1.0)) == 1 / 2
    # Pairs: 1=1, 1<2, 2>1, 2=2, 3>1, 3>2.
    assert auroc(floats(1.0, 2.0, 3.0), floats(1.0, 2.0)) == (0.5 + 0 + 1 + 0.5 + 1 + 1) / 6


def test_the_sides_may_differ_in_size_and_hold_infinities() -> None:
    assert auroc(floats(0.5), floats(-math.inf, 0.1, 0.9, math.inf)) == 2 / 4


def test_auroc_agrees_with_scipys_mann_whitney_statistic() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not a dependency")
    rng = np.random.default_rng(4)
    ours, theirs = rng.integers(0, 20, 90) / 7, rng.integers(0, 15, 70) / 7
    expected = stats.mannwhitneyu(ours, theirs).statistic / (90 * 70)
    assert auroc(ours, theirs) == pytest.approx(expected, abs=1e-12)


def test_auroc_of_nothing_or_of_nan_is_an_error() -> None:
    with pytest.raises(ValueError, match="unanswerable needs one score per query"):
        auroc(floats(1.0), floats())
    with pytest.raises(ValueError, match="answerable holds 1 scores"):
        auroc(floats(1.0, math.nan), floats(1.0))


def test_the_curve_of_four_queries_by_hand() -> None:
    confidence = floats(0.2, 0.9, 0.5, 0.7)
    correct = np.array([False, True, True, False])
    curve = risk_coverage(confidence, correct)
    assert curve.thresholds == (0.9, 0.7, 0.5, 0.2)
    assert curve.coverage == (1 / 4, 2 / 4, 3 / 4, 1.0)
    assert curve.risk == (0.0, 1 / 2, 1 / 3, 2 / 4)
    assert curve.area == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4, abs=1e-15)


def test_equal_confidences_make_one_point_whatever_their_order() -> None:
    confidence = floats(0.8, 0.8, 0.3)
    first = risk_coverage(confidence, np.array([True, False, True]))
    again = risk_coverage(confidence, np.array([False, True, True]))
    assert first == again
    assert first.thresholds == (0.8, 0.3)
    assert first.coverage == (2 / 3, 1.0)
    assert first.risk == (1 / 2, 1 / 3)
    # Over the two orders of the tie: mean of (0, 1/2, 1/3) and (1, 1/2, 1/3).
    assert first.area == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3, abs=1e-15)


def test_a_confidence_that_says_nothing_has_the_overall_error_as_area() -> None:
    curve = risk_coverage(np.zeros(8), np.array([True] * 6 + [False] * 2))
    assert (curve.coverage, curve.risk) == ((1.0,), (2 / 8,))
    assert curve.area == pytest.approx(2 / 8, abs=1e-15)


def test_a_confidence_that_knows_beats_one_that_is_wrong() -> None:
    correct = np.array([True, True, False, False])
    knows = risk_coverage(floats(4.0, 3.0, 2.0, 1.0), correct)
    wrong = risk_coverage(floats(1.0, 2.0, 3.0, 4.0), correct)
    assert knows.area == pytest.approx((0 + 0 + 1 / 3 + 2 / 4) / 4, abs=1e-15)
    assert wrong.area == pytest.approx((1 + 1 + 2 / 3 + 2 / 4) / 4, abs=1e-15)


def test_all_right_and_all_wrong_are_the_ends() -> None:
    confidence = floats(0.1, 0.2, 0.3)
    assert risk_coverage(confidence, np.ones(3, dtype=np.bool_)).area == 0.0
    assert risk_coverage(confidence, np.zeros(3, dtype=np.bool_)).area == 1.0


def test_bad_input_of_the_curve_is_named() -> None:
    with pytest.raises(ValueError, match="one verdict per confidence"):
        risk_coverage(floats(1.0, 2.0), np.array([True]))
    with pytest.raises(ValueError, match="confidence needs one score per query"):
        risk_coverage(floats(), np.array([], dtype=np.bool_))
    with pytest.raises(ValueError, match="confidence holds 1 scores"):
        risk_coverage(floats(math.nan), np.array([True]))
