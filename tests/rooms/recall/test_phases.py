"""The phases that move scores, in the order in which they run."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from noctuary import expand, recall
from noctuary.cli.main import main
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, StoreError
from noctuary.core.types import UNDATED_US
from noctuary.recall import phases
from noctuary.recall.candidates import Candidates, PastQuery, PhaseOutcome
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import UnknownSummaryError, expand_from
from noctuary.recall.phases import (
    association,
    association_factor,
    choose_pinned,
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
from noctuary.usage.reader import ltp_multiplier
from tests.support.damage import sign
from tests.support.lookups import (
    DAY_US,
    HOUR_US,
    NOW_US,
    MemoryLookups,
    Stored,
    Used,
    candidates_of,
    context_of,
    scores_of,
)
from tests.support.store import Store, day_us, memory, renumber, turns

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


def test_no_date_no_phase(asked: Store) -> None:
    notes = answer(asked, "pump repaired").pipeline
    assert "dates" in notes["phases_skipped"]
    assert "scale" in notes["phases_skipped"]
    off = answer(asked, "pump repaired on 27 January 2026", date_boost=0.0).pipeline
    assert "dates" in off["phases_skipped"]


def test_a_date_that_nothing_fits_changes_nothing(asked: Store) -> None:
    query = "pump repaired on 3 March 2031"
    ours = [(m.id, m.final_score) for m in answer(asked, query).memories]
    assert ours == [(m.id, m.final_score) for m in answer(asked, query, date_boost=0.0).memories]


GOLDEN = Path(__file__).parents[2] / "golden" / "ltp_multiplier.tsv"


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["retrievals"])
def test_the_multiplier_is_the_references(row: dict[str, str]) -> None:
    found = ltp_multiplier(np.array([int(row["retrievals"])]), 2.0)
    assert found.tolist() == pytest.approx([float(row["multiplier"])], abs=5e-5)


def test_what_was_recalled_often_overtakes_what_was_not() -> None:
    lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=27)})
    outcome = ltp(candidates_of((0, 0.5), (1, 0.4)), context_of(lookups))
    assert outcome.candidates.positions.tolist() == [1, 0]
    assert scores_of(outcome.candidates) == pytest.approx({1: 0.79986, 0: 0.5}, abs=1e-5)
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == "recalls lately: 27 (factor 2.000)"


def test_without_usage_nothing_changes() -> None:
    before = candidates_of((0, 0.5), (1, 0.4))
    outcome = ltp(before, context_of(MemoryLookups([Stored(), Stored()])))
    assert outcome.candidates is before
    assert outcome.reason_of is None


PROFILE = RetrievalProfile().replaced(half_life_days=90.0, decay_floor=0.5)


@pytest.mark.parametrize(
    ("age_days", "floor", "factor"),
    [
        (0, 0, 1.0),
        (90, 0, 0.5),
        (180, 0, 0.25),
        (900, 0, 0.5**10),
        (90, 0.5, 0.75),
        (9e9, 0.5, 0.5),
    ],
)
def test_what_decays_halves_once_a_half_life(age_days: float, floor: float, factor: float) -> None:
    found = decay_factor(np.array([float(age_days)]), 90.0, floor)
    assert found.tolist() == pytest.approx([factor])


def test_a_half_life_of_almost_nothing_leaves_the_floor() -> None:
    assert decay_factor(np.array([0.0, 1e9]), 5e-324, 0.25).tolist() == [1.0, 0.25]


def test_an_old_answer_yields_to_a_slightly_weaker_new_one() -> None:
    lookups = MemoryLookups(
        [Stored(created_at_us=NOW_US - 90 * DAY_US), Stored(created_at_us=NOW_US - DAY_US)]
    )
    outcome = time_decay(candidates_of((0, 0.8), (1, 0.7)), context_of(lookups, PROFILE))
    assert outcome.candidates.positions.tolist() == [1, 0]
    assert scores_of(outcome.candidates)[0] == pytest.approx(0.6)
    assert outcome.reason_of is not None
    assert outcome.reason_of(0) == ("90.0 days old, half-life 90 days, floor 0.5 (factor 0.750)")


def test_undated_memories_and_dates_in_the_future_keep_their_score() -> None:
    lookups = MemoryLookups([Stored(), Stored(created_at_us=NOW_US + 400 * DAY_US)])
    before = candidates_of((0, 0.8), (1, 0.7))
    assert time_decay(before, context_of(lookups, PROFILE)).candidates is before


def test_age_is_that_of_the_moment_asked_about() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US - 180 * DAY_US)])
    context = context_of(lookups, PROFILE, now_us=NOW_US - 90 * DAY_US)
    assert scores_of(time_decay(candidates_of((0, 0.8)), context).candidates) == pytest.approx(
        {0: 0.6}
    )


@pytest.mark.parametrize(
    ("hours", "factor"),
    [(0, 1.5), (6, 1.375), (12, 1.25), (18, 1.125), (24, 1.0), (25, 1.0), (1e9, 1.0), (-3, 1.5)],
)
def test_the_boost_falls_linearly_over_a_day(hours: float, factor: float) -> None:
    assert tagging_factor(np.array([float(hours)]), 24.0, 1.5).tolist() == pytest.approx([factor])


def test_what_was_just_filed_overtakes() -> None:
    lookups = MemoryLookups(
        [Stored(created_at_us=NOW_US - DAY_US), Stored(created_at_us=NOW_US - 12 * HOUR_US)]
    )
    outcome = tagging(candidates_of((0, 0.5), (1, 0.44)), context_of(lookups))
    assert outcome.candidates.positions.tolist() == [1, 0]
    assert scores_of(outcome.candidates) == pytest.approx({1: 0.55, 0: 0.5})
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == "filed 12.0 h ago, window 24 h (factor 1.250)"


def test_a_clock_ahead_of_ours_counts_as_this_moment() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US + DAY_US)])
    outcome = tagging(candidates_of((0, 0.5)), context_of(lookups))
    assert scores_of(outcome.candidates) == {0: 0.75}


def test_old_and_undated_memories_keep_their_score() -> None:
    lookups = MemoryLookups([Stored(created_at_us=NOW_US - DAY_US), Stored()])
    before = candidates_of((0, 0.5), (1, 0.4))
    assert tagging(before, context_of(lookups)).candidates is before


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
    return MemoryLookups(
        MEMORIES,
        queries=queries,
        answers={
            f"{QUERY} visa": [(0, 1.0), (2, 0.5)],
            f"{QUERY} embassy": [(3, 0.9), (0, 0.8), (1, 0.6)],
        },
    )


BEFORE = candidates_of((2, 0.9))


def test_words_of_what_similar_queries_found_bring_new_memories() -> None:
    outcome = query_expansion(BEFORE, context_of(house(past()), ON, query=QUERY))
    after = outcome.candidates
    assert scores_of(after) == pytest.approx({2: 0.9, 0: 0.7, 3: 0.63, 1: 0.42})
    assert dict(zip(after.positions.tolist(), after.expanded.tolist(), strict=True)) == {
        2: False,
        0: True,
        3: True,
        1: True,
    }
    assert outcome.notes == {
        "applied": True,
        "original_query": QUERY,
        "similar_past_queries": 1,
        "expansion_terms": ["visa", "embassy"],
        "expansion_boost": 0.7,
        "results_from_original": 1,
        "results_from_expansion": 3,
    }
    assert outcome.reason_of is not None
    assert outcome.reason_of(3) == "found by asking again with 'embassy': x0.7"
    assert outcome.reason_of(0) == "found by asking again with 'visa': x0.7"


def test_what_the_query_found_itself_keeps_its_score() -> None:
    before = candidates_of((2, 0.9), (0, 0.1))
    after = query_expansion(before, context_of(house(past()), ON, query=QUERY)).candidates
    assert scores_of(after)[0] == 0.1
    assert not after.expanded[after.positions.tolist().index(0)]


@pytest.mark.parametrize(
    "query",
    [
        past(similarity=0.64),
        past(days_ago=61),
        past(days_ago=-1),
        past(text=f"  {QUERY.replace(' ', '  ')} "),
    ],
    ids=["unlike", "long ago", "after the moment asked about", "the same wording"],
)
def test_queries_that_say_nothing(query: PastQuery) -> None:
    outcome = query_expansion(BEFORE, context_of(house(query), ON, query=QUERY))
    assert outcome.candidates is BEFORE
    assert outcome.notes["applied"] is False
    assert outcome.notes["similar_past_queries"] == 0


def test_only_the_head_of_a_past_answer_counts() -> None:
    found = PastQuery("papers", NOW_US, 0.9, (2, 2, 2, 2, 2, 0))
    outcome = query_expansion(BEFORE, context_of(house(found), ON, query=QUERY))
    assert outcome.notes["expansion_terms"] == ["schema", "billing"]


def test_a_further_question_is_as_deep_as_the_first() -> None:
    profile = ON.replaced(depth=1)
    shallow = query_expansion(BEFORE, context_of(house(past()), profile, query=QUERY, k=1))
    assert scores_of(shallow.candidates) == pytest.approx({2: 0.9, 0: 0.7, 3: 0.63})
    deep = query_expansion(BEFORE, context_of(house(past()), profile, query=QUERY, k=3))
    assert deep.candidates.size == 4


class TestTerms:
    def test_most_frequent_first_then_first_seen(self) -> None:
        texts = ["beta alpha gamma", "gamma alpha", "alpha"]
        assert expansion_terms("x", texts, 3) == ["alpha", "gamma", "beta"]
        assert expansion_terms("x", texts, 1) == ["alpha"]

    def test_no_function_words_no_single_letters_no_words_of_the_query(self) -> None:
        texts = ["It's the flight that I don't want: a b flights Don't его las"]
        assert expansion_terms("Flight", texts, 9) == ["want"]

    def test_forms_of_a_word_count_together_and_the_first_is_asked(self) -> None:
        assert expansion_terms("x", ["release", "boat boat", "releases released"], 2) == [
            "release",
            "boat",
        ]

    def test_a_script_without_spaces_gives_its_n_grams(self) -> None:
        assert expansion_terms("x", ["护照照片", "护照"], 1) == ["护照"]

    def test_marks_belong_to_their_word(self) -> None:
        assert expansion_terms("x", ["हिन्दी"], 3) == ["हिन्दी"]


def test_candidates_stay_sorted_and_distinct() -> None:
    after: Candidates = query_expansion(
        BEFORE, context_of(house(past(), past(0.7, 2, "papers")), ON, query=QUERY)
    ).candidates
    assert sorted(set(after.positions.tolist())) == sorted(after.positions.tolist())
    assert after.scores.tolist() == sorted(after.scores.tolist(), reverse=True)


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
    profile = RetrievalProfile(turn_view="summaries")
    (summary, *_) = recaller.recall("morning flight", 3, profile=profile).memories
    found = expand_from(recaller.reader, recaller.snapshot_id, str(summary.id), None)
    assert tuple(s.id for s in found.sources) == summary.sources
    assert found.text == summary.content


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
    for asked, user in ((summary, None), ("nothing", None)):
        with pytest.raises(UnknownSummaryError) as error:
            expand(asked, user=user, store=store)
        said.append(str(error.value).replace(asked, "ID"))
    assert said[0] == said[1]
    with pytest.raises(UnknownSummaryError):
        expand(summary, user="ben", store=store)


def test_a_store_without_a_snapshot_says_so(empty_store: Store) -> None:
    with pytest.raises(StoreError):
        expand("x", store=str(empty_store.root))


def test_damage_is_a_sentence(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    summary = only_summary(dense_store)
    recaller.reader.close()
    with pytest.raises(SnapshotCorruptError, match="run `noctuary doctor`"):
        expand_from(recaller.reader, "s", summary, None)


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


def test_an_unknown_summary_is_exit_code_1(dense_store: Store) -> None:
    store = str(dense_store.root)
    failed = CliRunner().invoke(main, ["expand", "nothing", "--store", store, "--json"])
    assert failed.exit_code == 1
    assert json.loads(failed.output)["error"] == "UnknownSummaryError"


PINNING = RetrievalProfile(pinned_memory_enabled=True)


BOTH = candidates_of((0, 0.6), (1, 0.5))


@pytest.fixture(autouse=True)
def strong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "PINNED_BOOST", 0.5)


def lifted(outcome: PhaseOutcome) -> list[int]:
    assert set(outcome.annotations) <= set(outcome.candidates.positions.tolist())
    return sorted(outcome.annotations)


def test_a_habit_is_lifted_by_its_share_of_what_is_missing() -> None:
    lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=14, days=6)})
    outcome = pinned(BOTH, context_of(lookups, PINNING))
    assert scores_of(outcome.candidates) == {1: 0.75, 0: 0.6}
    assert outcome.candidates.positions.tolist() == [1, 0]
    reason = "recalls lately: 14; days with recalls: 6"
    assert outcome.annotations == {1: {"pinned_reason": reason}}
    assert outcome.notes == {"pinned": 1, "pinned_candidates": 1, "pinned_tokens": 2}
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == f"pinned: {reason}"


def test_four_recalls_are_no_habit_yet_and_five_are() -> None:
    for recent, expected in ((4, list[int]()), (5, [1])):
        lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=recent)})
        assert lifted(pinned(BOTH, context_of(lookups, PINNING))) == expected


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


def test_only_what_the_query_found_is_lifted_and_nothing_is_inserted() -> None:
    lookups = MemoryLookups([Stored()] * 3, used={2: Used(recent=100, days=30)})
    outcome = pinned(BOTH, context_of(lookups, PINNING))
    assert outcome.candidates is BOTH


def test_days_of_use_decide_who_gets_the_last_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "MOST_PINNED", 1)
    used = {0: Used(recent=20, days=1), 1: Used(recent=10, days=9)}
    lookups = MemoryLookups([Stored(), Stored()], used=used)
    assert lifted(pinned(BOTH, context_of(lookups, PINNING))) == [1]


@pytest.mark.parametrize(
    "lookups",
    [
        MemoryLookups([Stored(tags=("pinned",)), Stored(tags=("pinned",))]),
        # Both at the ceiling of the multiplier: more recalls say nothing more.
        MemoryLookups([Stored(), Stored()], used={0: Used(recent=100), 1: Used(recent=50)}),
    ],
    ids=["tagged", "used"],
)
def test_of_equal_pinning_scores_the_better_answer_is_pinned(
    lookups: MemoryLookups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "MOST_PINNED", 1)
    assert lifted(pinned(candidates_of((1, 0.6), (0, 0.5)), context_of(lookups, PINNING))) == [1]


def test_one_that_is_too_long_does_not_end_the_list() -> None:
    used = {0: Used(recent=50, days=9), 1: Used(recent=5, days=1)}
    lookups = MemoryLookups([Stored("x" * 8004), Stored("y" * 8000)], used=used)
    outcome = pinned(BOTH, context_of(lookups, PINNING))
    assert lifted(outcome) == [1]
    assert outcome.notes["pinned_tokens"] == 2000


def test_the_budget_is_of_tokens_by_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "MOST_PINNED_TOKENS", 10)
    used = {0: Used(recent=50), 1: Used(recent=50)}
    lookups = MemoryLookups([Stored("语" * 16), Stored("word" * 4)], used=used)
    outcome = pinned(BOTH, context_of(lookups, PINNING))
    assert (lifted(outcome), outcome.notes["pinned_tokens"]) == ([0], 10)


@pytest.mark.parametrize(
    ("tokens", "items", "budget", "chosen"),
    [
        ([5, 5, 5], 2, 100, [2, 0]),
        ([5, 5, 5], 9, 10, [2, 0]),
        ([1, 5, 50], 9, 10, [0, 1]),
        ([0, 0, 0], 9, 0, [2, 0, 1]),
        ([1, 1, 1], 9, 0, []),
    ],
)
def test_choice(tokens: list[int], items: int, budget: int, chosen: list[int]) -> None:
    assert choose_pinned(np.array([1.0, 0.5, 2.0]), tokens, items, budget) == chosen


def test_pinning_scores_in_closed_form() -> None:
    found = pinning_score(np.array([1.0, 2.0, 2.0, 2.0]), np.array([0, 5, 10, 99]))
    assert found.tolist() == pytest.approx([1.0, 4.0, 6.0, 6.0])


def test_a_boost_that_is_not_scaled_back_yet_is_not_lowered() -> None:
    assert pinned_score(np.array([1.5, 1.0, 0.0]), 0.04).tolist() == [1.5, 1.0, 0.04]


def test_a_store_without_usage_dates_or_tags_pins_nothing() -> None:
    assert pinned(BOTH, context_of(MemoryLookups([Stored(), Stored()]), PINNING)).candidates is BOTH


def test_no_candidates() -> None:
    lookups = MemoryLookups([Stored()], used={0: Used(recent=50)})
    nothing = candidates_of()
    assert pinned(nothing, context_of(lookups, PINNING)).candidates is nothing
