"""What the night found, as the phase uses it; the search among the candidates has its own tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from noctuary.recall import selection
from noctuary.recall.candidates import Candidates, PhaseOutcome, PositionRef, Successor
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.selection import supersede
from tests.support.lookups import (
    DAY_US,
    NOW_US,
    MemoryLookups,
    Stored,
    candidates_of,
    context_of,
    scores_of,
)

FILTER = RetrievalProfile(supersede_filter_enabled=True)
ANNOTATE = FILTER.replaced(supersede_action="annotate")


def link(newer: int, confidence: int = 1, **changes: Any) -> Successor:
    return Successor(newer, "newer_value", confidence, None, 30, newer)._replace(**changes)


def near(newer: int, similarity: float = 0.9, days: int = 30, confidence: int = 1) -> Successor:
    return Successor(newer, "near_duplicate", confidence, similarity, days, newer)


def store(links: Mapping[int, Successor], count: int = 6) -> MemoryLookups:
    """Memories that no search would pair: none has a date."""
    memories = [Stored(vector=(1.0, float(i))) for i in range(count)]
    return MemoryLookups(memories, successors=links)


def run(
    profile: RetrievalProfile, links: Mapping[int, Successor], *scored: tuple[int, float]
) -> PhaseOutcome:
    return supersede(candidates_of(*scored), context_of(store(links), profile))


def test_the_successor_comes_in_where_the_older_was() -> None:
    outcome = run(FILTER, {0: link(3)}, (1, 0.9), (0, 0.8), (2, 0.8))
    assert outcome.candidates.positions.tolist() == [1, 3, 2]
    assert scores_of(outcome.candidates) == {1: 0.9, 3: 0.8, 2: 0.8}
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position, gone.score) == ("supersede", 0, 0.8)
    assert gone.reason == "superseded by {3}: newer_value, evidence {3}"
    assert gone.facts == {
        "superseded_by": PositionRef(3),
        "supersede_reason": "newer_value",
        "confidence": "medium",
        "evidence": PositionRef(3),
        "age_gap_days": 30,
    }
    assert outcome.reason_of is not None
    assert outcome.reason_of(3) == "takes the place of the older {0}"
    assert outcome.notes == {
        "checked": 3,
        "action": "filter",
        "superseded_filtered": 1,
        "superseded_annotated": 0,
        "superseded_stored": 1,
    }
    assert not outcome.annotations


def test_one_candidate_alone_is_replaced() -> None:
    assert scores_of(run(FILTER, {0: link(3)}, (0, 0.4)).candidates) == {3: 0.4}


def test_several_older_ones_leave_one_head_with_the_largest_score() -> None:
    links = {0: link(1), 1: link(3), 2: link(3)}
    outcome = run(FILTER, links, (4, 0.9), (0, 0.8), (2, 0.7), (1, 0.6))
    assert scores_of(outcome.candidates) == {4: 0.9, 3: 0.8}
    assert {d.position: d.facts["superseded_by"].position for d in outcome.dropped} == {
        0: 3, 1: 3, 2: 3,
    }  # fmt: skip
    assert outcome.reason_of is not None
    assert outcome.reason_of(3) == "takes the place of the older {0}"


def test_a_head_that_is_a_candidate_keeps_the_larger_score() -> None:
    assert scores_of(run(FILTER, {0: link(1)}, (1, 0.9), (0, 0.8)).candidates) == {1: 0.9}
    assert scores_of(run(FILTER, {0: link(1)}, (0, 0.9), (1, 0.1)).candidates) == {1: 0.9}


def test_who_comes_in_for_expanded_candidates_alone_is_expanded() -> None:
    ranked = candidates_of((0, 0.9), (1, 0.8), (2, 0.7))
    only = Candidates(ranked.positions, ranked.scores, ranked.positions != 1)
    context = context_of(store({0: link(3), 1: link(3), 2: link(4)}), FILTER)
    after = supersede(only, context).candidates
    assert dict(zip(after.positions.tolist(), after.expanded.tolist(), strict=True)) == {
        3: False,
        4: True,
    }


def test_annotate_names_the_head_on_the_older_and_the_older_on_a_head_that_was_found() -> None:
    first = link(1, 2, reason="explicit", evidence=0, age_gap_days=0)
    links = {0: first, 1: near(2), 3: link(4)}
    outcome = run(ANNOTATE, links, (0, 0.9), (1, 0.8), (2, 0.7), (3, 0.6))
    assert scores_of(outcome.candidates) == {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.6}
    assert not outcome.dropped
    assert outcome.annotations == {
        0: {
            "superseded_by": PositionRef(2),
            "supersede_note": "explicit, confidence high, evidence {0}",
        },
        1: {
            "superseded_by": PositionRef(2),
            "supersede_note": "near_duplicate, confidence medium, evidence {2}, similarity 0.90, "
            "30 days later",
        },
        2: {"supersedes": [PositionRef(0), PositionRef(1)]},
        3: {
            "superseded_by": PositionRef(4),
            "supersede_note": "newer_value, confidence medium, evidence {4}, 30 days later",
        },
    }
    assert outcome.notes["superseded_annotated"] == 3


def test_what_is_unsure_is_marked_and_stays() -> None:
    outcome = run(FILTER, {0: link(1, 0)}, (0, 0.9), (1, 0.8))
    assert scores_of(outcome.candidates) == {0: 0.9, 1: 0.8}
    assert outcome.annotations[0]["superseded_by"] == PositionRef(1)
    assert outcome.annotations[1] == {"supersedes": [PositionRef(0)]}
    assert (outcome.notes["superseded_filtered"], outcome.notes["superseded_annotated"]) == (0, 1)


def test_a_chain_ends_before_an_unsure_link() -> None:
    outcome = run(FILTER, {0: link(1), 1: link(2, 0)}, (0, 0.9))
    assert scores_of(outcome.candidates) == {1: 0.9}
    outcome = run(FILTER, {0: link(1, 0), 1: link(2)}, (0, 0.9))
    assert scores_of(outcome.candidates) == {0: 0.9}
    assert outcome.annotations[0]["superseded_by"] == PositionRef(2)


def test_the_bound_takes_the_surest_first_and_holds_for_both_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created = NOW_US - 40 * DAY_US
    alike = [Stored(created_at_us=created, vector=(1.0, 0.0)), Stored(vector=(0.0, 1.0))]
    fresh = Stored(created_at_us=NOW_US, vector=(1.0, 0.0))
    memories = MemoryLookups(
        [*alike, alike[1], alike[1], alike[1], fresh],
        successors={1: link(3), 2: link(4, 2)},
    )
    ranked = candidates_of((0, 0.9), (1, 0.8), (2, 0.7), (5, 0.6))

    def gone(at_most: int) -> list[int]:
        monkeypatch.setattr(selection, "MOST_STALE", at_most)
        outcome = supersede(ranked, context_of(memories, FILTER))
        return [d.position for d in outcome.dropped]

    assert [gone(1), gone(2), gone(3), gone(9)] == [[2], [2, 1], [2, 1, 0], [2, 1, 0]]


def alike(*days_ago: int, links: Mapping[int, Successor]) -> MemoryLookups:
    memories = [Stored(created_at_us=NOW_US - d * DAY_US, vector=(1.0, 0.0)) for d in days_ago]
    return MemoryLookups(memories, successors=links)


def test_the_search_adds_pairs_that_the_night_does_not_know() -> None:
    known = alike(90, 60, 30, links={0: link(1)})
    outcome = supersede(candidates_of((0, 0.9), (1, 0.5), (2, 0.4)), context_of(known, FILTER))
    assert scores_of(outcome.candidates) == {2: 0.9}
    assert [(d.position, d.reason) for d in outcome.dropped] == [
        (0, "superseded by {1}: newer_value, evidence {1}"),
        (1, "superseded by {2}: similarity 1.00, 30 days newer"),
    ]


@pytest.mark.parametrize("profile", [FILTER, ANNOTATE])
@pytest.mark.parametrize("confidence", [0, 1])
def test_no_pair_is_told_twice_or_both_ways(profile: RetrievalProfile, confidence: int) -> None:
    # The link goes against the dates: the search alone would let 0 replace 1.
    known = alike(30, 60, links={0: link(1, confidence, reason="explicit")})
    outcome = supersede(candidates_of((0, 0.9), (1, 0.5)), context_of(known, profile))
    told = [d.position for d in outcome.dropped]
    told += [p for p, fields in outcome.annotations.items() if "superseded_by" in fields]
    assert told == [0]


def test_stored_successors_need_no_vectors() -> None:
    memories = MemoryLookups([Stored()] * 4, successors={0: link(3)})
    outcome = supersede(candidates_of((0, 0.9), (1, 0.5)), context_of(memories, FILTER))
    assert scores_of(outcome.candidates) == {3: 0.9, 1: 0.5}
    assert not outcome.warnings
    outcome = supersede(candidates_of((0, 0.9), (1, 0.5), (2, 0.4)), context_of(memories, FILTER))
    assert scores_of(outcome.candidates) == {3: 0.9, 1: 0.5, 2: 0.4}
    assert [w.code for w in outcome.warnings] == ["supersede_without_vectors"]


def test_a_cycle_in_a_damaged_table_hides_nobody() -> None:
    links = {0: link(1), 1: link(2), 2: link(1)}
    outcome = run(FILTER, links, (0, 0.9), (1, 0.8), (2, 0.7))
    assert scores_of(outcome.candidates) == {0: 0.9, 1: 0.8, 2: 0.7}
