from __future__ import annotations

import numpy as np
import pytest

from noctuary.recall.candidates import PhaseOutcome, PositionRef
from noctuary.recall.phases import quality
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.selection import consolidation
from tests.support.lookups import (
    MemoryLookups,
    Stored,
    StoredSummary,
    candidates_of,
    context_of,
    scores_of,
)

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
    assert {d.reason for d in outcome.dropped} == {"stands behind summary {6}"}
    assert {d.facts["consolidated_into"] for d in outcome.dropped} == {PositionRef(6)}
    assert outcome.reason_of is not None
    assert outcome.reason_of(6) == (
        "stands for 2 of its 3 turns: the best, {0}, has 0.90, x quality 0.90"
    )
    assert outcome.annotations == {
        6: {"consolidation": {"is_consolidated": True, "source_count": 3}}
    }


def test_one_turn_alone_stays() -> None:
    outcome = run(ON, (0, 0.9), (5, 0.85))
    assert scores_of(outcome.candidates) == {0: 0.9, 5: 0.85}
    assert not outcome.dropped


def test_sources_are_named_if_wanted() -> None:
    outcome = run(ON.replaced(include_consolidated_sources=True), (1, 0.9), (2, 0.8))
    shown = outcome.annotations[6]["consolidation"]
    assert shown["sources"] == [PositionRef(0), PositionRef(1), PositionRef(2)]


def test_without_summaries_in_the_answer_no_turn_is_hidden() -> None:
    outcome = run(ON.replaced(include_consolidated_summaries=False), (0, 0.9), (1, 0.8), (5, 0.7))
    assert scores_of(outcome.candidates) == {0: 0.9, 1: 0.8, 5: 0.7}
    assert outcome.annotations == {
        0: {"consolidated_into": PositionRef(6)},
        1: {"consolidated_into": PositionRef(6)},
    }


def test_a_summary_is_found_by_expansion_only_if_all_its_turns_were() -> None:
    found = candidates_of((0, 0.9), (1, 0.8))
    for expanded, expected in (([True, True], True), ([True, False], False)):
        found.expanded[:] = expanded
        outcome = consolidation(found, context_of(HOUSE, ON))
        assert outcome.candidates.expanded.tolist() == [expected]


@pytest.mark.parametrize(
    ("confidence", "penalty", "expected"),
    [(1.0, 0.5, 1.0), (0.0, 0.5, 0.5), (0.8, 0.5, 0.9), (0.3, 0.0, 1.0), (7.0, 1.0, 1.0)],
)
def test_quality_as_in_libravdb(confidence: float, penalty: float, expected: float) -> None:
    assert quality(np.array([confidence]), penalty)[0] == pytest.approx(expected)


def test_a_store_without_summaries_is_left_alone() -> None:
    before = candidates_of((0, 0.9), (1, 0.8))
    assert consolidation(before, context_of(MemoryLookups([Stored()] * 2), ON)).candidates is before
