"""A newer memory in the place of the older one that it replaces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph.successors import Keys, confidence_of, keys_of
from noctuary.recall import selection
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.recall.legs import SnapshotGraph
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query
from noctuary.recall.ranking import rank
from noctuary.recall.replay import replay
from noctuary.recall.result import RecallResult
from noctuary.recall.rows import Rows, Successor
from noctuary.recall.search import Candidates, PhaseOutcome, PositionRef, Search
from noctuary.recall.selection import find_superseded, supersede
from tests.support.lookups import (
    DAY_US,
    NOW_US,
    MemoryLookups,
    Stored,
    candidates_of,
    context_of,
    reason_of,
    scores_of,
)
from tests.support.replays import keep, last_packet
from tests.support.store import Store, day_us, memory, new_store, renumber

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


def heirs(outcome: PhaseOutcome) -> dict[int, int]:
    return {d.position: d.facts["superseded_by"].position for d in outcome.dropped}


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
    assert reason_of(outcome, 2) == "replaces the older {0}"
    assert scores_of(run(FILTER, said(1), said(30)).candidates) == {0: 0.9}, "ranked higher itself"


def test_annotate_marks_both_and_changes_no_score() -> None:
    outcome = run(ANNOTATE, said(40), said(20), said(1))
    assert scores_of(outcome.candidates) == pytest.approx({0: 0.9, 1: 0.8, 2: 0.7})
    assert outcome.annotations[0] == {
        "superseded_by": PositionRef(2),
        "supersede_note": "a newer memory says the same: similarity 1.00, 39 days later, "
        "confidence high",
    }
    assert outcome.annotations[2]["supersedes"] == [PositionRef(0), PositionRef(1)]
    assert not outcome.dropped
    assert outcome.notes == {
        "checked": 3, "action": "annotate", "superseded_filtered": 0, "superseded_annotated": 2,
        "superseded_stored": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("older", "newer", "yields"),
    [
        (said(7), said(1), False),  # six days
        (said(7.9), said(1), False),  # six whole days
        (said(8), said(1), True),
        (said(30), said(1, 0.85), False),  # not similar enough
        (said(30), said(1, 0.8601), True),
        (said(None), said(1), False),  # no date
        (said(30), said(None), False),
        (said(30, user="ana"), said(1, user="ben"), False),
        (said(30, user="ana"), said(1), False),
        (said(30, user="ana"), said(1, user="ana"), True),
        (said(30, wing="home"), said(1, wing="work"), False),
        (said(30, wing="home"), said(1, wing="home"), True),
        (said(30, wing="home"), said(1), True),  # it may belong to any wing
        (said(30, text="The port is 8080"), said(1, text="The port is 8081"), False),
        (said(30, text="The port is 8080"), said(1, text="The port: 8080"), True),
    ],
)
def test_of_two_the_older_yields_or_both_stay(older: Stored, newer: Stored, yields: bool) -> None:
    outcome = run(FILTER, older, newer)
    assert heirs(outcome) == ({0: 1} if yields else {})
    assert outcome.candidates.positions.tolist() == ([1] if yields else [0, 1])


def test_of_a_chain_the_newest_remains_with_the_best_score() -> None:
    # The first and the last are too different to be a pair of their own.
    first, second, third = (math.cos(a) for a in (0.0, 0.4, 0.8))
    outcome = run(FILTER, said(60, first), said(40, second), said(20, third))
    assert scores_of(outcome.candidates) == {2: 0.9}
    assert heirs(outcome) == {0: 1, 1: 2}
    assert reason_of(outcome, 2) == "replaces the older {0}"


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
    generator, size = np.random.default_rng(5), 300
    raw = generator.normal(size=(size, 3))
    vectors = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    days = generator.integers(0, 100, size)
    created = NOW_US - days * DAY_US
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
    near = said(30, text="crumb"), said(1, text="crumbs")
    assert run(FILTER, *near, said(60, 0.0, text="alone")).dropped
    assert sorted(texts) == ["crumb", "crumbs"]


Links = Mapping[int, Successor]
Pairs = Sequence[tuple[int, float]]


def link(newer: int, confidence: int = 1, **changes: Any) -> Successor:
    return Successor(newer, "newer_value", confidence, None, 30, newer)._replace(**changes)


def store(links: Links, count: int = 6) -> MemoryLookups:
    """Memories that no search would pair: none has a date."""
    memories = [Stored(vector=(1.0, float(i))) for i in range(count)]
    return MemoryLookups(memories, successors=links)


def run_stored(profile: RetrievalProfile, links: Links, *scored: tuple[int, float]) -> PhaseOutcome:
    return supersede(candidates_of(*scored), context_of(store(links), profile))


def test_the_successor_comes_in_where_the_older_was() -> None:
    outcome = run_stored(FILTER, {0: link(3)}, (1, 0.9), (0, 0.8), (2, 0.8))
    assert outcome.candidates.positions.tolist() == [1, 3, 2]
    assert scores_of(outcome.candidates) == {1: 0.9, 3: 0.8, 2: 0.8}
    (gone,) = outcome.dropped
    assert (gone.phase, gone.position, gone.score) == ("supersede", 0, 0.8)
    assert gone.reason == "superseded by {3}: newer_value, evidence {3}"
    assert gone.facts == {
        "superseded_by": PositionRef(3), "supersede_reason": "newer_value",
        "confidence": "medium", "evidence": PositionRef(3), "age_gap_days": 30,
    }  # fmt: skip
    assert reason_of(outcome, 3) == "replaces the older {0}"
    assert outcome.notes == {
        "checked": 3, "action": "filter", "superseded_filtered": 1, "superseded_annotated": 0,
        "superseded_stored": 1,
    }  # fmt: skip
    assert not outcome.annotations


@pytest.mark.parametrize(
    ("links", "before", "after", "gone"),
    [
        ({0: link(3)}, [(0, 0.4)], {3: 0.4}, {0: 3}),
        ({0: link(1), 1: link(3), 2: link(3)}, [(4, 0.9), (0, 0.8), (2, 0.7), (1, 0.6)],
         {4: 0.9, 3: 0.8}, {0: 3, 1: 3, 2: 3}),
        ({0: link(1)}, [(1, 0.9), (0, 0.8)], {1: 0.9}, {0: 1}),
        ({0: link(1)}, [(0, 0.9), (1, 0.1)], {1: 0.9}, {0: 1}),
        # A chain ends before an unsure link.
        ({0: link(1), 1: link(2, 0)}, [(0, 0.9)], {1: 0.9}, {0: 1}),
        ({0: link(1, 0), 1: link(2)}, [(0, 0.9)], {0: 0.9}, {}),
        # A cycle in a damaged table hides nobody.
        ({0: link(1), 1: link(2), 2: link(1)}, [(0, 0.9), (1, 0.8), (2, 0.7)],
         {0: 0.9, 1: 0.8, 2: 0.7}, {}),
    ],
)  # fmt: skip
def test_what_is_left_of_chains_has_the_best_score(
    links: Links, before: Pairs, after: dict[int, float], gone: dict[int, int]
) -> None:
    outcome = run_stored(FILTER, links, *before)
    assert scores_of(outcome.candidates) == after
    assert heirs(outcome) == gone


def test_who_comes_in_for_expanded_candidates_alone_is_expanded() -> None:
    ranked = candidates_of((0, 0.9), (1, 0.8), (2, 0.7))
    only = Candidates(ranked.positions, ranked.scores, ranked.positions != 1)
    context = context_of(store({0: link(3), 1: link(3), 2: link(4)}), FILTER)
    after = supersede(only, context).candidates
    assert (after.positions.tolist(), after.expanded.tolist()) == ([3, 4], [False, True])


def test_annotate_names_the_head_on_the_older_and_the_older_on_a_head_that_was_found() -> None:
    first = link(1, 2, reason="explicit", evidence=0, age_gap_days=0)
    near = link(2, reason="near_duplicate", similarity=0.9)
    links = {0: first, 1: near, 3: link(4)}
    outcome = run_stored(ANNOTATE, links, (0, 0.9), (1, 0.8), (2, 0.7), (3, 0.6))
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
    outcome = run_stored(FILTER, {0: link(1, 0)}, (0, 0.9), (1, 0.8))
    assert scores_of(outcome.candidates) == {0: 0.9, 1: 0.8}
    assert outcome.annotations[0]["superseded_by"] == PositionRef(1)
    assert outcome.annotations[1] == {"supersedes": [PositionRef(0)]}
    assert (outcome.notes["superseded_filtered"], outcome.notes["superseded_annotated"]) == (0, 1)
    further = run_stored(FILTER, {0: link(1, 0), 1: link(2)}, (0, 0.9))
    assert further.annotations[0]["superseded_by"] == PositionRef(2), "the head of the chain"


def test_the_bound_takes_the_surest_first_of_both_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    created = NOW_US - 40 * DAY_US
    alike = [Stored(created_at_us=created, vector=(1.0, 0.0)), Stored(vector=(0.0, 1.0))]
    fresh = Stored(created_at_us=NOW_US, vector=(1.0, 0.0))
    memories = MemoryLookups(
        [*alike, alike[1], alike[1], alike[1], fresh], successors={1: link(3), 2: link(4, 2)}
    )
    ranked = candidates_of((0, 0.9), (1, 0.8), (2, 0.7), (5, 0.6))

    def gone(at_most: int) -> list[int]:
        monkeypatch.setattr(selection, "MOST_STALE", at_most)
        outcome = supersede(ranked, context_of(memories, FILTER))
        return [d.position for d in outcome.dropped]

    assert [gone(1), gone(2), gone(3), gone(9)] == [[2], [2, 1], [2, 1, 0], [2, 1, 0]]


def alike(*days_ago: int, links: Links) -> MemoryLookups:
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
    for others, codes in (({1: 0.5}, []), ({1: 0.5, 2: 0.4}, ["supersede_without_vectors"])):
        ranked = candidates_of((0, 0.9), *others.items())
        outcome = supersede(ranked, context_of(memories, FILTER))
        assert scores_of(outcome.candidates) == {3: 0.9, **others}
        assert [w.code for w in outcome.warnings] == codes


ALONE = {"graph_weight": 0.0, "importance_prior": 0.0}  # only the legs and the phase under test
ACME, GLOBEX, PLAN, NEW_PLAN = 101, 102, 104, 105


def jobs(**of_globex: Any) -> list[MemoryRecord]:
    """Two jobs of Lena, thirty days apart, and a plan that another with no word of it replaces."""
    said = {2: "Lena works at Acme.", 32: "Lena works at Globex.",
            3: "The boiler needs a new valve.", 4: "Deploys go out weekly.",
            60: "Nightly from May on. Supersedes #104"}  # fmt: skip
    records = [memory(text, created_at_us=day_us(day)) for day, text in said.items()]
    records[1] = records[1]._replace(**of_globex)
    return renumber(records)


@pytest.fixture
def store_snapshot(home: Path) -> Store:
    made = new_store(home / "house")
    made.publish(jobs())
    return made


def ask(query: str, action: str | None = "filter", k: int = 3, **options: Any) -> RecallResult:
    flags = {} if action is None else {"supersede_filter_enabled": True, "supersede_action": action}
    return recall(query, k, profile={**ALONE, **flags}, dry_run=True, **options)


def ids(result: RecallResult) -> list[Any]:
    return [m.id for m in result.memories]


@pytest.mark.usefixtures("store_snapshot")
@pytest.mark.parametrize(
    ("query", "older", "newer", "reason"),
    [("Acme", ACME, GLOBEX, "newer_value"), ("deploys weekly", PLAN, NEW_PLAN, "explicit")],
)
def test_filter_returns_what_holds_now(query: str, older: int, newer: int, reason: str) -> None:
    """Also where the successor shares no word with the query."""
    plain = ask(query, None)
    assert ids(plain) == [older]
    filtered = ask(query, candidate_trace=True, explain=True)
    (found,) = filtered.memories
    assert (found.id, found.final_score) == (newer, plain.memories[0].final_score)
    assert [dict(e) for e in found.score_events or ()] == [
        {"phase": "supersede", "delta": found.final_score,
         "reason": f"replaces the older [{older}]"}
    ]  # fmt: skip
    (row,) = (r for r in filtered.candidate_trace or () if r["dropped_at"] == "supersede")
    assert row["memory_id"] == older
    assert row["reason"] == f"superseded by [{newer}]: {reason}, evidence [{newer}]"
    assert (row["superseded_by"], row["evidence"]) == (newer, newer)
    assert row["score_at_drop"]["partial_score"] == row["score"]


@pytest.mark.usefixtures("store_snapshot")
def test_final_scores_are_the_sums_of_their_events() -> None:
    found = ask("Lena works at Acme, deploys weekly, boiler valve", explain=True, k=9)
    assert {GLOBEX, NEW_PLAN} <= set(ids(found))
    assert not {ACME, PLAN} & set(ids(found))
    for memory_found in found.memories:
        summed = sum(event["delta"] for event in memory_found.score_events or ())
        assert summed == pytest.approx(memory_found.final_score, abs=1e-12)


@pytest.mark.usefixtures("store_snapshot")
def test_annotate_marks_both_and_moves_nobody() -> None:
    told, off = ask("Lena works", "annotate"), ask("Lena works", None)
    assert [(m.id, m.final_score) for m in told.memories] == [
        (m.id, m.final_score) for m in off.memories
    ]
    notes = {m.id: m.annotations for m in told.memories}
    assert notes[ACME] == {
        "superseded_by": GLOBEX,
        "supersede_note": "newer_value, confidence medium, evidence [102], 30 days later",
    }
    assert notes[GLOBEX] == {"supersedes": [ACME]}


@pytest.mark.usefixtures("store_snapshot")
@pytest.mark.parametrize("action", ["filter", "annotate"])
def test_what_came_after_as_of_replaces_nothing(action: str) -> None:
    between = datetime(2026, 1, 20, tzinfo=UTC)
    (found,) = ask("Lena works", action, as_of=between).memories
    assert (found.id, found.annotations) == (ACME, {})
    later = ask("Lena works", action, as_of=datetime(2026, 2, 1, tzinfo=UTC))
    assert GLOBEX in ids(later)


@pytest.mark.parametrize("action", ["filter", "annotate"])
def test_a_successor_out_of_scope_replaces_nothing(home: Path, action: str) -> None:
    # A memory without a wing may be replaced by one of any.
    new_store(home / "house").publish(jobs(category="note"))
    assert GLOBEX in ids(ask("Lena works", action))
    (found,) = ask("Lena works", action, category="fact").memories
    assert (found.id, found.annotations) == (ACME, {})


def test_the_table_is_read_once_and_only_if_asked(store_snapshot: Store) -> None:
    recaller = Recaller.open(store_snapshot.root)
    off = recaller.recall("Lena works", profile=RetrievalProfile())
    assert {m.id: m.annotations for m in off.memories[:2]} == {ACME: {}, GLOBEX: {}}
    assert "superseded" not in vars(recaller.reader)
    on = RetrievalProfile(supersede_filter_enabled=True)
    recaller.recall("Acme", profile=on)
    first = vars(recaller.reader)["superseded"]
    recaller.recall("Lena", profile=on)
    assert vars(recaller.reader)["superseded"] is first


def test_successors_come_with_their_evidence_and_in_chains(home: Path) -> None:
    said = {2: "TSLint: replaced by ESLint.", 9: "ESLint: the linter of the house.",
            20: "Nothing but Biome. Supersedes #102"}  # fmt: skip
    made = new_store(home / "house")
    made.publish(renumber([memory(t, created_at_us=day_us(day)) for day, t in said.items()]))
    recaller = Recaller.open(made.root)

    def successors(mask: list[bool] | None) -> dict[int, tuple[int, str, int]]:
        shown = None if mask is None else np.array(mask)
        query = Query("", 1, RetrievalProfile(), "test", dry_run=True)
        graph, rows = SnapshotGraph(recaller.reader), Rows(shown, shown, shown)
        search = Search(
            recaller.reader, graph, query, recaller.inputs_now(), rows=rows, ranker=rank
        )
        found = search.successors_of(np.array([0], dtype=np.int64))
        return {older: (s.newer, s.reason, s.evidence) for older, s in found.items()}

    both = {0: (1, "explicit", 0), 1: (2, "explicit", 2)}
    assert successors(None) == both
    assert successors([True, True, False]) == {0: both[0]}
    assert successors([True, False, True]) == {}


def test_a_replay_comes_to_the_same(store_snapshot: Store) -> None:
    on = RetrievalProfile(replay_log=True, supersede_filter_enabled=True)
    kept = keep(store_snapshot, "Acme", profile=on)
    assert ids(kept) == [GLOBEX]
    compared = replay(store_snapshot.paths, last_packet(store_snapshot))
    assert (compared.identical, compared.memories) == (True, 1), compared.differences
