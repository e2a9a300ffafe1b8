"""Summaries as candidates: what they take from their sources, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.recall.reader import Summaries
from noctuary.snapshot.arrays import OF_TURNS, SummaryArrays

COUNT = 8
lineages = st.lists(
    st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=4, unique=True), min_size=1, max_size=4
)


def summaries_of(sources: list[list[int]], plans: list[int] | None = None) -> Summaries:
    lengths = [len(s) for s in sources]
    arrays = SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sources=np.array([p for s in sources for p in s], dtype=np.int32),
        confidences=np.linspace(0.1, 0.9, len(sources)),
        plans=np.array(plans or [OF_TURNS] * len(sources), dtype=np.int32),
    )
    return Summaries(COUNT, arrays, ("p0",), [f"s{i}" for i in range(len(sources))])


@given(lineages, st.lists(st.integers(0, 3), max_size=9))
def test_values_of_summaries_are_those_of_their_sources(
    sources: list[list[int]], asked: list[int]
) -> None:
    summaries = summaries_of(sources)
    ordinals = np.array([i for i in asked if i < len(sources)], dtype=np.int64)
    values = np.array([5, 3, 8, 1, 9, 2, 7, 4], dtype=np.int64)
    expected = [max(int(values[s]) for s in sources[i]) for i in ordinals.tolist()]
    assert summaries.largest(values, ordinals).tolist() == expected
    assert summaries.largest(values, ordinals).dtype == values.dtype


def test_a_turn_leads_to_its_summary_of_turns_and_never_to_that_of_a_plan() -> None:
    summaries = summaries_of([[0, 1], [1, 2]], plans=[OF_TURNS, 0])
    found = summaries.of_sources(np.array([0, 1, 2, 3, COUNT]))
    assert {p: view.position for p, view in found.items()} == {0: COUNT, 1: COUNT}
    assert summaries.plan_of(COUNT) is None
    assert summaries.plan_of(COUNT + 1) == "p0"
    assert summaries.position_of("s1") == COUNT + 1
    assert summaries.position_of("s2") is None


def test_arrays_of_different_lengths_are_refused() -> None:
    good = summaries_of([[0, 1], [2]])
    with pytest.raises(ValueError, match="different lengths"):
        Summaries(COUNT, good.arrays, (), ["only one"])
    with pytest.raises(ValueError, match="different lengths"):
        Summaries(2, good.arrays, (), good.ids)
