"""The phases that move scores, in the order in which they run."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from noctuary import expand, recall
from noctuary.cli.main import main
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, StoreError
from noctuary.core.types import UNDATED_US
from noctuary.recall import phases
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import UnknownSummaryError, expand_from
from noctuary.recall.phases import (
    association,
    association_factor,
    decay_factor,
    expansion_terms,
    ltp,
    pinned,
    pinned_score,
    pinning_score,
    query_expansion,
    scale,
    tagging,
    tagging_factor,
    time_decay,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallResult
from noctuary.recall.search import Candidates, PastQuery, PhaseOutcome, Search
from noctuary.text.dates import WHEN_SHARE, date_factor
from noctuary.usage.reader import ltp_multiplier
from tests.support.damage import sign
from tests.support.lean import write_encoder
from tests.support.lookups import (
    DAY_US,
    HOUR_US,
    NOW_US,
    MemoryLookups,
    Stored,
    Used,
    candidates_of,
    context_of,
    reason_of,
    scores_of,
)
from tests.support.store import Store, day_us, memory, new_store, renumber, turns

Phase = Callable[[Candidates, Search], PhaseOutcome]
Pairs = list[tuple[int, float]]

PLAIN = RetrievalProfile(dense_weight=0.0, explain=True)


@pytest.fixture
def asked(empty_store: Store) -> Store:
    days = [day_us(1), day_us(5), day_us(28), UNDATED_US]
    empty_store.publish(
        renumber(
            [
                memory(f"The pump was repaired, note {n}.", created_at_us=at)
                for n, at in enumerate(days)
            ]
        )
    )
    return empty_store


def answer(store: Store, query: str, **flags: float) -> RecallResult:
    return recall(query, store=store.root, profile=PLAIN.replaced(**flags))


def test_a_date_lifts_what_was_written_then_and_hides_nothing(asked: Store) -> None:
    ids = [m.id for m in answer(asked, "pump repaired").memories]
    found = answer(asked, "pump repaired on 27 January 2026")
    assert found.memories[0].created_at is not None
    assert found.memories[0].created_at.day == 28
    assert sorted(m.id for m in found.memories) == sorted(ids)
    said = [e["reason"] for e in found.memories[0].score_events or () if e["phase"] == "dates"]
    assert said == ["2026-01-28 fits '27 January 2026' (factor 1.500)"]
    assert 0.0 <= found.memories[-1].final_score <= found.memories[0].final_score <= 1.0


def test_without_a_date_that_something_fits_nothing_is_lifted(asked: Store) -> None:
    assert {"dates", "scale"} <= {*answer(asked, "pump repaired").pipeline["phases_skipped"]}
    off = answer(asked, "pump repaired on 27 January 2026", date_boost=0.0).pipeline
    assert "dates" in off["phases_skipped"]
    query = "pump repaired on 3 March 2031"
    ours = [(m.id, m.final_score) for m in answer(asked, query).memories]
    assert ours == [(m.id, m.final_score) for m in answer(asked, query, date_boost=0.0).memories]


SAID = {
    "it was painted last Sunday.": (
        "on 4 January 2026", "2026-01-08 fits '4 January 2026'; its text says 2026-01-04",
    ),
    "it was painted last month.": ("in December", "its text says December"),
    "we paint it on 2026-03-05.": ("on 5 March", "its text says March 05"),
    "Ann: it was painted last year.": ("when did", "its text says a date"),
}  # fmt: skip


@pytest.mark.parametrize("text", SAID)
def test_a_turn_that_says_the_date_in_question_rises(empty_store: Store, text: str) -> None:
    asked, said = SAID[text]
    others = [f"note {n}: it was painted green once." for n in range(4)]
    rows = turns("s", *others, text)
    empty_store.publish(renumber([row._replace(created_at_us=day_us(8)) for row in rows]))
    best = answer(empty_store, f"{asked} they paint it").memories[0]
    assert best.content == text
    found = [e["reason"] for e in best.score_events or () if e["phase"] == "dates"]
    assert [reason.rpartition(" (factor")[0] for reason in found] == [said]


def test_what_says_the_day_is_a_candidate_beyond_the_depth_of_the_legs(
    tmp_path: Path,
) -> None:
    store = new_store(tmp_path / "house", encoder=write_encoder(tmp_path / "house" / "encoders"))
    days = [f"note {day}: the cat sleeps on {day} March 2026" for day in range(1, 9)]
    store.publish(renumber([memory(text) for text in days]))
    profile = RetrievalProfile(lexical_weight=0.0, graph_weight=0.0, depth=1)
    found = recall("the cat on 2026-03-07", 1, store=store.root, profile=profile)
    assert [m.content for m in found.memories] == [days[6]]


def test_a_distilled_memory_needs_no_date_to_say_when(empty_store: Store) -> None:
    facts = [memory("They painted it last year."), memory("They painted it green.")]
    empty_store.publish(renumber(facts))
    asked = answer(empty_store, "when did they paint it")
    assert "dates" in asked.pipeline["phases_applied"]
    assert not [e for m in asked.memories for e in m.score_events or () if e["phase"] == "dates"]


@given(st.booleans(), st.booleans(), st.booleans(), st.floats(0, 1))
def test_a_date_never_lowers_and_the_same_boost_counts_for_each_way(
    written: bool, said: bool, when: bool, boost: float
) -> None:
    factor = date_factor(written, said, when, boost)
    assert 1.0 <= factor <= (1 + boost) ** 2 * (1 + WHEN_SHARE * boost)
    one, other, third = (np.array([int(flag)]) for flag in (written, said, when))
    assert date_factor(one, other, third, boost)[0] == pytest.approx(factor, rel=1e-12)


GOLDEN = Path(__file__).parents[2] / "golden" / "ltp_multiplier.tsv"


def test_the_multiplier_is_the_references() -> None:
    with GOLDEN.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    found = ltp_multiplier(np.array([int(row["retrievals"]) for row in rows]), 2.0)
    assert found.tolist() == pytest.approx([float(row["multiplier"]) for row in rows], abs=5e-5)


@pytest.mark.parametrize(
    ("age_days", "floor", "factor"),
    [(90, 0, 0.5), (180, 0, 0.25), (900, 0, 0.5**10), (90, 0.5, 0.75), (9e9, 0.5, 0.5)],
)
def test_what_decays_halves_once_a_half_life(age_days: float, floor: float, factor: float) -> None:
    found = decay_factor(np.array([float(age_days)]), 90.0, floor)
    assert found.tolist() == pytest.approx([factor])


def test_the_boosts_are_those_of_the_references() -> None:
    hours = np.array([0, 6, 12, 18, 24, 25, 1e9, -3.0])
    boosts = [1.5, 1.375, 1.25, 1.125, 1.0, 1.0, 1.0, 1.5]
    assert tagging_factor(hours, 24.0, 1.5).tolist() == pytest.approx(boosts)
    together = association_factor(np.array([0, 1, 7, 27, 28]), 0.15, 1.5)
    assert together.tolist() == pytest.approx([1.0, 1.10397, 1.31192, 1.49983, 1.5], abs=5e-5)


DECAYING = RetrievalProfile(half_life_days=90.0, decay_floor=0.5)


def filed(*ages_us: int) -> MemoryLookups:
    return MemoryLookups([Stored(created_at_us=NOW_US - age_us) for age_us in ages_us])


# What a phase is asked about, what it finds, how it reorders that, and what it says of one.
MOVES: dict[str, tuple[Phase, MemoryLookups, Pairs, Pairs, tuple[int, str]]] = {
    "what was recalled often overtakes what was not": (
        ltp, MemoryLookups([Stored()] * 2, used={1: Used(recent=27)}), [(0, 0.5), (1, 0.4)],
        [(1, 0.79986), (0, 0.5)], (1, "recalls lately: 27 (factor 2.000)"),
    ),
    "an old answer yields to a slightly weaker new one": (
        time_decay, filed(90 * DAY_US, DAY_US), [(0, 0.8), (1, 0.7)],
        [(1, 0.697315), (0, 0.6)],
        (0, "90.0 days old, half-life 90 days, floor 0.5 (factor 0.750)"),
    ),
    "what was just filed overtakes": (
        tagging, filed(DAY_US, 12 * HOUR_US), [(0, 0.5), (1, 0.44)], [(1, 0.55), (0, 0.5)],
        (1, "filed 12.0 h ago, window 24 h (factor 1.250)"),
    ),
    "a clock ahead of ours counts as this moment": (
        tagging, filed(-DAY_US), [(0, 0.5)], [(0, 0.75)],
        (0, "filed 0.0 h ago, window 24 h (factor 1.500)"),
    ),
    "what was recalled with the other candidates overtakes": (
        association,
        MemoryLookups([Stored()] * 4, together={frozenset((1, 2)): 5, frozenset((1, 0)): 2}),
        [(0, 0.6), (3, 0.55), (1, 0.5), (2, 0.1)],
        [(0, 0.6 * (1 + 0.15 * math.log(3))), (1, 0.5 * (1 + 0.15 * math.log(8))), (3, 0.55),
         (2, 0.1 * (1 + 0.15 * math.log(6)))],
        (1, "recalls with other candidates: 7 (factor 1.312)"),
    ),
    "boosted scores come back into range with their ratios": (
        scale, MemoryLookups([]), [(7, 1.6), (3, 0.8), (5, 0.4)],
        [(7, 1.0), (3, 0.5), (5, 0.25)],
        (3, "all scores are divided by the best, 1.600"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES)
def test_a_phase_moves_scores_and_says_why(case: str) -> None:
    phase, lookups, before, after, (position, reason) = MOVES[case]
    outcome = phase(candidates_of(*before), context_of(lookups, DECAYING))
    assert outcome.candidates.positions.tolist() == [p for p, _ in after]
    assert scores_of(outcome.candidates) == pytest.approx(dict(after), abs=1e-5)
    assert reason_of(outcome, position) == reason


@pytest.mark.parametrize(
    ("phase", "lookups"),
    [
        (ltp, MemoryLookups([Stored()] * 2)),
        (time_decay, MemoryLookups([Stored(), Stored(created_at_us=NOW_US + 400 * DAY_US)])),
        (tagging, MemoryLookups([Stored(created_at_us=NOW_US - DAY_US), Stored()])),
        (association, MemoryLookups([Stored()] * 4, together={frozenset((0, 3)): 100})),
        (scale, MemoryLookups([])),
    ],
)
def test_where_a_phase_knows_nothing_the_candidates_stay_as_they_are(
    phase: Phase, lookups: MemoryLookups
) -> None:
    for before in (candidates_of((0, 1.0), (1, 1 / 3)), candidates_of((0, 0.0)), candidates_of()):
        outcome = phase(before, context_of(lookups))
        assert outcome.candidates is before
        assert outcome.reason_of is None


def test_age_is_that_of_the_moment_asked_about() -> None:
    context = context_of(filed(180 * DAY_US), DECAYING, now_us=NOW_US - 90 * DAY_US)
    decayed = time_decay(candidates_of((0, 0.8)), context).candidates
    assert scores_of(decayed) == pytest.approx({0: 0.6})


ON = RetrievalProfile(query_expansion_enabled=True)


@pytest.fixture(autouse=True)
def two_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "MAX_TERMS", 2)


MEMORIES = [
    Stored("The visa for Cambodia: Phnom Penh embassy.", wing="flights", room="visa"),
    Stored("Embassy opening hours"),
    Stored("schema of the billing service"),
    Stored("The embassy wants two photographs"),
]

QUERY = "documents for the trip"


def past(
    similarity: float = 0.8, days_ago: float = 1, text: str = "papers for the trip"
) -> PastQuery:
    return PastQuery(text, NOW_US - round(days_ago * DAY_US), similarity, (0, 1))


def house(*queries: PastQuery) -> MemoryLookups:
    answers = {
        f"{QUERY} visa": [(0, 1.0), (2, 0.5)],
        f"{QUERY} embassy": [(3, 0.9), (0, 0.8), (1, 0.6)],
    }
    return MemoryLookups(MEMORIES, queries=queries, answers=answers)


def expanded(
    before: Candidates, *queries: PastQuery, profile: RetrievalProfile = ON, k: int = 10
) -> PhaseOutcome:
    return query_expansion(before, context_of(house(*queries), profile, query=QUERY, k=k))


BEFORE = candidates_of((2, 0.9))


def test_words_of_what_similar_queries_found_bring_new_memories() -> None:
    outcome = expanded(BEFORE, past())
    after = outcome.candidates
    assert scores_of(after) == pytest.approx({2: 0.9, 0: 0.7, 3: 0.63, 1: 0.42})
    assert (after.positions.tolist(), after.expanded.tolist()) == (
        [2, 0, 3, 1], [False, True, True, True],
    )  # fmt: skip
    assert outcome.notes == {
        "applied": True, "original_query": QUERY, "similar_past_queries": 1,
        "expansion_terms": ["visa", "embassy"], "expansion_boost": 0.7,
        "results_from_original": 1, "results_from_expansion": 3,
    }  # fmt: skip
    assert reason_of(outcome, 3) == "found by searching again with 'embassy': x0.7"
    assert reason_of(outcome, 0) == "found by searching again with 'visa': x0.7"


@pytest.mark.parametrize(
    "query",
    [
        past(similarity=0.64),
        past(days_ago=61),
        past(days_ago=-1),
        past(text=f"  {QUERY.replace(' ', '  ')} "),
    ],
    ids=["unlike", "long-ago", "after-the-moment-asked-about", "the-same-wording"],
)
def test_queries_that_say_nothing(query: PastQuery) -> None:
    outcome = expanded(BEFORE, query)
    assert outcome.candidates is BEFORE
    assert (outcome.notes["applied"], outcome.notes["similar_past_queries"]) == (False, 0)


def test_only_the_head_of_a_past_answer_counts_and_depth_is_that_of_the_question() -> None:
    outcome = expanded(BEFORE, PastQuery("papers", NOW_US, 0.9, (2, 2, 2, 2, 2, 0)))
    assert outcome.notes["expansion_terms"] == ["schema", "billing"]
    shallow = expanded(BEFORE, past(), profile=ON.replaced(depth=1), k=1).candidates
    assert scores_of(shallow) == pytest.approx({2: 0.9, 0: 0.7, 3: 0.63})
    assert expanded(BEFORE, past(), profile=ON.replaced(depth=1), k=3).candidates.size == 4


@pytest.mark.parametrize(
    ("query", "texts", "most", "terms"),
    [
        ("x", ["beta alpha gamma", "gamma alpha", "alpha"], 3, ["alpha", "gamma", "beta"]),
        ("x", ["beta alpha gamma", "gamma alpha", "alpha"], 1, ["alpha"]),
        ("Flight", ["It's the flight that I don't want: a b flights Don't его las"], 9, ["want"]),
        ("x", ["release", "boat boat", "releases released"], 2, ["release", "boat"]),
        ("x", ["护照照片", "护照"], 1, ["护照"]),
        ("x", ["हिन्दी"], 3, ["हिन्दी"]),
    ],
    ids=["frequent-first", "at-most", "no-function-words", "forms", "n-grams", "marks"],
)
def test_terms_are_frequent_words(
    query: str, texts: list[str], most: int, terms: list[str]
) -> None:
    assert expansion_terms(query, texts, most) == terms


NIGHT = datetime(2026, 1, 20, tzinfo=UTC)


def only_summary(store: Store) -> str:
    (summary,) = Recaller.open(store.root).reader.summaries.ids
    return summary


def test_every_turn_comes_back_once_and_in_order_of_time(dense_store: Store) -> None:
    found = expand(only_summary(dense_store), store=str(dense_store.root))
    assert [s.id for s in found.sources] == [109, 110, 111, 112]
    assert found.sources[0].content == "Ana: we need a flight to Lisbon in June."
    moments = [s.created_at for s in found.sources]
    assert moments == [NIGHT + timedelta(minutes=m) for m in range(4)]
    assert (found.first_at, found.last_at) == (moments[0], moments[-1])
    assert found.method.startswith("extractive")
    assert found.plan_id is None
    assert found.confidence == found.gate["confidence"]
    assert found.gate["decay_rate"] == pytest.approx(1 - found.gate["confidence"])
    assert found.gate["summary_tokens"] < found.gate["source_tokens"]
    assert found.gate["facts"]["introduced"] == []


def test_it_is_what_a_recall_lists_as_sources(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    profile = RetrievalProfile(consolidation_enabled=True)
    (summary, *_) = recaller.recall("morning flight", 3, profile=profile).memories
    found = expand_from(recaller.reader, recaller.snapshot_id, str(summary.id), None)
    assert tuple(s.id for s in found.sources) == summary.sources
    assert found.text == summary.content
    recaller.reader.close()
    with pytest.raises(SnapshotCorruptError, match="run `noctuary doctor`"):
        expand_from(recaller.reader, "s", str(summary.id), None)


def test_parents_are_named_with_their_text_where_it_is_still_there(dense_store: Store) -> None:
    summary = only_summary(dense_store)
    directory = dense_store.snapshot(Recaller.open(dense_store.root).snapshot_id)
    rows_file = directory / layout.ROWS_FILE
    rows_file.chmod(0o644)
    with closing(sqlite3.connect(rows_file)) as rows, rows:
        parents = [(summary, 0, "gone"), (summary, 1, summary)]
        rows.executemany("INSERT INTO summary_parents VALUES (?, ?, ?)", parents)
    (directory / layout.MANIFEST_FILE).chmod(0o644)
    sign(directory)
    found = expand_from(SnapshotReader.open(directory), "s", summary, None)
    assert [(p.id, p.text is None) for p in found.parents] == [("gone", True), (summary, False)]


def test_a_summary_of_another_user_is_as_unknown_as_one_that_nobody_has(dense_store: Store) -> None:
    texts = [f"Ana: the flight number {n} to Rome." for n in range(6)]
    dense_store.publish(renumber(turns("s1", *texts, user="ana")))
    summary, store = only_summary(dense_store), str(dense_store.root)
    assert len(expand(summary, user="ana", store=store).sources) == 4
    said: list[str] = []
    for asked, user in ((summary, None), ("nothing", None), (summary, "ben")):
        with pytest.raises(UnknownSummaryError) as error:
            expand(asked, user=user, store=store)
        said.append(str(error.value).replace(asked, "ID"))
    assert said[0] == said[1]


def test_a_store_without_a_snapshot_says_so(empty_store: Store) -> None:
    with pytest.raises(StoreError):
        expand("x", store=str(empty_store.root))


def test_the_command_prints_all_of_it(dense_store: Store) -> None:
    summary, store = only_summary(dense_store), str(dense_store.root)
    plain = CliRunner().invoke(main, ["expand", summary, "--store", store])
    assert plain.exit_code == 0
    assert plain.output.startswith(f"summary [{summary}]  extractive")
    assert plain.output.count("  [1") == 4
    assert "stands for 4:" in plain.output
    printed = CliRunner().invoke(main, ["expand", summary, "--store", store, "--json"])
    told = json.loads(printed.output)
    assert [s["id"] for s in told["sources"]] == [109, 110, 111, 112]
    assert told["last_at"] == "2026-01-20T00:03:00+00:00"
    failed = CliRunner().invoke(main, ["expand", "nothing", "--store", store, "--json"])
    assert failed.exit_code == 1
    assert json.loads(failed.output)["error"] == "UnknownSummaryError"


PINNING = RetrievalProfile(pinned_memory_enabled=True)
BOTH = candidates_of((0, 0.6), (1, 0.5))


@pytest.fixture(autouse=True)
def strong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "PINNED_BOOST", 0.5)


def pinned_of(*memories: Stored, used: dict[int, Used] | None = None) -> PhaseOutcome:
    return pinned(BOTH, context_of(MemoryLookups(memories, used=used or {}), PINNING))


def test_a_habit_is_lifted_by_its_share_of_what_is_missing() -> None:
    outcome = pinned_of(Stored(), Stored(), used={1: Used(recent=14, days=6)})
    assert scores_of(outcome.candidates) == {1: 0.75, 0: 0.6}
    assert outcome.candidates.positions.tolist() == [1, 0]
    reason = "recalls lately: 14; days with recalls: 6"
    assert outcome.annotations == {1: {"pinned_reason": reason}}
    assert outcome.notes == {"pinned": 1, "pinned_candidates": 1, "pinned_tokens": 2}
    assert reason_of(outcome, 1) == f"pinned: {reason}"


def test_the_tag_and_the_date_pin() -> None:
    lookups = MemoryLookups(
        [
            Stored(tags=("home", "Pinned ")),
            Stored(created_at_us=NOW_US - 48 * HOUR_US),
            Stored(created_at_us=NOW_US - 49 * HOUR_US),
            Stored(tags=("unpinned",)),
        ]
    )
    four = candidates_of((3, 0.9), (2, 0.8), (1, 0.7), (0, 0.6))
    outcome = pinned(four, context_of(lookups, PINNING))
    assert outcome.annotations == {
        0: {"pinned_reason": 'tagged "pinned"'},
        1: {"pinned_reason": "filed 48.0 h ago (window 48 h)"},
    }


@pytest.mark.parametrize(
    ("memories", "used", "limits", "lifted", "tokens"),
    [
        ([Stored()] * 2, {1: Used(recent=4)}, {}, [], None),
        ([Stored()] * 2, {1: Used(recent=5)}, {}, [1], 2),
        ([Stored()] * 3, {2: Used(recent=100, days=30)}, {}, [], None),
        ([Stored()] * 2, {0: Used(20, days=1), 1: Used(10, days=9)}, {"MOST_PINNED": 1}, [1], 2),

        ([Stored("x" * 8004), Stored("y" * 8000)], {0: Used(50, days=9), 1: Used(5)}, {}, [1],
         2000),
        ([Stored("语" * 16), Stored("word" * 4)], {0: Used(50), 1: Used(50)},
         {"MOST_PINNED_TOKENS": 10}, [0], 10),
    ],
    ids=["no-habit-yet", "a-habit", "only-what-was-found", "days-decide",
         "too-long-does-not-end-the-list", "tokens-by-script"],
)  # fmt: skip
def test_who_is_pinned(
    memories: list[Stored], used: dict[int, Used], limits: dict[str, int], lifted: list[int],
    tokens: int | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, most in limits.items():
        monkeypatch.setattr(phases, name, most)
    outcome = pinned_of(*memories, used=used)
    assert sorted(outcome.annotations) == lifted
    assert outcome.notes.get("pinned_tokens") == tokens
    assert (outcome.candidates is BOTH) is not lifted


def test_of_equal_scores_the_better_answer_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "MOST_PINNED", 1)
    tagged = MemoryLookups([Stored(tags=("pinned",))] * 2)
    # Both at the ceiling of the multiplier: more recalls say nothing more.
    habits = MemoryLookups([Stored()] * 2, used={0: Used(100), 1: Used(50)})
    for lookups in (tagged, habits):
        outcome = pinned(candidates_of((1, 0.6), (0, 0.5)), context_of(lookups, PINNING))
        assert list(outcome.annotations) == [1]


def test_pinning_scores_in_closed_form() -> None:
    found = pinning_score(np.array([1.0, 2.0, 2.0, 2.0]), np.array([0, 5, 10, 99]))
    assert found.tolist() == pytest.approx([1.0, 4.0, 6.0, 6.0])
    # A boost that is not scaled back yet is not lowered.
    assert pinned_score(np.array([1.5, 1.0, 0.0]), 0.04).tolist() == [1.5, 1.0, 0.04]


def test_no_candidates() -> None:
    lookups = MemoryLookups([Stored()], used={0: Used(recent=50)})
    nothing = candidates_of()
    assert pinned(nothing, context_of(lookups, PINNING)).candidates is nothing
