"""The rule for a threshold: what it may cost, who has a say and who a veto."""

from __future__ import annotations

import json

import numpy as np
import pytest

from noctuary.evaluate.abstain import (
    CURVE_POINTS,
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    Calibrated,
    calibrate,
    choose_threshold,
    describe,
    describe_unanswerable,
    floor_score,
    thin_curve,
)
from noctuary.evaluate.metrics import risk_coverage
from noctuary.evaluate.statistics import Resampling

FEW_DRAWS = Resampling(draws=200)
TWENTY = [0.05 * n + 0.01 for n in range(20)]


def calibrated(
    answerable: list[float], recalls: list[float], unanswerable: list[float]
) -> Calibrated:
    found = calibrate("words", "recall@10", answerable, recalls, unanswerable, resampling=FEW_DRAWS)
    assert isinstance(found, dict), found
    return found


def test_one_of_twenty_may_be_lost_and_not_two() -> None:
    found = calibrated(TWENTY, [1.0] * 20, [0.0, 0.03, 0.5])
    assert found["threshold"] == pytest.approx(0.06)
    assert found["answerable_abstained"] == pytest.approx(1 / 20)
    assert found["recall_kept"] == pytest.approx(0.95)
    assert found["unanswerable_abstained"] == pytest.approx(2 / 3)


def test_queries_that_found_nothing_cost_nothing() -> None:
    recalls = [0.0] * 6 + [1.0] * 14
    assert calibrated(TWENTY, recalls, [0.0])["threshold"] == pytest.approx(TWENTY[6], abs=1e-5)
    # With less than 5 % of the recall in one query the next one may go as well.
    recalls[6] = 0.5
    assert calibrated(TWENTY, recalls, [0.0])["threshold"] == pytest.approx(TWENTY[7], abs=1e-5)


def test_unanswerable_queries_do_not_move_the_threshold() -> None:
    recalls = [1.0] * 20
    alone = calibrated(TWENTY, recalls, [])
    assert alone["threshold"] == calibrated(TWENTY, recalls, [0.02, 0.6])["threshold"]
    assert alone["unanswerable_abstained"] is None
    assert alone["auroc"] is None
    assert "no unanswerable query" in describe_unanswerable(alone)


def test_a_signal_that_tells_nothing_gets_no_threshold() -> None:
    said = calibrate("words", "recall@10", TWENTY, [1.0] * 20, [0.99, 0.98], resampling=FEW_DRAWS)
    assert isinstance(said, str)
    assert "words tells nothing" in said


def test_too_few_queries_or_none_that_finds_anything_say_so() -> None:
    few = calibrate("words", "recall@10", TWENTY[:-1], [1.0] * 19)
    assert few == f"19 queries are too few to calibrate by, {MIN_ANSWERABLE} are needed"
    blind = calibrate("words", "recall@10", TWENTY, [0.0] * 20)
    assert isinstance(blind, str)
    assert "no recall to keep" in blind


def test_ties_are_kept_together() -> None:
    scores = np.array([0.2] * 3 + [0.5] * 17)
    assert choose_threshold(scores, np.ones(20), 0.05) == 0.2
    assert choose_threshold(scores, np.ones(20), 0.15) == 0.5


def test_a_threshold_is_never_above_the_score_that_it_was_chosen_at() -> None:
    score = 0.123456789
    assert floor_score(score) == 0.12345 <= score
    assert floor_score(1.0) == 1.0
    found = calibrated([score] * 20, [1.0] * 20, [])
    assert found["threshold"] <= score


def test_what_is_written_says_it_all() -> None:
    rng = np.random.default_rng(1)
    known = rng.uniform(0.2, 1.0, 300).tolist()
    found = calibrated(known, [1.0] * 300, rng.uniform(0.0, 0.8, 90).tolist())
    raw = json.loads(json.dumps(found, allow_nan=False))
    assert raw["threshold"] == found["threshold"]
    assert raw["recall_kept"] >= (1 - MAX_RECALL_LOSS) * raw["recall"]
    assert len(raw["curve"]["coverage"]) == CURVE_POINTS
    assert raw["curve"]["coverage"][-1] == 1.0
    assert (raw["name"], raw["n_answerable"], raw["n_unanswerable"]) == ("words", 300, 90)
    assert raw["low"] < raw["auroc"] < raw["high"]
    assert "15 of 300 answerable queries" in describe(found)
    assert "15 of 300 of its own" in describe(found, "of its own")
    assert "of 90 unanswerable queries are dropped" in describe_unanswerable(found)


def test_a_thinned_curve_keeps_its_ends_its_order_and_its_area() -> None:
    rng = np.random.default_rng(2)
    curve = risk_coverage(rng.uniform(size=200), rng.uniform(size=200) < 0.7)
    thin = thin_curve(curve, 9)
    assert len(thin.thresholds) == len(thin.coverage) == len(thin.risk) == 9
    assert (thin.coverage[0], thin.coverage[-1]) == (curve.coverage[0], curve.coverage[-1])
    assert list(thin.thresholds) == sorted(thin.thresholds, reverse=True)
    assert thin.area == curve.area
    assert set(zip(thin.coverage, thin.risk, strict=True)) <= set(
        zip(curve.coverage, curve.risk, strict=True)
    )
    assert thin_curve(thin, 9) == thin


@pytest.mark.parametrize("scores", [[1.5] * 20, [-0.1] * 20])
def test_scores_outside_their_range_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        calibrate("words", "recall@10", scores, [1.0] * 20)
    with pytest.raises(ValueError, match="one recall per score"):
        calibrate("words", "recall@10", TWENTY, [1.0] * 19)
