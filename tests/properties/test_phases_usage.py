from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.recall.phases import (
    ASSOCIATION_MAX_BOOST,
    TAGGING_MAX_BOOST,
    association,
    association_factor,
    choose_pinned,
    decay_factor,
    ltp,
    pinned,
    pinned_score,
    pinning_score,
    scale,
    scaled_to_unit,
    tagging,
    tagging_factor,
    time_decay,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.search import Candidates, PhaseOutcome, Search
from noctuary.usage.reader import LTP_MAX_BOOST, ltp_multiplier
from tests.support.lookups import (
    NOW_US,
    MemoryLookups,
    Stored,
    Used,
    candidates_of,
    context_of,
    scores_of,
)

FloatArray = NDArray[np.float64]

share = st.floats(0, 1)
boost = st.floats(1, 1e6)
positive = st.floats(0, 1e308, exclude_min=True)
counts = st.lists(st.integers(0, 2**40), min_size=1, max_size=20).map(
    lambda found: np.array(sorted(found), dtype=np.int64)
)
amounts = st.lists(st.floats(0, 1e300), min_size=1, max_size=20).map(
    lambda found: np.array(sorted(found))
)


def rises(values: FloatArray) -> bool:
    return bool((np.diff(values) >= 0).all())


def lies_in(values: FloatArray, low: float, high: float) -> bool:
    return bool(np.isfinite(values).all() and (values >= low).all() and (values <= high).all())


@given(counts, boost, st.floats(0, 1e308))
def test_boosts_rise_with_use_inside_their_bounds(
    n: NDArray[np.int64], most: float, coefficient: float
) -> None:
    for found, factor in (
        (ltp_multiplier(n, most), 0.3),
        (association_factor(n, coefficient, most), coefficient),
    ):
        assert lies_in(found, 1.0, most)
        assert rises(found)
        naive = [min(1 + factor * math.log1p(int(count)), most) for count in n]
        assert found.tolist() == pytest.approx(naive)


@given(amounts, positive, share, boost)
def test_factors_of_age_fall_to_their_floor(
    ages: FloatArray, duration: float, floor: float, most: float
) -> None:
    oldest_last = np.array([0.0, *ages])
    decays = decay_factor(oldest_last, duration, floor)
    boosts = tagging_factor(oldest_last, duration, most)
    assert lies_in(decays, floor, 1.0)
    assert lies_in(boosts, 1.0, most)
    assert (decays[0], boosts[0]) == (1.0, most)
    assert rises(decays[::-1])
    assert rises(boosts[::-1])
    assert (boosts[oldest_last >= duration] == 1.0).all()


@given(amounts)
def test_scaling_keeps_the_order_and_ends_in_the_unit_interval(scores: FloatArray) -> None:
    scaled = scaled_to_unit(scores)
    assert lies_in(scaled, 0.0, 1.0)
    assert rises(scaled)
    if scores.max() <= 1.0:
        assert scaled is scores
    else:
        assert scaled.max() == 1.0


@given(st.lists(share, min_size=1, max_size=20), share)
def test_a_pinned_score_only_gains_and_keeps_the_order(scores: list[float], gain: float) -> None:
    before = np.array(sorted(scores))
    after = pinned_score(before, gain)
    assert lies_in(after, 0.0, 1.0)
    assert (after >= before).all()
    # The last digit may go either way; no order that anyone could see does.
    assert (np.diff(after) >= -1e-15).all()


@given(counts, boost)
def test_pinning_scores_rise_with_days(days: NDArray[np.int64], multiplier: float) -> None:
    scores = pinning_score(np.full(days.size, multiplier), days)
    assert lies_in(scores, multiplier, 3.0 * multiplier * (1 + 1e-15))
    assert rises(scores)


@given(
    st.lists(st.tuples(st.floats(1, 6), st.integers(0, 50)), max_size=12),
    st.integers(1, 6),
    st.integers(1, 100),
)
def test_the_choice_is_the_greedy_one(
    items: list[tuple[float, int]], most: int, budget: int
) -> None:
    tokens = [cost for _, cost in items]
    chosen = choose_pinned(np.array([score for score, _ in items]), tokens, most, budget)
    naive: list[int] = []
    for row in sorted(range(len(items)), key=lambda r: (-items[r][0], r)):
        fits = sum(tokens[r] for r in naive) + tokens[row] <= budget
        if fits and len(naive) < most:
            naive.append(row)
    assert chosen == naive


stored = st.builds(
    Stored,
    content=st.sampled_from(["", "short", "x" * 400, "字" * 40]),
    created_at_us=st.sampled_from([UNDATED_US, UNDATED_US + 1, 2**63 - 1])
    | st.integers(NOW_US - 10**14, NOW_US + 10**12),
    tags=st.sampled_from([(), ("pinned",), ("a", "PINNED")]),
)
used = st.builds(Used, recent=st.integers(0, 500), days=st.integers(0, 40))


@st.composite
def recalls(draw: st.DrawFn) -> tuple[MemoryLookups, dict[int, float]]:
    """A small store with usage, and what a query found in it."""
    memories = draw(st.lists(stored, min_size=1, max_size=8))
    places = st.integers(0, len(memories) - 1)
    lookups = MemoryLookups(
        memories,
        used=draw(st.dictionaries(places, used)),
        together=draw(
            st.dictionaries(st.tuples(places, places).map(frozenset), st.integers(0, 50))
        ),
    )
    return lookups, draw(st.dictionaries(places, share))


PROFILE = RetrievalProfile()
Phase = Callable[[Candidates, Search], PhaseOutcome]
# With the largest score that each makes of one.
PHASES: dict[Phase, Callable[[float], float]] = {
    ltp: lambda score: score * LTP_MAX_BOOST,
    time_decay: lambda score: score,
    tagging: lambda score: score * TAGGING_MAX_BOOST,
    association: lambda score: score * ASSOCIATION_MAX_BOOST,
    scale: lambda score: score,
    pinned: lambda score: 1.0,
}


@pytest.mark.parametrize("phase", PHASES)
@given(recalls())
def test_a_phase_keeps_the_candidates_and_explains_every_change(
    phase: Phase, recall: tuple[MemoryLookups, dict[int, float]]
) -> None:
    lookups, found = recall
    outcome = phase(candidates_of(*found.items()), context_of(lookups, PROFILE))
    after = scores_of(outcome.candidates)
    assert after.keys() == found.keys()
    assert rises(outcome.candidates.scores[::-1])
    for position, score in after.items():
        low = PROFILE.decay_floor * found[position] if phase is time_decay else found[position]
        assert low <= score <= PHASES[phase](found[position])
        if score != found[position]:
            assert outcome.reason_of is not None
            assert outcome.reason_of(position)
