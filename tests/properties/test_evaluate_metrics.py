"""Ranges and invariances that every metric must keep, on generated rankings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemon.evaluate.metrics.mrr import reciprocal_rank
from mnemon.evaluate.metrics.ndcg import ndcg_at_k
from mnemon.evaluate.metrics.recall_at_k import recall_at_k
from mnemon.evaluate.statistics.bootstrap import mean_interval

Metric = Callable[[Sequence[str], Collection[str], int], float]
METRICS: list[Metric] = [recall_at_k, ndcg_at_k, reciprocal_rank]

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
def test_all_relevant_first_is_a_perfect_ndcg_and_reciprocal_rank(
    relevant: set[str], k: int
) -> None:
    ideal = sorted(relevant)
    assert ndcg_at_k(ideal, relevant, k) == 1.0
    assert reciprocal_rank(ideal, relevant, k) == 1.0
    assert recall_at_k(ideal, relevant, k) == min(k, len(relevant)) / len(relevant)


@given(
    values=st.lists(
        st.floats(-1.0, 1.0, allow_nan=False, allow_subnormal=False), min_size=2, max_size=12
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    found = mean_interval(np.array(values), draws=200, seed=seed)
    assert found is not None
    assert min(values) - 1e-12 <= found.low <= found.high <= max(values) + 1e-12
