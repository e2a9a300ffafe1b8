from __future__ import annotations

import numpy as np

from noctuary.recall.candidates import PositionRef
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.selection import MOST_PICKS, mmr
from tests.support.lookups import MemoryLookups, Stored, candidates_of, context_of

EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)
PLAIN = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.0)


def house(*vectors: tuple[float, float] | None, wings: str = "") -> MemoryLookups:
    named = [*wings] or [None] * len(vectors)
    return MemoryLookups([Stored(vector=v, wing=w) for v, w in zip(vectors, named, strict=True)])


def test_a_near_copy_makes_room_for_something_else_and_says_so() -> None:
    lookups = house(EAST, (0.8, 0.6), NORTH)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.85), (2, 0.8)), context_of(lookups, PLAIN, k=2))
    assert outcome.candidates.positions.tolist() == [0, 2]
    assert np.allclose(outcome.candidates.scores, [0.63, 0.56])
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position, gone.score) == ("mmr", 1, 0.85)
    assert gone.reason == "similar (0.80) to {0}, which was selected before it"
    assert gone.facts["similar_to"] == PositionRef(0)
    assert abs(gone.facts["penalized_score"] - (0.7 * 0.85 - 0.3 * 0.8)) < 1e-6


def test_who_was_too_far_down_before_is_told_its_rank() -> None:
    lookups = house(EAST, NORTH, EAST)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.85), (2, 0.2)), context_of(lookups, PLAIN, k=2))
    assert [d.reason for d in outcome.dropped] == ["ranked 3rd, 2 asked"]


def test_notes_are_those_of_the_reference() -> None:
    lookups = house(EAST, (0.6, 0.8), NORTH)
    notes = mmr(candidates_of((0, 0.9), (1, 0.88), (2, 0.1)), context_of(lookups, PLAIN, k=2)).notes
    assert notes == {
        "applied": True,
        "lambda": 0.7,
        "candidates_before_mmr": 3,
        "candidates_after_mmr": 2,
        "max_internal_similarity": notes["max_internal_similarity"],
    }
    assert abs(notes["max_internal_similarity"] - 0.6) < 1e-6


def test_reasons_name_the_neighbour() -> None:
    lookups = house(EAST, (0.8, 0.6), WEST)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.8), (2, 0.1)), context_of(lookups, PLAIN, k=3))
    assert outcome.reason_of is not None
    assert outcome.reason_of(0) == "0.7 x relevance 0.90"
    assert outcome.reason_of(1) == "0.7 x relevance 0.80 - 0.3 x similarity 0.80 to {0}"


def test_a_floor_and_a_ceiling_are_named() -> None:
    lookups = house(EAST, EAST, NORTH)
    profile = PLAIN.replaced(mmr_lambda=0.1)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.8), (2, 0.7)), context_of(lookups, profile))
    assert outcome.reason_of is not None
    assert outcome.reason_of(1).endswith(", at least 0")


def test_without_vectors_nothing_is_similar_and_a_warning_says_so() -> None:
    lookups = house(None, None)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.8)), context_of(lookups, PLAIN))
    assert [w.code for w in outcome.warnings] == ["mmr_without_vectors"]
    assert np.allclose(outcome.candidates.scores, [0.63, 0.56])


def test_all_relevance_needs_no_vectors_and_changes_nothing() -> None:
    before = candidates_of((0, 0.9), (1, 0.8))
    outcome = mmr(before, context_of(house(None, None), PLAIN.replaced(mmr_lambda=1.0)))
    assert not outcome.warnings
    assert outcome.candidates.scores.tolist() == [0.9, 0.8]
    assert outcome.candidates.positions.tolist() == [0, 1]


def test_where_wings_are_to_be_balanced_it_keeps_everybody_and_the_relevance() -> None:
    lookups = house(EAST, EAST, NORTH, wings="aab")
    profile = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.3)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.8), (2, 0.7)), context_of(lookups, profile, k=1))
    assert outcome.candidates.positions.tolist() == [0, 2, 1]
    assert outcome.candidates.relevance is not None
    assert outcome.candidates.relevance.tolist() == [0.9, 0.7, 0.8]
    assert not outcome.dropped


def test_one_wing_has_nothing_to_balance() -> None:
    lookups = house(EAST, EAST, wings="aa")
    profile = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.3)
    outcome = mmr(candidates_of((0, 0.9), (1, 0.8)), context_of(lookups, profile, k=1))
    assert outcome.candidates.positions.tolist() == [0]
    assert outcome.candidates.relevance is None


def test_a_bound_that_bites_is_reported() -> None:
    size = MOST_PICKS + 1
    lookups = house(*[None] * size)
    many = candidates_of(*((p, 1 - p / 1000) for p in range(size)))
    profile = PLAIN.replaced(mmr_lambda=1.0)
    bitten = mmr(many, context_of(lookups, profile, k=size))
    assert [w.code for w in bitten.warnings] == ["mmr_bounded"]
    assert bitten.candidates.size == size
    assert not mmr(many, context_of(lookups, profile, k=MOST_PICKS)).warnings


def test_nobody_asked_and_nobody_there() -> None:
    lookups = house(EAST)
    assert mmr(candidates_of(), context_of(lookups, PLAIN)).candidates.size == 0
    assert mmr(candidates_of((0, 0.9)), context_of(lookups, PLAIN, k=0)).candidates.size == 0
