from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from noctuary.recall.candidates import Candidates, PhaseOutcome
from noctuary.recall.engine import Search
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.selection import cross_wing_balancing, mmr
from tests.support.lookups import MemoryLookups, Stored, candidates_of, context_of

# Scores, wings and k of RFC 914's example: four of five results from "work", 0.71 falls to 0.47.
RFC_SCORES = (0.99, 0.98, 0.97, 0.96, 0.71, 0.69)
RFC_WINGS = ("work", "work", "work", "work", "work", "flights")


def balanced(before: Candidates, context: Search) -> tuple[PhaseOutcome, PhaseOutcome]:
    plain = mmr(before, context)
    return plain, cross_wing_balancing(plain.candidates, context)


def scene(
    scores: Sequence[float], wings: Sequence[str | None], k: int, gamma: float = 0.3
) -> tuple[Candidates, Search]:
    lookups = MemoryLookups([Stored(wing=wing) for wing in wings])
    profile = RetrievalProfile(mmr_enabled=True, mmr_lambda=1.0, wing_diversity_weight=gamma)
    return candidates_of(*enumerate(scores)), context_of(lookups, profile, k=k)


def test_the_example_of_the_rfc() -> None:
    _, outcome = balanced(*scene(RFC_SCORES, RFC_WINGS, k=5))
    assert sorted(outcome.candidates.positions.tolist()) == [0, 1, 2, 3, 5]
    (gone,) = outcome.dropped
    assert gone.phase == "cross_wing_balancing"
    assert gone.position == 4
    assert gone.reason == "wing 'work' already saturated (4/5 selected results)"
    assert gone.facts == {
        "wing_saturation": pytest.approx(0.80),
        "original_mmr_score": pytest.approx(0.71),
        "penalized_score": pytest.approx(0.47),
    }
    assert gone.score == pytest.approx(0.71)


def test_a_small_wing_surfaces_and_the_first_stays_first() -> None:
    scores = [0.9, *(0.8 - i / 1000 for i in range(20)), 0.6]
    _, outcome = balanced(*scene(scores, ["work"] * 21 + ["flights"], k=5))
    assert outcome.candidates.positions.tolist()[:2] == [0, 21]
    assert {d.phase for d in outcome.dropped[:1]} == {"cross_wing_balancing"}
    assert outcome.dropped[-1].reason == "ranked 22nd, 5 asked"
    assert len(outcome.dropped) == 22 - 5


def test_what_similarity_pushed_out_is_told_so() -> None:
    east, north = (1.0, 0.0), (0.0, 1.0)
    lookups = MemoryLookups(
        [
            Stored(wing="a", vector=east),
            Stored(wing="b", vector=east),
            Stored(wing="c", vector=north),
        ]
    )
    profile = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.3)
    before = candidates_of((0, 0.9), (1, 0.8), (2, 0.7))
    _, outcome = balanced(before, context_of(lookups, profile, k=2))
    assert outcome.candidates.positions.tolist() == [0, 2]
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position) == ("mmr", 1)
    assert gone.reason.startswith("similar (1.00) to {0}")


def test_what_the_hook_needs_is_in_the_notes() -> None:
    _, outcome = balanced(*scene(RFC_SCORES, RFC_WINGS, k=5))
    notes = outcome.notes
    assert (notes["candidates_before"], notes["candidates_after"]) == (6, 5)
    assert len(notes["wing_saturation"]) == outcome.candidates.size
    assert notes["wing_saturation"][0] == 0.0
    assert notes["wing_shares"] == {"work": 0.8, "flights": 0.2}
    assert notes["gamma"] == 0.3


def test_reasons_tell_the_crowd() -> None:
    _, outcome = balanced(*scene((0.9, 0.8, 0.1), ("wo{7}rk", "wo{7}rk", None), k=3))
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == "wing 'wo(7)rk' holds 100% of those selected before it: -0.30"
    assert outcome.reason_of(0) == "wing 'wo(7)rk' holds 0% of those selected before it: -0.00"
    assert outcome.reason_of(2).startswith("wing (none) holds 0%")


def test_order_and_scores_of_both_phases_agree_where_no_wing_is_crowded() -> None:
    generator = np.random.default_rng(3)
    raw = generator.normal(size=(30, 16))
    vectors = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    lookups = MemoryLookups(
        [Stored(wing=str(i), vector=tuple(v.tolist())) for i, v in enumerate(vectors)]
    )
    profile = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.3)
    before = candidates_of(*((i, 0.9 - i / 100) for i in range(30)))
    plain, outcome = balanced(before, context_of(lookups, profile, k=30))
    assert outcome.candidates.positions.tolist() == plain.candidates.positions.tolist()
    assert outcome.candidates.scores.tolist() == plain.candidates.scores.tolist()


def test_without_mmr_before_it_nothing_is_selected() -> None:
    before, context = scene(RFC_SCORES, RFC_WINGS, k=2)
    outcome = cross_wing_balancing(before, context)
    assert outcome.candidates is before
    assert outcome.notes == {"applied": False}


def test_nobody_is_asked() -> None:
    _, outcome = balanced(*scene(RFC_SCORES, RFC_WINGS, k=0))
    assert outcome.candidates.size == 0
    assert len(outcome.dropped) == 6
