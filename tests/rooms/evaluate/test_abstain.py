"""The rule for a threshold: what it may cost, who has a say and who a veto."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.abstain import (
    CURVE_POINTS,
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    Abstention,
    Calibrated,
    calibrate,
    choose_threshold,
    describe,
    describe_unanswerable,
    judge_abstention,
    thin_curve,
)
from noctuary.evaluate.metrics import Scores, risk_coverage
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import Resampling

FAST = Resampling(draws=300)


def run_of(prefix: str, *top_scores: float | None) -> Run:
    """A run whose queries found one thing with this score, or nothing where it is None."""
    ids = tuple(f"{prefix}{number}" for number in range(len(top_scores)))
    rankings = tuple(() if score is None else ("m1",) for score in top_scores)
    return Run("arm", 10, 10, ids, rankings, top_scores, None, None, None, 0)


def scores_of(run: Run, *recall: float) -> Scores:
    ids = run.query_ids
    return Scores("arm", ("recall@10",), ids, ("a",) * len(ids), np.array(recall)[:, None])


def judge(answerable: Run, unanswerable: Run | None, *recall: float) -> Abstention:
    found = judge_abstention(
        answerable, unanswerable, scores_of(answerable, *recall), resampling=FAST
    )
    assert found is not None
    return found


def test_auroc_and_curve_of_four_queries_checked_by_hand() -> None:
    """Scores 0.9 (right), 0.5 (wrong), 0.7 and 0.1 (unanswerable)."""
    found = judge(run_of("a", 0.9, 0.5), run_of("u", 0.7, 0.1), 0.5, 0.0)
    assert (found.name, found.metric) == ("arm", "recall@10")
    assert found.auroc == 3 / 4
    assert (found.n_answerable, found.n_unanswerable) == (2, 2)
    assert found.curve.thresholds == (0.9, 0.7, 0.5, 0.1)
    assert found.curve.coverage == (0.25, 0.5, 0.75, 1.0)
    assert found.curve.risk == pytest.approx((0.0, 1 / 2, 2 / 3, 3 / 4))
    assert found.curve.area == pytest.approx((0 + 1 / 2 + 2 / 3 + 3 / 4) / 4)


def test_finding_nothing_is_the_lowest_confidence_of_all() -> None:
    found = judge(run_of("a", -7.0), run_of("u", None, None), 1.0)
    assert found.auroc == 1.0
    assert found.curve.thresholds == (-7.0, -math.inf)
    assert found.curve.risk == pytest.approx((0.0, 2 / 3))


def test_unknown_scores_cannot_be_judged() -> None:
    known, other = run_of("a", 0.5), run_of("u", 0.5)
    silent = replace(known, top_scores=(None,))
    assert judge_abstention(silent, other, scores_of(silent, 1.0)) is None
    unsure = replace(other, top_scores=(None,))
    assert judge_abstention(known, unsure, scores_of(known, 1.0)) is None


@pytest.mark.parametrize("nothing", [None, run_of("u")])
def test_without_unanswerable_queries_there_is_a_curve_and_no_auroc(nothing: Run | None) -> None:
    found = judge(run_of("a", 0.9, 0.5), nothing, 1.0, 0.0)
    assert (found.auroc, found.interval, found.n_unanswerable) == (None, None, 0)
    assert found.curve.risk == (0.0, 0.5)


def test_the_interval_matches_a_plain_resampling_of_every_pair() -> None:
    """The running counts are a shortcut; here each resample is compared pair by pair."""
    rng = np.random.default_rng(2)
    high, low = np.round(rng.normal(0.5, 1, 25), 1), np.round(rng.normal(0, 1, 15), 1)
    found = judge(run_of("a", *high.tolist()), run_of("u", *low.tolist()), *[1.0] * 25)
    drawn: list[float] = []
    for _ in range(4000):
        a, u = rng.choice(high, high.size)[:, None], rng.choice(low, low.size)
        drawn.append(float(((a > u) + 0.5 * (a == u)).mean()))
    assert found.interval is not None
    expected = np.quantile(drawn, [0.025, 0.975]).tolist()
    assert [found.interval.low, found.interval.high] == pytest.approx(expected, abs=0.03)


def test_too_few_of_a_kind_have_no_interval_and_full_separation_has_no_width() -> None:
    assert judge(run_of("a", 0.9, 0.8), run_of("u", 0.1), 1.0, 1.0).interval is None
    apart = judge(run_of("a", 0.9, 0.8), run_of("u", 0.1, 0.2), 1.0, 1.0).interval
    assert apart is not None
    assert (apart.low, apart.high) == (1.0, 1.0)


top = st.none() | st.floats(-10, 10).map(lambda score: round(score, 3))


@given(
    answerable=st.lists(top, min_size=1, max_size=5),
    unanswerable=st.lists(top, max_size=5),
    recall=st.floats(0, 1),
)
def test_a_judgement_keeps_its_bounds_and_survives_json(
    answerable: list[float | None], unanswerable: list[float | None], recall: float
) -> None:
    run = run_of("a", *answerable)
    scores = scores_of(run, *[recall] * len(answerable))
    small = Resampling(draws=30)
    found = judge_abstention(run, run_of("u", *unanswerable), scores, resampling=small)
    assert found is not None
    assert (found.auroc is None) == (not unanswerable)
    assert 0.0 <= (found.auroc or 0.0) <= 1.0
    if found.interval is not None:
        assert 0.0 <= found.interval.low <= found.interval.high <= 1.0
    written = found.to_json()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    thresholds = [-math.inf if t is None else t for t in written["curve"]["thresholds"]]
    assert thresholds == pytest.approx(list(found.curve.thresholds))


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
    alone = calibrated(TWENTY, recalls, [])
    assert alone["threshold"] == calibrated(TWENTY, recalls, [0.02, 0.6])["threshold"]
    assert (alone["unanswerable_abstained"], alone["auroc"]) == (None, None)
    assert "no unanswerable query" in describe_unanswerable(alone)
    recalls[6] = 0.5
    assert calibrated(TWENTY, recalls, [0.0])["threshold"] == pytest.approx(TWENTY[7], abs=1e-5)


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
    run = run_of("a", 0.9)
    with pytest.raises(ValueError, match=r"lacks 1 of the scored queries, the first: \['b0'\]"):
        judge_abstention(run, None, scores_of(run_of("b", 0.9), 1.0))
    with pytest.raises(ValueError, match="lack 'mrr@10'"):
        judge_abstention(run, None, scores_of(run, 1.0), "mrr@10")
    with pytest.raises(ValueError, match="one recall per score"):
        calibrate("words", "recall@10", TWENTY, [1.0] * 19)
