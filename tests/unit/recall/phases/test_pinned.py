from __future__ import annotations

import numpy as np
import pytest

from noctuary.recall.candidates import PhaseOutcome
from noctuary.recall.phases import choose_pinned, pinned, pinned_score, pinning_score
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import (
    HOUR_US,
    NOW_US,
    MemoryLookups,
    Stored,
    Used,
    candidates_of,
    context_of,
    scores_of,
)

PROFILE = RetrievalProfile().replaced(pinned_memory_enabled=True, pinned_boost=0.5)
BOTH = candidates_of((0, 0.6), (1, 0.5))


def lifted(outcome: PhaseOutcome) -> list[int]:
    assert set(outcome.annotations) <= set(outcome.candidates.positions.tolist())
    return sorted(outcome.annotations)


def test_a_habit_is_lifted_by_its_share_of_what_is_missing() -> None:
    lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=14, days=6)})
    outcome = pinned(BOTH, context_of(lookups, PROFILE))
    assert scores_of(outcome.candidates) == {1: 0.75, 0: 0.6}
    assert outcome.candidates.positions.tolist() == [1, 0]
    reason = "recalls lately: 14; days with recalls: 6"
    assert outcome.annotations == {1: {"pinned_reason": reason}}
    assert outcome.notes == {"pinned": 1, "pinned_candidates": 1, "pinned_tokens": 2}
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == f"pinned: {reason}"


def test_four_recalls_are_no_habit_yet_and_five_are() -> None:
    for recent, expected in ((4, list[int]()), (5, [1])):
        lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=recent)})
        assert lifted(pinned(BOTH, context_of(lookups, PROFILE))) == expected


def test_the_threshold_itself_pins() -> None:
    lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=1000)})
    at_the_ceiling = PROFILE.replaced(pinned_ltp_threshold=2.0)
    assert lifted(pinned(BOTH, context_of(lookups, at_the_ceiling))) == [1]


def test_a_ceiling_below_the_threshold_pins_no_habit() -> None:
    lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=1000)})
    low = PROFILE.replaced(ltp_max_boost=1.4)
    assert pinned(BOTH, context_of(lookups, low)).candidates is BOTH


def test_the_tag_and_the_date_pin_unless_the_profile_says_no() -> None:
    lookups = MemoryLookups(
        [
            Stored(tags=("home", "Pinned ")),
            Stored(created_at_us=NOW_US - 48 * HOUR_US),
            Stored(created_at_us=NOW_US - 49 * HOUR_US),
            Stored(tags=("unpinned",)),
        ]
    )
    four = candidates_of((3, 0.9), (2, 0.8), (1, 0.7), (0, 0.6))
    outcome = pinned(four, context_of(lookups, PROFILE))
    assert outcome.annotations == {
        0: {"pinned_reason": 'tagged "pinned"'},
        1: {"pinned_reason": "filed 48.0 h ago (window 48 h)"},
    }
    without = PROFILE.replaced(pinned_include_tagged=False)
    assert pinned(four, context_of(lookups, without)).candidates is four


def test_only_what_the_query_found_is_lifted_and_nothing_is_inserted() -> None:
    lookups = MemoryLookups([Stored()] * 3, used={2: Used(recent=100, days=30)})
    outcome = pinned(BOTH, context_of(lookups, PROFILE))
    assert outcome.candidates is BOTH


def test_days_of_use_decide_who_gets_the_last_place() -> None:
    used = {0: Used(recent=20, days=1), 1: Used(recent=10, days=9)}
    lookups = MemoryLookups([Stored(), Stored()], used=used)
    one = PROFILE.replaced(pinned_max_items=1)
    assert lifted(pinned(BOTH, context_of(lookups, one))) == [1]


@pytest.mark.parametrize(
    "lookups",
    [
        MemoryLookups([Stored(tags=("pinned",)), Stored(tags=("pinned",))]),
        # Both at the ceiling of the multiplier: more recalls say nothing more.
        MemoryLookups([Stored(), Stored()], used={0: Used(recent=100), 1: Used(recent=50)}),
    ],
    ids=["tagged", "used"],
)
def test_of_equal_pinning_scores_the_better_answer_is_pinned(lookups: MemoryLookups) -> None:
    one = PROFILE.replaced(pinned_max_items=1)
    assert lifted(pinned(candidates_of((1, 0.6), (0, 0.5)), context_of(lookups, one))) == [1]


def test_one_that_is_too_long_does_not_end_the_list() -> None:
    used = {0: Used(recent=50, days=9), 1: Used(recent=5, days=1)}
    lookups = MemoryLookups([Stored("x" * 8004), Stored("y" * 8000)], used=used)
    outcome = pinned(BOTH, context_of(lookups, PROFILE))
    assert lifted(outcome) == [1]
    assert outcome.notes["pinned_tokens"] == 2000


def test_the_budget_is_of_tokens_by_script() -> None:
    used = {0: Used(recent=50), 1: Used(recent=50)}
    lookups = MemoryLookups([Stored("语" * 16), Stored("word" * 4)], used=used)
    ten = PROFILE.replaced(pinned_max_tokens=10)
    outcome = pinned(BOTH, context_of(lookups, ten))
    assert (lifted(outcome), outcome.notes["pinned_tokens"]) == ([0], 10)


@pytest.mark.parametrize(
    ("tokens", "items", "budget", "chosen"),
    [
        ([5, 5, 5], 2, 100, [2, 0]),
        ([5, 5, 5], 9, 10, [2, 0]),
        ([1, 5, 50], 9, 10, [0, 1]),
        ([0, 0, 0], 9, 0, [2, 0, 1]),
        ([1, 1, 1], 9, 0, []),
    ],
)
def test_choice(tokens: list[int], items: int, budget: int, chosen: list[int]) -> None:
    assert choose_pinned(np.array([1.0, 0.5, 2.0]), tokens, items, budget) == chosen


def test_pinning_scores_in_closed_form() -> None:
    found = pinning_score(np.array([1.0, 2.0, 2.0, 2.0]), np.array([0, 5, 10, 99]))
    assert found.tolist() == pytest.approx([1.0, 4.0, 6.0, 6.0])


def test_a_boost_that_is_not_scaled_back_yet_is_not_lowered() -> None:
    assert pinned_score(np.array([1.5, 1.0, 0.0]), 0.04).tolist() == [1.5, 1.0, 0.04]


def test_a_store_without_usage_dates_or_tags_pins_nothing() -> None:
    assert pinned(BOTH, context_of(MemoryLookups([Stored(), Stored()]), PROFILE)).candidates is BOTH


def test_no_candidates() -> None:
    lookups = MemoryLookups([Stored()], used={0: Used(recent=50)})
    nothing = candidates_of()
    assert pinned(nothing, context_of(lookups, PROFILE)).candidates is nothing
