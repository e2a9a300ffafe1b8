from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.metrics import Latency, Mean, Report, Scores, latency_of, summarize
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import Resampling, mean_interval

FAST = Resampling(draws=200)
METRICS = ("recall@5", "ndcg@10")


def scores(name: str, *rows: tuple[str, float, float]) -> Scores:
    """One row per (stratum, recall@5, ndcg@10)."""
    return Scores(
        name=name,
        metrics=METRICS,
        query_ids=tuple(f"q{number}" for number in range(len(rows))),
        strata=tuple(row[0] for row in rows),
        values=np.array([row[1:] for row in rows], dtype=np.float64).reshape(len(rows), 2),
    )


ROWS = (("exact", 1.0, 0.5), ("exact", 0.0, 0.0), ("multihop", 0.0, 0.1), ("exact", 1.0, 1.0))


def test_overall_counts_every_query_and_macro_every_stratum_once() -> None:
    (report,) = summarize([scores("arm", *ROWS)], FAST)
    assert (report.name, report.n) == ("arm", 4)
    assert report.overall["recall@5"].mean == 2 / 4
    assert report.overall["ndcg@10"].mean == pytest.approx(1.6 / 4)
    assert list(report.strata) == ["exact", "multihop"]
    assert report.strata["exact"]["recall@5"].mean == pytest.approx(2 / 3)
    assert report.strata["exact"]["recall@5"].n == 3
    assert report.macro["recall@5"] == pytest.approx((2 / 3 + 0.0) / 2)
    assert report.macro["ndcg@10"] == pytest.approx((0.5 + 0.1) / 2)
    assert report.latency is None


def test_every_mean_has_an_interval_except_that_of_a_single_query() -> None:
    (report,) = summarize([scores("arm", *ROWS)], FAST)
    interval = report.overall["recall@5"].interval
    assert interval is not None
    assert interval.low <= interval.mean <= interval.high
    assert interval.n == 4
    assert report.strata["multihop"]["recall@5"] == Mean(0.0, None, 1)


def test_a_stratum_has_the_interval_of_its_own_rows() -> None:
    values = np.random.default_rng(5).random((30, 2))
    names = ("a", "b", "b") * 10
    rows = [(name, *row) for name, row in zip(names, values.tolist(), strict=True)]
    (report,) = summarize([scores("arm", *rows)], FAST)
    expected = mean_interval(values[np.array(names) == "b", 1], FAST)
    found = report.strata["b"]["ndcg@10"].interval
    assert found is not None
    assert expected is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_arms_summarized_together_get_the_numbers_they_get_alone() -> None:
    rng = np.random.default_rng(6)
    arms = [
        scores(f"arm{arm}", *(("ab"[row % 2], *rng.random(2)) for row in range(20)))
        for arm in range(3)
    ]
    shorter = scores("short", *ROWS)
    together = summarize([arms[0], shorter, arms[1], arms[2]], FAST)
    assert [report.name for report in together] == ["arm0", "short", "arm1", "arm2"]
    for arm, report in zip([arms[0], shorter, arms[1], arms[2]], together, strict=True):
        (alone,) = summarize([arm], FAST)
        assert report.to_json() == alone.to_json()


def test_arms_may_have_metrics_of_their_own() -> None:
    wide = scores("wide", *ROWS)
    narrow = Scores("narrow", ("mrr@5",), wide.query_ids, wide.strata, wide.values[:, :1] / 2)
    reports = summarize([narrow, wide], FAST)
    assert reports[0].overall["mrr@5"].mean == 0.25
    assert reports[1].overall["ndcg@10"].mean == pytest.approx(0.4)
    assert list(reports[0].overall) == ["mrr@5"]


def test_no_arms_give_no_reports_and_an_arm_without_queries_is_an_error() -> None:
    assert summarize([], FAST) == []
    with pytest.raises(ValueError, match=r"no labelled query to average over in \['empty'\]"):
        summarize([scores("arm", *ROWS), scores("empty")], FAST)


def timed(*latency_ms: float) -> Run:
    ids = tuple(str(number) for number in range(len(latency_ms)))
    n = len(ids)
    return Run("arm", 1, 1, ids, ((),) * n, (None,) * n, latency_ms, None, None, 0)


def test_latency_percentiles_are_interpolated() -> None:
    found = latency_of(timed(3.0, 1.0, 2.00049))
    assert found == Latency(2.0, 2.9, 3)  # to the microsecond
    assert latency_of(replace(timed(1.0), latency_ms=None)) is None
    assert latency_of(timed()) is None


def test_json_holds_everything_and_is_rounded() -> None:
    third = scores("arm", ("a", 1 / 3, 0.0), ("a", 1 / 3, 1.0))
    (report,) = summarize([third], FAST)
    found = json.loads(json.dumps(replace(report, latency=Latency(1.235, 2.0, 2)).to_json()))
    mean = {"mean": 0.333333, "low": 0.333333, "high": 0.333333, "n": 2}
    assert (found["name"], found["n"]) == ("arm", 2)
    assert found["overall"]["recall@5"] == mean
    assert found["strata"]["a"]["recall@5"] == mean
    assert found["macro"] == {"recall@5": 0.333333, "ndcg@10": 0.5}
    assert found["latency"] == {"p50_ms": 1.235, "p95_ms": 2.0, "n": 2}


@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.floats(0, 1)),
                     min_size=1, max_size=8), is_timed=st.booleans())  # fmt: skip
def test_a_report_survives_json(rows: list[tuple[str, float, float]], is_timed: bool) -> None:
    (report,) = summarize([scores("arm", *rows)], Resampling(draws=20))
    written = replace(report, latency=Latency(1.5, 2.5, 3) if is_timed else None).to_json()
    read = Report.from_json(json.loads(json.dumps(written)))
    assert read.to_json() == written
    assert read.overall["recall@5"].mean == pytest.approx(report.overall["recall@5"].mean, abs=1e-6)
    assert (read.latency is not None) == is_timed
