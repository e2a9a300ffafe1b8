from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.metrics import (
    Comparison,
    Difference,
    Latency,
    Mean,
    Report,
    Scores,
    compare,
    latency_of,
    summarize,
)
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import Interval, Resampling, mean_interval, permutation_p_values

FAST = Resampling(draws=200)
METRIC = "recall@10"


def scores(name: str, values: list[float], strata: str = "") -> Scores:
    """One metric; the stratum of every query is a letter of `strata`, by default all "a"."""
    return Scores(
        name=name,
        metrics=(METRIC,),
        query_ids=tuple(f"q{number}" for number in range(len(values))),
        strata=tuple(strata or "a" * len(values)),
        values=np.array(values, dtype=np.float64)[:, None],
    )


def against_zero(differences: list[float], strata: str = "", **settings: float) -> Comparison:
    """Compare with a baseline that scores nothing, so that values are differences."""
    ours = scores("ours", differences, strata)
    zero = scores("zero", [0.0] * len(differences), strata)
    resampling = replace(FAST, **settings)  # pyright: ignore[reportArgumentType]
    return compare([(ours, zero)], resampling)[0]


def test_a_difference_is_ours_minus_baseline_query_by_query() -> None:
    ours, baseline = scores("ours", [1.0, 0.5, 0.5, 0.0]), scores("base", [0.5, 0.5, 0.0, 0.25])
    (found,) = compare([(ours, baseline)], FAST)
    assert (found.ours, found.baseline) == ("ours", "base")
    difference = found.overall[METRIC]
    assert difference.n == 4
    assert difference.mean == pytest.approx(0.75 / 4)
    assert (difference.wins, difference.losses, difference.ties) == (2, 1, 1)
    # Three queries differ: 8 flips of (1/2, 1/2, -1/4); sums of at least 3/4 are +-3/4 and +-5/4.
    assert difference.p_value == 4 / 8
    assert difference.p_holm == difference.p_value
    rounded = scores("ours", [0.1 + 0.2, 0.0]), scores("base", [0.3, 0.0])
    difference = compare([rounded], FAST)[0].overall[METRIC]
    assert (difference.wins, difference.losses, difference.ties) == (0, 0, 2)
    assert compare([], FAST) == []


def test_p_values_are_adjusted_across_the_strata_and_not_overall() -> None:
    """a: six equal gains, p = 2/64. b: three, p = 2/8. c: nothing differs, p = 1."""
    found = against_zero([1.0] * 6 + [1.0] * 3 + [0.0] * 2, "aaaaaabbbcc")
    strata = {name: part[METRIC] for name, part in found.strata.items()}
    assert [strata[name].p_value for name in "abc"] == [2 / 64, 2 / 8, 1.0]
    assert [strata[name].p_holm for name in "abc"] == [3 * 2 / 64, 2 * 2 / 8, 1.0]
    assert [strata[name].n for name in "abc"] == [6, 3, 2]
    overall = found.overall[METRIC]
    assert overall.p_holm == overall.p_value
    assert overall.p_value == permutation_p_values(np.array([[1.0]] * 9 + [[0.0]] * 2), FAST)


def test_metrics_are_adjusted_apart() -> None:
    """Two metrics: one moves in stratum a, the other in b; each family has two strata."""
    values = np.array([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 6)
    strata = ("a",) * 6 + ("b",) * 6
    ids = tuple(map(str, range(12)))
    ours = Scores("ours", ("recall@5", "mrr@5"), ids, strata, values)
    zero = replace(ours, name="zero", values=np.zeros_like(values))
    (found,) = compare([(ours, zero)], FAST)
    assert found.strata["a"]["recall@5"].p_holm == 2 * 2 / 64
    assert found.strata["b"]["mrr@5"].p_holm == 2 * 2 / 64
    assert found.strata["a"]["mrr@5"].p_holm == 1.0
    assert found.strata["b"]["recall@5"].p_holm == 1.0


def test_significant_needs_the_interval_and_the_adjusted_p_value() -> None:
    low = Interval(0.2, 0.1, 0.3, 9)
    found = Difference(9, 0.2, low, 0.01, 0.04, 0.1, 9, 0, 0)
    assert found.significant
    assert not replace(found, p_holm=0.05).significant
    assert not replace(found, alpha=0.04).significant
    assert not replace(found, interval=Interval(0.2, 0.0, 0.3, 9)).significant
    assert not replace(found, interval=None).significant
    assert replace(found, mean=-0.2, interval=Interval(-0.2, -0.3, -0.1, 9)).significant


def test_the_same_gain_is_significant_overall_and_not_in_one_stratum_of_three() -> None:
    found = against_zero([1.0] * 6 + [0.0] * 4, "aaaaaabbcc")
    assert found.overall[METRIC].significant
    assert not found.strata["a"][METRIC].significant
    assert not against_zero([1.0] * 6, alpha=0.03).overall[METRIC].significant


def test_one_query_has_no_interval_and_no_power_and_is_never_significant() -> None:
    found = against_zero([1.0]).overall[METRIC]
    assert (found.n, found.mean, found.interval, found.minimum_detectable) == (1, 1.0, None, None)
    assert found.p_value == 1.0
    assert not found.significant


def test_the_interval_is_the_paired_one_however_many_pairs_are_compared() -> None:
    rng = np.random.default_rng(9)
    arms = [scores(f"arm{arm}", rng.random(25).tolist(), "ab" * 12 + "a") for arm in range(3)]
    pairs = [(arms[0], arms[1]), (arms[2], arms[1]), (arms[2], arms[0])]
    for (ours, base), found in zip(pairs, compare(pairs, FAST), strict=True):
        assert (found.ours, found.baseline) == (ours.name, base.name)
        expected = mean_interval(ours.values[:, 0] - base.values[:, 0], FAST)
        interval = found.overall[METRIC].interval
        assert interval is not None
        assert expected is not None
        assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_pairs_that_are_not_aligned_are_refused() -> None:
    ours = scores("ours", [1.0, 0.0])
    turned = replace(ours, query_ids=ours.query_ids[::-1])
    for other in (
        turned,
        scores("longer", [1.0, 0.0, 1.0]),
        scores("other strata", [1.0, 0.0], "ab"),
        replace(ours, metrics=("mrr@10",)),
    ):
        with pytest.raises(ValueError, match=f"same queries.*'ours' and '{other.name}' differ"):
            compare([(ours, other)], FAST)
    with pytest.raises(ValueError, match="there is no query"):
        compare([(scores("none", []), scores("none", []))], FAST)


values = st.lists(st.floats(-1, 1), min_size=1, max_size=7)


@given(differences=values, data=st.data())
def test_every_difference_keeps_its_bounds_and_survives_json(
    differences: list[float], data: st.DataObject
) -> None:
    n = len(differences)
    strata = data.draw(st.text("abc", min_size=n, max_size=n))
    found = against_zero(differences, strata, draws=50)
    written = found.to_json()
    read = Comparison.from_json(json.loads(json.dumps(written, allow_nan=False)))
    assert read.to_json() == written
    parts = [found.overall, *found.strata.values()]
    for before, after in zip(parts, [read.overall, *read.strata.values()], strict=True):
        mine, theirs = before[METRIC], after[METRIC]
        assert mine.wins + mine.losses + mine.ties == mine.n
        assert 0.0 < mine.p_value <= mine.p_holm <= 1.0
        assert theirs.mean == pytest.approx(mine.mean, abs=1e-6)
        assert not theirs.significant or mine.significant, "rounding must not add significance"


METRICS = ("recall@5", "ndcg@10")


def scores_of(name: str, *rows: tuple[str, float, float]) -> Scores:
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
    (report,) = summarize([scores_of("arm", *ROWS)], FAST)
    assert (report.name, report.n) == ("arm", 4)
    assert report.overall["recall@5"].mean == 2 / 4
    assert report.overall["ndcg@10"].mean == pytest.approx(1.6 / 4)
    assert list(report.strata) == ["exact", "multihop"]
    assert report.strata["exact"]["recall@5"].mean == pytest.approx(2 / 3)
    assert report.strata["exact"]["recall@5"].n == 3
    assert report.macro["recall@5"] == pytest.approx((2 / 3 + 0.0) / 2)
    assert report.macro["ndcg@10"] == pytest.approx((0.5 + 0.1) / 2)
    assert report.latency is None
    interval = report.overall["recall@5"].interval
    assert interval is not None
    assert interval.low <= interval.mean <= interval.high
    assert interval.n == 4
    assert report.strata["multihop"]["recall@5"] == Mean(0.0, None, 1)


def test_arms_summarized_together_get_the_numbers_they_get_alone() -> None:
    rng = np.random.default_rng(6)
    wide = scores_of("wide", *ROWS)
    narrow = Scores("narrow", ("mrr@5",), wide.query_ids, wide.strata, wide.values[:, :1] / 2)
    other, _ = summarize([narrow, wide], FAST)
    assert {metric: mean.mean for metric, mean in other.overall.items()} == {"mrr@5": 0.25}
    arms = [
        scores_of(f"arm{arm}", *(("ab"[row % 2], *rng.random(2)) for row in range(20)))
        for arm in range(3)
    ]
    shorter = scores_of("short", *ROWS)
    together = summarize([arms[0], shorter, arms[1], arms[2]], FAST)
    assert [report.name for report in together] == ["arm0", "short", "arm1", "arm2"]
    for arm, report in zip([arms[0], shorter, arms[1], arms[2]], together, strict=True):
        (alone,) = summarize([arm], FAST)
        assert report.to_json() == alone.to_json()


def timed(*latency_ms: float) -> Run:
    ids = tuple(str(number) for number in range(len(latency_ms)))
    n = len(ids)
    return Run("arm", 1, 1, ids, ((),) * n, (None,) * n, latency_ms, None, None, 0)


def test_latency_percentiles_are_interpolated() -> None:
    found = latency_of(timed(3.0, 1.0, 2.00049))
    assert found == Latency(2.0, 2.9, 3)  # to the microsecond
    assert latency_of(replace(timed(1.0), latency_ms=None)) is None
    assert latency_of(timed()) is None


@given(rows=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.floats(0, 1)),
                     min_size=1, max_size=8), is_timed=st.booleans())  # fmt: skip
def test_a_report_survives_json(rows: list[tuple[str, float, float]], is_timed: bool) -> None:
    (report,) = summarize([scores_of("arm", *rows)], Resampling(draws=20))
    written = replace(report, latency=Latency(1.5, 2.5, 3) if is_timed else None).to_json()
    read = Report.from_json(json.loads(json.dumps(written)))
    assert read.to_json() == written
    assert read.overall["recall@5"].mean == pytest.approx(report.overall["recall@5"].mean, abs=1e-6)
    assert (read.latency is not None) == is_timed
