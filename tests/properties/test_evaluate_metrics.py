"""Ranges and invariances that every metric must keep, on generated rankings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.metrics import (
    RiskCoverage,
    all_relevant_at_k,
    auroc,
    average_precision,
    graded_ndcg_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
    risk_coverage,
)
from noctuary.evaluate.statistics import Resampling, mean_interval

Metric = Callable[[Sequence[str], Collection[str], int], float]


def graded_ndcg_of_mixed_grades(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Grades 1 to 3 by id, so that every property of the binary metrics is asked of it too."""
    return graded_ndcg_at_k(ranking, {m: 1 + int(m[1:]) % 3 for m in relevant}, k)


METRICS: list[Metric] = [
    recall_at_k,
    all_relevant_at_k,
    precision_at_k,
    average_precision,
    ndcg_at_k,
    graded_ndcg_of_mixed_grades,
    reciprocal_rank,
]

ids = st.sampled_from([f"m{i}" for i in range(12)])
rankings = st.lists(ids, max_size=20)
labels = st.sets(ids, min_size=1, max_size=6)
cutoffs = st.integers(1, 15)

each_metric = pytest.mark.parametrize("metric", METRICS)


@each_metric
@given(ranking=rankings, relevant=labels, k=cutoffs)
def test_every_metric_stays_in_the_unit_interval(
    metric: Metric, ranking: list[str], relevant: set[str], k: int
) -> None:
    assert 0.0 <= metric(ranking, relevant, k) <= 1.0


@each_metric
@given(ranking=rankings, relevant=labels, k=cutoffs, data=st.data())
def test_the_order_of_irrelevant_results_does_not_matter(
    metric: Metric, ranking: list[str], relevant: set[str], k: int, data: st.DataObject
) -> None:
    slots = [i for i, memory_id in enumerate(ranking) if memory_id not in relevant]
    shuffled = list(ranking)
    for slot, source in zip(slots, data.draw(st.permutations(slots)), strict=True):
        shuffled[slot] = ranking[source]
    assert metric(shuffled, relevant, k) == metric(ranking, relevant, k)


@each_metric
@given(ranking=rankings, relevant=labels, k=cutoffs, tail=rankings)
def test_what_stands_below_the_cutoff_does_not_matter(
    metric: Metric, ranking: list[str], relevant: set[str], k: int, tail: list[str]
) -> None:
    head = (ranking + ["pad"] * k)[:k]
    assert metric(head + tail, relevant, k) == metric(head, relevant, k)


@each_metric
@given(ranking=rankings, relevant=labels, k=cutoffs, at=st.integers(0, 19))
def test_repeating_a_result_never_raises_a_metric(
    metric: Metric, ranking: list[str], relevant: set[str], k: int, at: int
) -> None:
    unique = list(dict.fromkeys(ranking))
    if not unique:
        return
    source = at % len(unique)
    repeated = [*unique[: source + 1], unique[source], *unique[source + 1 :]]
    assert metric(repeated, relevant, k) <= metric(unique, relevant, k) + 1e-12


@each_metric
@given(ranking=rankings, relevant=labels, k=cutoffs, at=st.integers(0, 18))
def test_swapping_a_hit_one_rank_up_never_lowers_a_metric(
    metric: Metric, ranking: list[str], relevant: set[str], k: int, at: int
) -> None:
    unique = list(dict.fromkeys(ranking))
    better = list(unique)
    if at + 1 < len(unique) and unique[at] not in relevant and unique[at + 1] in relevant:
        better[at], better[at + 1] = unique[at + 1], unique[at]
    assert metric(better, relevant, k) >= metric(unique, relevant, k) - 1e-12


@given(relevant=labels, k=cutoffs)
def test_all_relevant_first_is_as_good_as_each_metric_allows(relevant: set[str], k: int) -> None:
    ideal = sorted(relevant)
    assert ndcg_at_k(ideal, relevant, k) == 1.0
    assert reciprocal_rank(ideal, relevant, k) == 1.0
    assert recall_at_k(ideal, relevant, k) == min(k, len(relevant)) / len(relevant)
    assert average_precision(ideal, relevant, k) == min(k, len(relevant)) / len(relevant)
    assert precision_at_k(ideal, relevant, k) == min(k, len(relevant)) / k
    assert all_relevant_at_k(ideal, relevant, k) == float(k >= len(relevant))


DEEPER_IS_NO_WORSE: list[Metric] = [
    recall_at_k,
    all_relevant_at_k,
    average_precision,
    reciprocal_rank,
]


@pytest.mark.parametrize("metric", DEEPER_IS_NO_WORSE)
@given(ranking=rankings, relevant=labels, k=cutoffs)
def test_a_deeper_cutoff_never_lowers_a_metric_of_what_was_found(
    metric: Metric, ranking: list[str], relevant: set[str], k: int
) -> None:
    assert metric(ranking, relevant, k + 1) >= metric(ranking, relevant, k)


@given(ranking=rankings, relevant=labels, k=cutoffs)
def test_recall_precision_and_completeness_count_the_same_hits(
    ranking: list[str], relevant: set[str], k: int
) -> None:
    recall = recall_at_k(ranking, relevant, k)
    assert precision_at_k(ranking, relevant, k) * k == pytest.approx(recall * len(relevant))
    assert all_relevant_at_k(ranking, relevant, k) == float(recall == 1.0)


grade_maps = st.dictionaries(ids, st.integers(0, 4), min_size=1, max_size=8).filter(
    lambda grades: any(grades.values())
)


@given(ranking=rankings, grades=grade_maps, k=cutoffs, at=st.integers(0, 18))
def test_swapping_the_higher_grade_up_never_lowers_graded_ndcg(
    ranking: list[str], grades: dict[str, int], k: int, at: int
) -> None:
    unique = list(dict.fromkeys(ranking))
    better = list(unique)
    if at + 1 < len(unique) and grades.get(unique[at], 0) < grades.get(unique[at + 1], 0):
        better[at], better[at + 1] = unique[at + 1], unique[at]
    after = graded_ndcg_at_k(better, grades, k)
    assert 0.0 <= graded_ndcg_at_k(unique, grades, k) <= after + 1e-12 <= 1.0 + 1e-12


@given(grades=grade_maps, k=cutoffs)
def test_grades_in_falling_order_are_a_perfect_graded_ndcg(grades: dict[str, int], k: int) -> None:
    ideal = sorted(grades, key=lambda memory_id: -grades[memory_id])
    assert graded_ndcg_at_k(ideal, grades, k) == 1.0


scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)


@given(answerable=scores, unanswerable=scores)
def test_auroc_counts_the_pairs_one_by_one(
    answerable: list[float], unanswerable: list[float]
) -> None:
    pairs = list(product(answerable, unanswerable))
    expected = sum((a > u) + 0.5 * (a == u) for a, u in pairs) / len(pairs)
    found = auroc(np.array(answerable), np.array(unanswerable))
    assert found == pytest.approx(expected, abs=1e-12)
    assert auroc(np.array(unanswerable), np.array(answerable)) == pytest.approx(1.0 - found)


verdicts = st.lists(st.tuples(st.integers(0, 3).map(float), st.booleans()), min_size=1, max_size=6)


def curve_of(rows: Sequence[tuple[float, bool]]) -> RiskCoverage:
    return risk_coverage(np.array([c for c, _ in rows]), np.array([right for _, right in rows]))


@given(rows=verdicts, data=st.data())
def test_the_risk_coverage_curve_is_well_formed_whatever_the_order(
    rows: list[tuple[float, bool]], data: st.DataObject
) -> None:
    curve = curve_of(rows)
    assert list(curve.thresholds) == sorted({c for c, _ in rows}, reverse=True)
    assert list(curve.coverage) == sorted(curve.coverage)
    assert curve.coverage[-1] == 1.0
    assert all(0.0 <= risk <= 1.0 for risk in (*curve.risk, curve.area))
    assert curve.risk[-1] == sum(not right for _, right in rows) / len(rows)
    assert curve_of(data.draw(st.permutations(rows))) == curve


@given(rows=verdicts)
def test_the_area_is_the_average_over_all_ways_to_break_the_ties(
    rows: list[tuple[float, bool]],
) -> None:
    areas: list[float] = []
    for order in permutations(rows):
        if [c for c, _ in order] == sorted((c for c, _ in rows), reverse=True):
            errors = np.cumsum([not right for _, right in order])
            areas.append(float(np.mean(errors / np.arange(1, len(rows) + 1))))
    assert curve_of(rows).area == pytest.approx(np.mean(areas), abs=1e-12)


@given(
    values=st.lists(
        st.floats(-1.0, 1.0, allow_nan=False, allow_subnormal=False), min_size=2, max_size=12
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    found = mean_interval(np.array(values), Resampling(draws=200, seed=seed))
    assert found is not None
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
