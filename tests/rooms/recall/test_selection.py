"""The phases that choose: diversity, balance of wings, summaries for their turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.recall import selection
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.search import Candidates, PhaseOutcome, PositionRef, Search
from noctuary.recall.selection import (
    MOST_PICKS,
    consolidation,
    cross_wing_balancing,
    mmr,
    mmr_score,
    ordinal,
    penalized,
    quoted,
    select,
    wing_codes,
    wing_saturation,
)
from tests.support.lookups import (
    MemoryLookups,
    Stored,
    StoredSummary,
    candidates_of,
    context_of,
    reason_of,
    scores_of,
)

# Products and sums of these are exact, so that the two implementations agree to the last bit.
UNIT = (
    (1.0, 0.0, 0.0, 0.0),
    (0.0, 1.0, 0.0, 0.0),
    (0.5, 0.5, 0.5, 0.5),
    (0.5, -0.5, 0.5, -0.5),
    (-0.5, -0.5, 0.5, 0.5),
    (-1.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0),
)


def naive(
    relevance: Sequence[float],
    k: int,
    share: float,
    vectors: Sequence[Sequence[float]],
    wings: Sequence[str | None],
    gamma: float,
) -> tuple[list[int], list[float]]:
    """The formulas word for word, O(m k^2)."""
    chosen: list[int] = []
    reached: list[float] = []

    def value(d: int) -> float:
        cosines = [sum(a * b for a, b in zip(vectors[d], vectors[s], strict=True)) for s in chosen]
        crowd = sum(wings[s] == wings[d] for s in chosen) / len(chosen) if chosen else 0.0
        return share * relevance[d] - (1 - share) * max([0.0, *cosines]) - gamma * crowd

    while len(chosen) < min(k, len(relevance)):
        waiting = [d for d in range(len(relevance)) if d not in chosen]
        best = max(waiting, key=value)
        reached.append(value(best))
        chosen.append(best)
    rest = sorted((d for d in range(len(relevance)) if d not in chosen), key=lambda d: -value(d))
    scores: list[float] = []
    for v in reached + [value(d) for d in rest]:
        scores.append(min([max(v, 0.0), *scores[-1:]]))
    return chosen + rest, scores


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[float], list[tuple[float, ...]], list[str | None]]:
    size = draw(st.integers(0, 12))
    sixteenths = draw(st.lists(st.integers(0, 16), min_size=size, max_size=size))
    vectors = draw(st.lists(st.sampled_from(UNIT), min_size=size, max_size=size))
    wings = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=size, max_size=size))
    return sorted((n / 16 for n in sixteenths), reverse=True), vectors, wings


def as_rows(
    vectors: Sequence[Sequence[float]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array(vectors, dtype=np.float32).reshape(len(vectors), 4)


@given(
    pools(),
    st.integers(0, 14),
    st.sampled_from([0.0, 0.25, 0.75, 1.0]),
    st.sampled_from([0.0, 0.5]),
)
def test_equals_the_formulas_word_for_word(
    pool: tuple[list[float], list[tuple[float, ...]], list[str | None]],
    k: int,
    share: float,
    gamma: float,
) -> None:
    relevance, vectors, wings = pool
    order, scores = naive(relevance, k, share, vectors, wings, gamma)
    found = select(
        np.array(relevance, dtype=np.float64),
        k,
        share,
        vectors=as_rows(vectors),
        codes=wing_codes(wings),
        gamma=gamma,
    )
    assert found.order.tolist() == order
    assert found.scores.tolist() == pytest.approx(scores, abs=1e-12)


def test_the_numbers_of_the_references() -> None:
    assert penalized(np.array([0.71]), np.array([0.80]), 0.3)[0] == pytest.approx(0.47, abs=1e-12)
    assert wing_saturation(np.array([0, 1]), np.array([4, 1])).tolist() == [0.8, 0.2]
    scores = mmr_score(np.array([0.9, 0.9]), np.array([0.0, 1.0]), 0.7)
    assert scores.tolist() == pytest.approx([0.63, 0.33])
    assert wing_codes([None, "a", None, "b", "a"]).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.parametrize(
    ("relevance", "vectors", "order", "nearest", "similarity"),
    [
        ([0.9, 0.88, 0.7], [0, 0, 1], [0, 2, 1], [-1, -1, 0], [0.0, 0.0, 1.0]),
        ([0.9, 0.8], [0, 5], [0, 1], [-1, -1], [0.0, 0.0]),
        ([0.5, 0.5], [6, 6], [0, 1], [-1, -1], [0.0, 0.0]),
        ([0.5, 0.5, 0.5], [0, 0, 0], [0, 1, 2], [-1, 0, 0], [0.0, 1.0, 1.0]),
    ],
    ids=["a-copy-goes-behind-what-is-new", "opposite-is-as-different-as-unrelated",
         "without-a-vector-similar-to-nobody", "equal-values-in-the-order-given"],
)  # fmt: skip
def test_who_is_similar_to_whom(
    relevance: list[float], vectors: list[int], order: list[int], nearest: list[int],
    similarity: list[float],
) -> None:  # fmt: skip
    rows = as_rows([UNIT[v] for v in vectors])
    found = select(np.array(relevance), 2, 0.7, vectors=rows)
    assert found.order.tolist() == order
    assert found.nearest.tolist() == nearest
    assert found.similarity.tolist() == similarity
    assert found.max_internal_similarity == similarity[1]


def test_saturation_is_zero_at_the_first_pick_and_a_share_later() -> None:
    codes = wing_codes(["work", "work", "flights", "work"])
    found = select(np.array([0.9, 0.8, 0.1, 0.05]), 3, 1.0, codes=codes, gamma=0.1)
    assert found.order.tolist() == [0, 1, 2, 3]
    assert found.saturation.tolist() == [0.0, 1.0, 0.0, pytest.approx(2 / 3)]


def test_a_very_long_list_is_selected_one_by_one_only_at_its_head() -> None:
    size = MOST_PICKS + 10
    found = select(np.linspace(1, 0.5, size), size, 0.7, codes=wing_codes(["a"] * size), gamma=0.3)
    assert found.picked == selection.MOST_PICKS
    assert sorted(found.order.tolist()) == list(range(size))
    assert (np.diff(found.scores) <= 0).all()


EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)
PLAIN = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.0)


def house(*vectors: tuple[float, float] | None, wings: str = "") -> MemoryLookups:
    named = [*wings] or [None] * len(vectors)
    return MemoryLookups([Stored(vector=v, wing=w) for v, w in zip(vectors, named, strict=True)])


def selected(
    lookups: MemoryLookups, *scores: float, k: int = 10, profile: RetrievalProfile = PLAIN
) -> PhaseOutcome:
    return mmr(candidates_of(*enumerate(scores)), context_of(lookups, profile, k=k))


def test_a_near_copy_makes_room_for_something_else_and_says_so() -> None:
    outcome = selected(house(EAST, (0.8, 0.6), NORTH), 0.9, 0.85, 0.8, k=2)
    assert outcome.candidates.positions.tolist() == [0, 2]
    assert np.allclose(outcome.candidates.scores, [0.63, 0.56])
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position, gone.score) == ("mmr", 1, 0.85)
    assert gone.reason == "similar (0.80) to {0}, which was selected before it"
    assert gone.facts["similar_to"] == PositionRef(0)
    assert abs(gone.facts["penalized_score"] - (0.7 * 0.85 - 0.3 * 0.8)) < 1e-6
    far_down = selected(house(EAST, NORTH, EAST), 0.9, 0.85, 0.2, k=2)
    assert [d.reason for d in far_down.dropped] == ["ranked 3rd, 2 asked"]


def test_notes_are_those_of_the_reference() -> None:
    notes = selected(house(EAST, (0.6, 0.8), NORTH), 0.9, 0.88, 0.1, k=2).notes
    assert notes == {
        "applied": True, "lambda": 0.7, "candidates_before_mmr": 3, "candidates_after_mmr": 2,
        "max_internal_similarity": pytest.approx(0.6, abs=1e-6),
    }  # fmt: skip


def test_reasons_name_the_neighbour_and_the_floor() -> None:
    outcome = selected(house(EAST, (0.8, 0.6), WEST), 0.9, 0.8, 0.1, k=3)
    assert reason_of(outcome, 0) == "0.7 x relevance 0.90"
    assert reason_of(outcome, 1) == "0.7 x relevance 0.80 - 0.3 x similarity 0.80 to {0}"
    floored = PLAIN.replaced(mmr_lambda=0.1)
    outcome = selected(house(EAST, EAST, NORTH), 0.9, 0.8, 0.7, profile=floored)
    assert reason_of(outcome, 1).endswith(", at least 0")


@pytest.mark.parametrize(
    ("share", "scores", "codes"),
    [(0.7, [0.63, 0.56], ["mmr_without_vectors"]), (1.0, [0.9, 0.8], [])],
)
def test_all_relevance_needs_no_vectors(
    share: float, scores: list[float], codes: list[str]
) -> None:
    profile = PLAIN.replaced(mmr_lambda=share)
    outcome = selected(house(None, None), 0.9, 0.8, profile=profile)
    assert outcome.candidates.positions.tolist() == [0, 1]
    assert outcome.candidates.scores.tolist() == pytest.approx(scores)
    assert [w.code for w in outcome.warnings] == codes


def test_where_wings_are_to_be_balanced_it_keeps_everybody_and_the_relevance() -> None:
    profile = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.3)
    outcome = selected(house(EAST, EAST, NORTH, wings="aab"), 0.9, 0.8, 0.7, k=1, profile=profile)
    assert outcome.candidates.positions.tolist() == [0, 2, 1]
    assert outcome.candidates.relevance is not None
    assert outcome.candidates.relevance.tolist() == [0.9, 0.7, 0.8]
    assert not outcome.dropped
    one_wing = selected(house(EAST, EAST, wings="aa"), 0.9, 0.8, k=1, profile=profile)
    assert one_wing.candidates.positions.tolist() == [0]
    assert one_wing.candidates.relevance is None


def test_a_bound_that_bites_is_reported() -> None:
    size = MOST_PICKS + 1
    many, profile = house(*[None] * size), PLAIN.replaced(mmr_lambda=1.0)
    scores = [1 - p / 1000 for p in range(size)]
    bitten = selected(many, *scores, k=size, profile=profile)
    assert [w.code for w in bitten.warnings] == ["mmr_bounded"]
    assert bitten.candidates.size == size
    assert not selected(many, *scores, k=MOST_PICKS, profile=profile).warnings
    assert selected(many).candidates.size == selected(many, 0.9, k=0).candidates.size == 0


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
    assert (gone.phase, gone.position) == ("cross_wing_balancing", 4)
    assert gone.reason == "wing 'work' already saturated (4/5 selected results)"
    assert gone.facts == {
        "wing_saturation": pytest.approx(0.80),
        "original_mmr_score": pytest.approx(0.71),
        "penalized_score": pytest.approx(0.47),
    }
    assert gone.score == pytest.approx(0.71)
    notes = outcome.notes
    assert (notes["candidates_before"], notes["candidates_after"]) == (6, 5)
    assert len(notes["wing_saturation"]) == outcome.candidates.size
    assert notes["wing_saturation"][0] == 0.0
    assert notes["wing_shares"] == {"work": 0.8, "flights": 0.2}
    assert notes["gamma"] == 0.3


def test_a_small_wing_surfaces_and_the_first_stays_first() -> None:
    scores = [0.9, *(0.8 - i / 1000 for i in range(20)), 0.6]
    _, outcome = balanced(*scene(scores, ["work"] * 21 + ["flights"], k=5))
    assert outcome.candidates.positions.tolist()[:2] == [0, 21]
    assert {d.phase for d in outcome.dropped[:1]} == {"cross_wing_balancing"}
    assert outcome.dropped[-1].reason == "ranked 22nd, 5 asked"
    assert len(outcome.dropped) == 22 - 5


def test_what_similarity_pushed_out_is_told_so() -> None:
    profile = RetrievalProfile(mmr_enabled=True, wing_diversity_weight=0.3)
    before = candidates_of((0, 0.9), (1, 0.8), (2, 0.7))
    lookups = house(EAST, EAST, NORTH, wings="abc")
    _, outcome = balanced(before, context_of(lookups, profile, k=2))
    assert outcome.candidates.positions.tolist() == [0, 2]
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position) == ("mmr", 1)
    assert gone.reason.startswith("similar (1.00) to {0}")


def test_reasons_tell_the_crowd() -> None:
    _, outcome = balanced(*scene((0.9, 0.8, 0.1), ("wo{7}rk", "wo{7}rk", None), k=3))
    crowd = "wing 'wo(7)rk' holds {} of those selected before it: {}"
    assert reason_of(outcome, 1) == crowd.format("100%", "-0.30")
    assert reason_of(outcome, 0) == crowd.format("0%", "-0.00")
    assert reason_of(outcome, 2).startswith("wing (none) holds 0%")


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
    _, outcome = balanced(*scene(RFC_SCORES, RFC_WINGS, k=0))
    assert (outcome.candidates.size, len(outcome.dropped)) == (0, 6), "nobody is asked"


ON = RetrievalProfile(consolidation_enabled=True, quality_penalty=0.5)


# Five turns and a fact; the summary of turns 0, 1 and 2 stands at position 6.
HOUSE = MemoryLookups(
    [Stored(is_turn=True)] * 5 + [Stored()],
    summaries=[StoredSummary("what was said", (0, 1, 2), confidence=0.8)],
)


def run(profile: RetrievalProfile, *scored: tuple[int, float]) -> PhaseOutcome:
    return consolidation(candidates_of(*scored), context_of(HOUSE, profile))


def test_two_turns_are_replaced_by_their_summary() -> None:
    outcome = run(ON, (0, 0.9), (5, 0.85), (2, 0.7), (4, 0.6))
    assert scores_of(outcome.candidates) == pytest.approx({5: 0.85, 6: 0.81, 4: 0.6})
    assert outcome.candidates.positions.tolist() == [5, 6, 4]
    assert [(d.position, d.score) for d in outcome.dropped] == [(0, 0.9), (2, 0.7)]
    assert {d.reason for d in outcome.dropped} == {"summary {6} replaces it"}
    assert {d.facts["consolidated_into"] for d in outcome.dropped} == {PositionRef(6)}
    said = "stands for 2 of its 3 turns: the best, {0}, has 0.90, x quality 0.90"
    assert reason_of(outcome, 6) == said
    assert outcome.annotations == {
        6: {"consolidation": {"is_consolidated": True, "source_count": 3}}
    }


def test_one_turn_alone_stays() -> None:
    outcome = run(ON, (0, 0.9), (5, 0.85))
    assert scores_of(outcome.candidates) == {0: 0.9, 5: 0.85}
    assert not outcome.dropped
    before = candidates_of((0, 0.9), (1, 0.8))
    without = context_of(MemoryLookups([Stored()] * 2), ON)
    assert consolidation(before, without).candidates is before, "there is no summary"


@pytest.mark.parametrize(("other", "expected"), [(True, True), (False, False)])
def test_a_summary_is_expanded_only_if_all_its_turns_were(other: bool, expected: bool) -> None:
    found = candidates_of((0, 0.9), (1, 0.8))
    found.expanded[:] = [True, other]
    outcome = consolidation(found, context_of(HOUSE, ON))
    assert outcome.candidates.expanded.tolist() == [expected]


def test_ranks_and_names_in_a_sentence() -> None:
    numbers = [1, 2, 3, 4, 11, 12, 13, 21, 37, 112, 1003]
    said = "1st 2nd 3rd 4th 11th 12th 13th 21st 37th 112th 1003rd"
    assert " ".join(map(ordinal, numbers)) == said
    assert quoted("wing {12}") == "'wing (12)'", "it cannot pass for a memory"
    assert quoted(None) == "(none)"


def test_a_vector_that_is_no_number_counts_as_unlike_everything() -> None:
    vectors = np.array([[1.0, 0.0], [np.nan, np.nan], [1.0, 0.0]], dtype=np.float32)
    chosen = select(np.array([0.9, 0.8, 0.7]), 3, 0.5, vectors=vectors)
    assert chosen.order.tolist() == [0, 1, 2]
    assert np.isfinite(chosen.values).all()
    assert chosen.similarity.tolist() == [0.0, 0.0, 1.0]
