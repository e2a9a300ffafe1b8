from __future__ import annotations

import numpy as np
import pytest

from noctuary.recall.candidates import Candidates
from noctuary.recall.phases import scale
from tests.support.lookups import MemoryLookups, candidates_of, context_of, scores_of

CONTEXT = context_of(MemoryLookups([]))


def test_boosted_scores_come_back_into_range_with_their_ratios() -> None:
    outcome = scale(candidates_of((7, 1.6), (3, 0.8), (5, 0.4)), CONTEXT)
    assert scores_of(outcome.candidates) == pytest.approx({7: 1.0, 3: 0.5, 5: 0.25})
    assert outcome.candidates.positions.tolist() == [7, 3, 5]
    assert outcome.reason_of is not None
    assert outcome.reason_of(3) == "boosts lifted the best score to 1.600: all are divided by it"


@pytest.mark.parametrize("best", [1.0, 0.3, 0.0])
def test_scores_in_range_stay_to_the_last_bit(best: float) -> None:
    before = candidates_of((1, best), (0, best / 3))
    assert scale(before, CONTEXT).candidates is before


def test_nothing_is_left_alone() -> None:
    nothing = Candidates(
        np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64), np.empty(0, dtype=np.bool_)
    )
    assert scale(nothing, CONTEXT).candidates is nothing
