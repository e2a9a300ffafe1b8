from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
import pytest

from noctuary.core.types import UNDATED_US
from noctuary.graph.successors import Keys, confidence_of, keys_of
from noctuary.recall import selection
from noctuary.recall.candidates import PhaseOutcome, PositionRef
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.selection import find_superseded, supersede
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


def at_angle(cosine: float) -> tuple[float, float]:
    """A unit vector of this cosine to the first axis."""
    return (cosine, math.sqrt(1.0 - cosine * cosine))


def said(
    days_ago: float | None,
    cosine: float = 1.0,
    *,
    wing: str | None = None,
    user: str | None = None,
    text: str = "",
) -> Stored:
    created = UNDATED_US if days_ago is None else NOW_US - round(days_ago * DAY_US)
    vector = at_angle(cosine)
    return Stored(text, created_at_us=created, vector=vector, wing=wing, user=user)


def run(profile: RetrievalProfile, *memories: Stored) -> PhaseOutcome:
    """Candidates in the order given, scores 0.9, 0.8 and so on."""
    ranked = candidates_of(*((i, 0.9 - i / 10) for i in range(len(memories))))
    return supersede(ranked, context_of(MemoryLookups(memories), profile))


def test_a_stale_fact_yields_its_place_to_its_successor() -> None:
    outcome = run(FILTER, said(40), said(3, 0.0), said(6, 0.91))
    assert scores_of(outcome.candidates) == {1: 0.8, 2: 0.9}
    assert outcome.candidates.positions.tolist() == [2, 1]
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position, gone.score) == ("supersede", 0, 0.9)
    assert gone.reason == "superseded by {2}: similarity 0.91, 34 days newer"
    assert gone.facts == {
        "superseded_by": PositionRef(2),
        "similarity": pytest.approx(0.91),
        "age_gap_days": 34,
        "confidence": "medium",
    }
    assert outcome.reason_of is not None
    assert outcome.reason_of(2) == "takes the place of the older {0}"


def test_a_successor_that_ranks_higher_keeps_its_score() -> None:
    assert scores_of(run(FILTER, said(1), said(30)).candidates) == {0: 0.9}


def test_annotate_marks_both_and_changes_no_score() -> None:
    outcome = run(ANNOTATE, said(40), said(20), said(1))
    assert scores_of(outcome.candidates) == pytest.approx({0: 0.9, 1: 0.8, 2: 0.7})
    assert outcome.annotations[0]["superseded_by"] == PositionRef(2)
    assert outcome.annotations[0]["supersede_note"] == (
        "a newer memory says this anew: similarity 1.00, 39 days later, confidence high"
    )
    assert outcome.annotations[2]["supersedes"] == [PositionRef(0), PositionRef(1)]
    assert not outcome.dropped
    assert outcome.notes == {
        "checked": 3,
        "action": "annotate",
        "superseded_filtered": 0,
        "superseded_annotated": 2,
        "superseded_stored": 0,
    }


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (said(7), said(1)),  # six days
        (said(7.9), said(1)),  # six whole days
        (said(30), said(1, 0.85)),  # not similar enough
        (said(None), said(1)),  # no date
        (said(30), said(None)),
        (said(30, user="ana"), said(1, user="ben")),
        (said(30, user="ana"), said(1)),
        (said(30, wing="home"), said(1, wing="work")),
        (said(30, text="The port is 8080"), said(1, text="The port is 8081")),
    ],
)
def test_two_memories_that_both_stay(older: Stored, newer: Stored) -> None:
    outcome = run(FILTER, older, newer)
    assert outcome.candidates.positions.tolist() == [0, 1]
    assert not outcome.dropped


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (said(8), said(1)),
        (said(30), said(1, 0.8601)),
        (said(30, user="ana"), said(1, user="ana")),
        (said(30, wing="home"), said(1, wing="home")),
        (said(30, wing="home"), said(1)),  # it may belong to any wing
        (said(30, text="The port is 8080"), said(1, text="The port: 8080")),
    ],
)
def test_two_memories_of_which_one_yields(older: Stored, newer: Stored) -> None:
    assert [d.position for d in run(FILTER, older, newer).dropped] == [0]


def test_of_a_chain_the_newest_remains_with_the_best_score() -> None:
    # The first and the last are too different to be a pair of their own.
    first, second, third = (math.cos(a) for a in (0.0, 0.4, 0.8))
    outcome = run(FILTER, said(60, first), said(40, second), said(20, third))
    assert scores_of(outcome.candidates) == {2: 0.9}
    assert {d.position: d.facts["superseded_by"].position for d in outcome.dropped} == {0: 1, 1: 2}
    assert outcome.reason_of is not None
    assert outcome.reason_of(2) == "takes the place of the older {0}"


def test_the_surest_come_first_and_the_bound_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_STALE", 1)
    outcome = run(FILTER, said(20, 0.9), said(60, 0.95), said(1))
    assert [d.position for d in outcome.dropped] == [1]
    assert outcome.candidates.positions.tolist() == [0, 2]


def test_without_vectors_a_warning_says_so() -> None:
    outcome = run(FILTER, Stored(), Stored())
    assert [w.code for w in outcome.warnings] == ["supersede_without_vectors"]
    assert outcome.candidates.size == 2


@pytest.mark.parametrize(
    ("similarity", "days", "confidence"),
    [(0.93, 30, 2), (0.93, 29, 1), (0.92, 400, 1), (0.86, 14, 1), (0.86, 13, 0), (0.85, 90, 0)],
)
def test_confidence_as_in_the_reference(similarity: float, days: int, confidence: int) -> None:
    assert confidence_of(similarity, days) == confidence


def test_blocks_of_rows_find_what_one_by_one_finds() -> None:
    generator = np.random.default_rng(5)
    size = 300
    raw = generator.normal(size=(size, 3))
    vectors = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    days = generator.integers(0, 100, size)
    created = NOW_US - days * int(timedelta(days=1).total_seconds() * 1e6)
    created[::17] = UNDATED_US
    owners, wings = generator.integers(-1, 2, size), generator.integers(-1, 2, size)
    texts = [f"The port is 808{n}" for n in generator.integers(0, 2, size).tolist()]
    found = find_superseded(
        vectors, created, owners, wings, texts, least_similarity=0.86, least_days=7, at_most=size
    )
    expected: dict[int, set[int]] = {}
    for i in range(size):
        newer = [
            j
            for j in range(size)
            if UNDATED_US not in (created[i], created[j])
            and days[i] - days[j] >= 7
            and float(vectors[i] @ vectors[j]) >= 0.86
            and owners[i] == owners[j]
            and texts[i] == texts[j]
            and (wings[i] == wings[j] or wings[i] < 0 or wings[j] < 0)
        ]
        if newer:
            latest = max(created[j] for j in newer)
            expected[i] = {j for j in newer if created[j] == latest}
    assert len(found) == len(expected) > 100
    assert all(s.newer in expected[s.older] for s in found)
    keys = [(-s.confidence, -s.similarity) for s in found]
    assert keys == sorted(keys)


def test_only_texts_that_are_near_another_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def keys(text: str) -> Keys:
        texts.append(text)
        return keys_of(text)

    monkeypatch.setattr("noctuary.recall.selection.keys_of", keys)
    near = said(30, text="old"), said(1, text="new")
    assert run(FILTER, *near, said(60, 0.0, text="alone")).dropped
    assert sorted(texts) == ["new", "old"]
