from __future__ import annotations

import numpy as np
import pytest

from noctuary.recall.phases import tagging, tagging_factor
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import (
    DAY_US,
    HOUR_US,
    NOW_US,
    MemoryLookups,
    Stored,
    candidates_of,
    context_of,
    scores_of,
)


@pytest.mark.parametrize(
    ("hours", "factor"),
    [(0, 1.5), (6, 1.375), (12, 1.25), (18, 1.125), (24, 1.0), (25, 1.0), (1e9, 1.0), (-3, 1.5)],
)
def test_the_boost_falls_linearly_over_a_day(hours: float, factor: float) -> None:
    assert tagging_factor(np.array([float(hours)]), 24.0, 1.5).tolist() == pytest.approx([factor])


def test_what_was_just_filed_overtakes() -> None:
    lookups = MemoryLookups(
        [Stored(created_at_us=NOW_US - DAY_US), Stored(created_at_us=NOW_US - 12 * HOUR_US)]
    )
    outcome = tagging(candidates_of((0, 0.5), (1, 0.44)), context_of(lookups))
    assert outcome.candidates.positions.tolist() == [1, 0]
    assert scores_of(outcome.candidates) == pytest.approx({1: 0.55, 0: 0.5})
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == "filed 12.0 h ago, window 24 h (factor 1.250)"


def test_window_and_boost_are_the_profiles() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US - 24 * HOUR_US)])
    profile = RetrievalProfile().replaced(tagging_window_hours=48.0, tagging_max_boost=3.0)
    outcome = tagging(candidates_of((0, 0.25)), context_of(lookups, profile))
    assert scores_of(outcome.candidates) == {0: 0.5}


def test_a_clock_ahead_of_ours_counts_as_this_moment() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US + DAY_US)])
    outcome = tagging(candidates_of((0, 0.5)), context_of(lookups))
    assert scores_of(outcome.candidates) == {0: 0.75}


def test_old_and_undated_memories_keep_their_score() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US - DAY_US), Stored()])
    before = candidates_of((0, 0.5), (1, 0.4))
    assert tagging(before, context_of(lookups)).candidates is before
