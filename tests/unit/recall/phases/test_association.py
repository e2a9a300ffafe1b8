from __future__ import annotations

import math

import numpy as np
import pytest

from noctuary.recall.phases import association, association_factor
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import MemoryLookups, Stored, candidates_of, context_of, scores_of

STORE = [Stored() for _ in range(4)]


@pytest.mark.parametrize(
    ("together", "factor"), [(0, 1.0), (1, 1.10397), (7, 1.31192), (27, 1.49983), (28, 1.5)]
)
def test_the_factor_grows_with_the_logarithm(together: int, factor: float) -> None:
    found = association_factor(np.array([together]), 0.15, 1.5)
    assert found.tolist() == pytest.approx([factor], abs=5e-5)


def test_what_was_recalled_with_the_other_candidates_overtakes() -> None:
    lookups = MemoryLookups(STORE, together={frozenset((1, 2)): 5, frozenset((1, 0)): 2})
    outcome = association(
        candidates_of((0, 0.6), (3, 0.55), (1, 0.5), (2, 0.1)), context_of(lookups)
    )
    gained = {0: 1 + 0.15 * math.log(3), 1: 1 + 0.15 * math.log(8), 2: 1 + 0.15 * math.log(6)}
    assert scores_of(outcome.candidates) == pytest.approx(
        {0: 0.6 * gained[0], 1: 0.5 * gained[1], 2: 0.1 * gained[2], 3: 0.55}
    )
    assert outcome.candidates.positions.tolist() == [0, 1, 3, 2]
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == "recalls with other candidates: 7 (factor 1.312)"


def test_pairs_with_memories_that_are_no_candidates_do_not_count() -> None:
    lookups = MemoryLookups(STORE, together={frozenset((0, 3)): 100})
    before = candidates_of((0, 0.6), (1, 0.5))
    assert association(before, context_of(lookups)).candidates is before


def test_coefficient_and_bound_are_the_profiles() -> None:
    lookups = MemoryLookups(STORE, together={frozenset((0, 1)): 1000})
    bounded = RetrievalProfile().replaced(association_coefficient=1e9, association_max_boost=1.25)
    found = association(candidates_of((0, 0.4), (1, 0.2)), context_of(lookups, bounded))
    assert scores_of(found.candidates) == {0: 0.5, 1: 0.25}
