from __future__ import annotations

import numpy as np
import pytest

from noctuary.recall.phases import decay_factor, time_decay
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import (
    DAY_US,
    NOW_US,
    MemoryLookups,
    Stored,
    candidates_of,
    context_of,
    scores_of,
)

PROFILE = RetrievalProfile().replaced(half_life_days=90.0, decay_floor=0.5)


@pytest.mark.parametrize(
    ("age_days", "floor", "factor"),
    [
        (0, 0, 1.0),
        (90, 0, 0.5),
        (180, 0, 0.25),
        (900, 0, 0.5**10),
        (90, 0.5, 0.75),
        (9e9, 0.5, 0.5),
    ],
)
def test_what_decays_halves_once_a_half_life(age_days: float, floor: float, factor: float) -> None:
    found = decay_factor(np.array([float(age_days)]), 90.0, floor)
    assert found.tolist() == pytest.approx([factor])


def test_a_half_life_of_almost_nothing_leaves_the_floor() -> None:
    assert decay_factor(np.array([0.0, 1e9]), 5e-324, 0.25).tolist() == [1.0, 0.25]


def test_an_old_answer_yields_to_a_slightly_weaker_new_one() -> None:
    lookups = MemoryLookups(
        [Stored(created_at_us=NOW_US - 90 * DAY_US), Stored(created_at_us=NOW_US - DAY_US)]
    )
    outcome = time_decay(candidates_of((0, 0.8), (1, 0.7)), context_of(lookups, PROFILE))
    assert outcome.candidates.positions.tolist() == [1, 0]
    assert scores_of(outcome.candidates)[0] == pytest.approx(0.6)
    assert outcome.reason_of is not None
    assert outcome.reason_of(0) == ("90.0 days old, half-life 90 days, floor 0.5 (factor 0.750)")


def test_undated_memories_and_dates_in_the_future_keep_their_score() -> None:
    lookups = MemoryLookups([Stored(), Stored(created_at_us=NOW_US + 400 * DAY_US)])
    before = candidates_of((0, 0.8), (1, 0.7))
    assert time_decay(before, context_of(lookups, PROFILE)).candidates is before


def test_age_is_that_of_the_moment_asked_about() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US - 180 * DAY_US)])
    context = context_of(lookups, PROFILE, now_us=NOW_US - 90 * DAY_US)
    assert scores_of(time_decay(candidates_of((0, 0.8)), context).candidates) == pytest.approx(
        {0: 0.6}
    )
