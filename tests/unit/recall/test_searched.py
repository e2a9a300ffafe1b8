"""Turns or their summaries, never both; archived memories hidden, never lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.compact.summaries import Summary
from noctuary.core.types import MemoryRecord, summary_id
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.reader import Summaries
from noctuary.snapshot.pack import build_candidate
from noctuary.snapshot.publish import publish_candidate
from tests.support.store import (
    Store,
    day_us,
    household,
    memory,
    pack_inputs,
    provenance,
    renumber,
    summary_vectors,
    turns,
)
from tests.support.views import archive, deep, ids

TURNS = ("109", "110", "111", "112")
TAIL = ("113", "114")
NIGHT = datetime(2026, 1, 20, tzinfo=UTC)
SUMMARIES = RetrievalProfile(turn_view="summaries")
QUERIES = ("morning flight Lisbon", "the invoice", "booked for the ninth", "Bot: done.", "cat key")


@pytest.fixture(name="dense")
def _dense(dense_store: Store) -> Recaller:
    return Recaller.open(dense_store.root)


@pytest.mark.parametrize("query", QUERIES)
def test_the_raw_view_searches_turns_and_no_summary(dense: Recaller, query: str) -> None:
    result = deep(dense, query, RetrievalProfile())
    assert {m.kind for m in result.memories} == {"memory"}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("scorer", ["fusion", "hybrid", "two_pass"])
def test_the_view_of_summaries_searches_no_turn_that_one_covers(
    dense: Recaller, query: str, scorer: str
) -> None:
    result = deep(dense, query, SUMMARIES.replaced(scorer=scorer))
    assert not set(ids(result)) & set(TURNS)
    assert not result.warnings[1:], "only user_required"


def test_a_summary_is_found_by_words_and_by_vector_and_lists_its_turns(dense: Recaller) -> None:
    result = dense.recall("morning flight Lisbon", 3, profile=SUMMARIES)
    best = result.memories[0]
    assert (best.kind, best.category) == ("summary", "summary")
    assert best.lexical is not None
    assert best.dense is not None
    assert tuple(map(str, best.sources)) == TURNS
    assert best.created_at == NIGHT + timedelta(minutes=3), "its last turn's, not the night's"
    assert (best.wing, best.session_id) == ("home", "s1")
    assert best.to_json()["sources"] == list(best.sources)


def test_turns_that_no_summary_covers_are_searched_in_both_views(dense: Recaller) -> None:
    for profile in (RetrievalProfile(), SUMMARIES):
        assert "113" in ids(deep(dense, "invoice shared folder", profile))


def test_where_a_recall_may_not_see_every_turn_it_searches_those_it_may(dense: Recaller) -> None:
    """As of the second turn the summary tells of later ones."""
    scope = Scope(as_of=NIGHT + timedelta(minutes=1))
    result = deep(dense, "morning flight Lisbon", SUMMARIES, scope=scope)
    assert {m.kind for m in result.memories} == {"memory"}
    assert {"109", "110"} <= set(ids(result))
    assert not {"111", "112"} & set(ids(result))


@pytest.mark.parametrize(
    "flags",
    [
        {"mmr_enabled": True},
        {"mmr_enabled": True, "wing_diversity_weight": 0.5, "wing_quota": 3},
        {"supersede_filter_enabled": True},
        {"consolidation_enabled": True},
        {"pinned_memory_enabled": True, "ltp_enabled": True, "association_enabled": True},
        {"time_decay_enabled": True, "tagging_enabled": True},
        {"fusion": "rrf", "exact_match_bonus": 0.5},
        {"graph_weight": 0.0},
        {"query_expansion_enabled": True},
    ],
)
@pytest.mark.parametrize("sort_by", ["relevance", "importance", "recency"])
def test_no_phase_brings_a_covered_turn_back_or_fails(
    dense: Recaller, flags: dict[str, Any], sort_by: str
) -> None:
    for query in QUERIES:
        result = deep(dense, query, SUMMARIES.replaced(**flags), sort_by=sort_by)
        assert not set(ids(result)) & set(TURNS)
        assert {w.code for w in result.warnings} <= {"user_required"}
        assert len(set(ids(result))) == len(result.memories)


def test_a_summarys_quality_is_an_event_of_its_own_and_deltas_sum_to_the_score(
    dense: Recaller,
) -> None:
    profile = SUMMARIES.replaced(explain=True)
    memories = deep(dense, "morning flight Lisbon", profile).memories
    assert memories[0].kind == "summary"
    for m in memories:
        events = m.score_events or ()
        assert sum(e["delta"] for e in events) == pytest.approx(m.final_score, abs=1e-12)
        assert ("summary_quality" in [e["phase"] for e in events]) == (m.kind == "summary")
        assert m.score_breakdown is not None
    own = next(e for e in memories[0].score_events or () if e["phase"] == "summary_quality")
    assert own["delta"] < 0
    assert own["reason"].startswith("x quality 0.")


def with_confidence(recaller: Recaller, confidence: float) -> Recaller:
    """The same snapshot, whose one summary is worth as much as said."""
    known = recaller.reader.summaries
    arrays = known.arrays._replace(confidences=np.array([confidence]))
    changed = Summaries(known.count, arrays, known.plans, known.ids)
    recaller.reader.__dict__["summaries"] = changed
    return recaller


confidences = st.floats(0.0, 1.0, allow_nan=False)


@pytest.mark.parametrize("scorer", ["fusion", "hybrid", "two_pass"])
def test_more_confidence_never_lowers_a_summarys_score(dense: Recaller, scorer: str) -> None:
    """confidence -> decay rate -> Q -> final score, through the whole recall."""

    def score(confidence: float, penalty: float, sort_by: str) -> float:
        profile = SUMMARIES.replaced(scorer=scorer, quality_penalty=penalty)
        asked = with_confidence(dense, confidence)
        found = deep(asked, "morning flight Lisbon", profile, sort_by=sort_by).memories
        (own,) = (m for m in found if m.kind == "summary")
        return own.final_score

    @settings(max_examples=25, deadline=None)
    @given(
        st.tuples(confidences, confidences).map(sorted),
        st.floats(0.0, 1.0),
        st.sampled_from(["relevance", "importance"]),
    )
    def holds(pair: list[float], penalty: float, sort_by: str) -> None:
        low, high = (score(c, penalty, sort_by) for c in pair)
        assert 0.0 <= low <= high <= 1.0
        if penalty * (pair[1] - pair[0]) > 1e-6:
            assert low < high

    holds()


def test_an_archived_memory_is_out_of_every_recall_that_sees_its_successor(dense: Recaller) -> None:
    query = "spare key blue door"
    before = deep(dense, query, RetrievalProfile())
    assert ids(before)[0] == "101"
    after = archive(dense, {"101": "108"})
    assert "101" not in ids(deep(after, query, RetrievalProfile()))
    assert not [w for w in deep(after, query, RetrievalProfile()).warnings if "archive" in w.code]
    shown = deep(after, query, RetrievalProfile(include_archived=True))
    assert shown.memories == before.memories


def test_nothing_is_hidden_from_one_who_cannot_see_what_replaced_it(dense: Recaller) -> None:
    after = archive(dense, {"101": "105"})
    early = Scope(as_of=datetime(2026, 1, 3, tzinfo=UTC))  # before 105
    assert "101" in ids(deep(after, "spare key", RetrievalProfile(), scope=early))
    assert "101" not in ids(deep(after, "spare key", RetrievalProfile()))
    assert "101" in ids(deep(after, "spare key", RetrievalProfile(), scope=Scope(room="hall")))


def test_an_undone_plan_hides_nothing_and_the_answer_is_as_before(dense: Recaller) -> None:
    before = deep(dense, "spare key", RetrievalProfile())
    undone = archive(dense, {"101": "108"}, [(1, 2)])
    assert deep(undone, "spare key", RetrievalProfile()).memories == before.memories


def test_a_recaller_notices_that_something_was_archived_or_undone(dense: Recaller) -> None:
    assert "101" in ids(deep(dense, "spare key", RetrievalProfile()))
    archive(dense, {"101": "108"})
    assert "101" not in ids(deep(dense, "spare key", RetrievalProfile()))
    archive(dense, {"101": "108"}, [(1, 2)])
    assert "101" in ids(deep(dense, "spare key", RetrievalProfile()))


def test_an_unreadable_archive_hides_nothing_and_is_a_warning(dense: Recaller) -> None:
    dense.paths.archive.write_bytes(b"no database")
    result = deep(dense, "spare key", RetrievalProfile())
    assert ids(result)[0] == "101"
    assert "archive_unreadable" in [w.code for w in result.warnings]


def test_a_summary_of_an_archived_turn_gives_way_to_the_other_turns(dense: Recaller) -> None:
    after = archive(dense, {"110": "112"})
    result = deep(after, "morning flight Lisbon", SUMMARIES)
    assert {m.kind for m in result.memories} == {"memory"}
    assert {"109", "111", "112"} <= set(ids(result))
    assert "110" not in ids(result)


def plan_store(store: Store) -> tuple[Recaller, str]:
    """The household with a summary of plan p1 for two memories beside that of the turns."""
    text = "The spare key and the boiler."
    assert store.encoder is not None
    inputs = pack_inputs(household(), store.encoder)
    (of_turns,) = inputs.summaries
    first, second = (inputs.records[p] for p in (0, 4))
    of_plan = replace(
        of_turns,
        summary_id=summary_id(of_turns.cluster_id, of_turns.method, text),
        text=text,
        source_ids=(first.memory_id, second.memory_id),
        source_positions=(0, 4),
        first_us=first.created_at_us,
        last_us=second.created_at_us,
    )
    both: list[Summary] = [of_plan, of_turns]
    vectors = summary_vectors(store.encoder, both)
    changed = replace(
        inputs, summaries=both, summary_vectors=vectors, plan_of={of_plan.summary_id: "p1"}
    )
    candidate = build_candidate(store.paths, changed, provenance(store.encoder))
    publish_candidate(store.paths, store.judge(candidate), store.keep)
    return Recaller.open(store.root), of_plan.summary_id


@pytest.mark.parametrize("profile", [RetrievalProfile(), SUMMARIES], ids=["raw", "summaries"])
def test_a_plans_summary_is_searched_while_the_plan_hides_all_it_stands_for(
    dense_store: Store, profile: RetrievalProfile
) -> None:
    (recaller, summary), query = plan_store(dense_store), "spare key and the boiler"
    assert summary not in ids(deep(recaller, query, profile)), "not in force"
    applied = archive(recaller, {"101": "108", "105": "108"})
    found = ids(deep(applied, query, profile))
    assert found[0] == summary
    assert not {"101", "105"} & set(found)
    widened = ids(deep(applied, query, profile.replaced(include_archived=True)))
    assert summary not in widened
    assert {"101", "105"} <= set(widened)
    half = archive(recaller, {"101": "108"})
    found = ids(deep(half, query, profile))
    assert summary not in found
    assert "105" in found
    undone = archive(recaller, {"101": "108", "105": "108"}, [(1, 2)])
    assert summary not in ids(deep(undone, query, profile))


def chain() -> list[MemoryRecord]:
    """A memory, its successor, and the successor of that; ids from 101."""
    return renumber(
        [
            memory("The cat sleeps in the hall.", created_at_us=day_us(1)),
            memory("The kitten sleeps in the hall.", created_at_us=day_us(30)),
            memory("The feline sleeps in the hall.", created_at_us=day_us(60)),
        ]
    )


def test_an_archived_successor_is_passed_through(dense_store: Store) -> None:
    dense_store.publish(chain())
    recaller = Recaller.open(dense_store.root)
    profile = RetrievalProfile(supersede_filter_enabled=True)
    assert ids(deep(recaller, "cat", profile)) == ["103"]
    after = archive(recaller, {"102": "103"})
    assert ids(deep(after, "cat", profile)) == ["103"]


def test_views_never_mix_users(dense_store: Store) -> None:
    """A summary of one user's turns is as invisible as the turns, its text included."""
    texts = ("Ana: the secret flight.", "Bot: which flight?", "Ana: the flight to Rome.",
             "Bot: noted, flight to Rome.", "Ana: thanks.", "Bot: done.")  # fmt: skip
    owned = turns("s1", *texts, user="ana")
    dense_store.publish(renumber(owned))
    recaller = Recaller.open(dense_store.root)
    assert recaller.reader.summaries.size == 1
    assert not deep(recaller, "secret flight", SUMMARIES).memories
    assert not deep(recaller, "secret flight", SUMMARIES, scope=Scope(user="ben")).memories
    found = deep(recaller, "secret flight", SUMMARIES, scope=Scope(user="ana")).memories
    assert found[0].kind == "summary"
