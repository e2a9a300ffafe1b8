"""What a recall may see and search: scopes, shares, summaries, archived memories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.agents.mcp_view import View
from noctuary.compact.summaries import Summary
from noctuary.core.types import UNDATED_US, MemoryRecord, summary_id, to_micros
from noctuary.recall import trace as explaining
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import UnknownSummaryError, Why, expand_from, explain_memory
from noctuary.recall.legs import GraphPath, GraphRanking, path_of
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import SORT_ORDERS, Facet, Mask, Query, Scope, build_mask, private_mask
from noctuary.recall.reader import Summaries
from noctuary.recall.replay import rerun
from noctuary.recall.result import RecalledMemory, RecallWarning
from noctuary.recall.search import ages_s, is_dated
from noctuary.snapshot.arrays import OF_TURNS, SummaryArrays
from noctuary.snapshot.pack import build_candidate
from noctuary.snapshot.publish import publish_candidate
from noctuary.sources.source import Share
from tests.support.lean import write_encoder
from tests.support.lookups import HOUR_US, NOW_US
from tests.support.replays import log_recall
from tests.support.store import (
    Store,
    day_us,
    household,
    memory,
    new_store,
    pack_inputs,
    provenance,
    renumber,
    summary_vectors,
    turns,
)
from tests.support.views import archive, deep, ids

CREATED = np.array(
    [NOW_US - HOUR_US, NOW_US, NOW_US + HOUR_US, UNDATED_US, UNDATED_US + 1, 2**63 - 1]
)


def test_ages_are_never_negative_and_only_the_smallest_number_means_no_date() -> None:
    ages = ages_s(CREATED, NOW_US)
    assert ages[:4].tolist() == [3600.0, 0.0, 0.0, 0.0]
    assert ages[4] > 1e12, "the oldest date does not overflow"
    assert ages[5] == 0.0
    assert is_dated(CREATED).tolist() == [True, True, True, False, True, True]


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def facet(*values: str | None) -> Facet:
    known = tuple(sorted({v for v in values if v is not None}))
    codes = [known.index(v) if v is not None else -1 for v in values]
    return Facet(known, np.array(codes, dtype=np.int32))


WINGS = facet("home", "work", None, "work")

FACETS = {
    "wing": WINGS,
    "room": facet("hall", None, None, "atlas"),
    "category": facet("fact", "fact", "turn", "decision"),
    "user": facet(None, None, None, None),
}

DATES = np.array(
    [to_micros(NOON - HOUR), to_micros(NOON), to_micros(NOON + HOUR), UNDATED_US], dtype=np.int64
)


def seen(mask: Mask | None) -> list[int]:
    return list(range(4)) if mask is None else np.flatnonzero(mask).tolist()


def masked(scope: Scope, **facets: Facet) -> tuple[list[int], list[str]]:
    mask, warnings = build_mask(scope, {**FACETS, **facets}, DATES)
    return seen(mask), [w.code for w in warnings]


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("scope", "positions", "codes"),
    [
        (Scope(), ALL, []),
        (Scope(wing="work"), [1, 3], []),
        (Scope(room="hall"), [0], []),
        (Scope(category="fact"), [0, 1], []),
        (Scope(wing="work", category="fact"), [1], []),
        (Scope(wing="home", room="atlas"), [], []),
        (Scope(wing="elsewhere"), [], ["unknown_wing"]),
        (Scope(room="elsewhere"), [], ["unknown_room"]),
        (Scope(category="elsewhere"), [], ["unknown_category"]),
        (Scope(wing=""), [], ["unknown_wing"]),
        (Scope(user="ana"), ALL, []),
        (Scope(as_of=NOON), [0, 1, 3], []),
        (Scope(as_of=NOON - timedelta(microseconds=1)), [0, 3], []),
        (Scope(as_of=NOON.replace(tzinfo=None)), [0, 1, 3], []),
        (Scope(as_of=datetime.min.replace(tzinfo=UTC)), [3], []),
        (Scope(as_of=datetime.max.replace(tzinfo=UTC)), ALL, []),
    ],
)
def test_filters_are_joined_by_and_and_an_unknown_value_is_reported(
    scope: Scope, positions: list[int], codes: list[str]
) -> None:
    assert masked(scope) == (positions, codes)


def test_no_filter_makes_no_mask() -> None:
    assert build_mask(Scope(), FACETS, DATES) == (None, ())


OWNED = facet(None, "ana", "ben", "ana")


def test_users_are_denied_by_default() -> None:
    assert masked(Scope(), user=OWNED) == ([0], ["user_required"])
    seen_by = {"ben": [0, 2], "": [0], "Ana": [0]}
    assert {u: masked(Scope(user=u), user=OWNED)[0] for u in seen_by} == seen_by
    assert masked(Scope(user="ben", as_of=NOON), user=OWNED) == ([0], [])


@pytest.mark.parametrize(
    ("wing", "user", "message"),
    [
        ("wrok", "ben", "no memory has wing 'wrok'; near: work"),
        ("zzz", "ben", "no memory has wing 'zzz'; there are 2"),
        ("work", "ana", "no memory has wing 'work'; there are 2"),
        ("work", "eve", "no memory has wing 'work'; there are 1"),
        ("wrok", "ana", "no memory has wing 'wrok'; there are 2"),
    ],
)
def test_a_wing_that_only_others_have_is_unknown(wing: str, user: str, message: str) -> None:
    facets = {**FACETS, "user": OWNED, "wing": facet("home", "shed", "work", "shed")}
    mask, (warning,) = build_mask(Scope(wing=wing, user=user), facets, DATES)
    assert (seen(mask), warning) == ([], RecallWarning("unknown_wing", message))
    assert build_mask(Scope(wing="work", user="ben"), facets, DATES)[1] == ()


names = st.sampled_from(["ana", "ben", "eva"])
owned = st.lists(st.one_of(st.none(), names), min_size=4, max_size=4)
shares = st.sets(st.tuples(st.integers(0, 3), names))


def with_shares(owners: list[str | None], shared: set[tuple[int, str]]) -> Facet:
    """Return the owners and what they share, of which some is with themselves or of nobody."""
    by_reader: dict[str, list[int]] = {}
    for position, reader in sorted(shared):
        by_reader.setdefault(reader, []).append(position)
    positions = {r: np.array(p, dtype=np.int32) for r, p in by_reader.items()}
    found = facet(*owners)._replace(shared=positions or None)
    found.codes.flags.writeable = False  # a snapshot's arrays never change
    return found


@given(owned, shares, st.one_of(st.none(), names, st.just("zoe")))
def test_who_sees_what_equals_a_loop_over_owners_and_shares(
    owners: list[str | None], shared: set[tuple[int, str]], user: str | None
) -> None:
    facets = {"user": with_shares(owners, shared)}
    private = private_mask(facets["user"], user)
    if not any(owners):
        assert masked(Scope(user=user), **facets) == ([0, 1, 2, 3], [])
        assert private is None
        return
    own = [p for p, owner in enumerate(owners) if owner is not None and owner == user]
    others = [p for p, owner in enumerate(owners) if owner is None or (p, user) in shared]
    assert masked(Scope(user=user), **facets)[0] == sorted({*own, *others})
    assert seen(private) == [p for p in own if p not in {position for position, _ in shared}]


def test_a_share_opens_no_wing_of_others_to_suggestions() -> None:
    owners = with_shares(["ana", "ben", "ben", None], {(1, "ana")})
    wings = facet("home", "workshop", "warehouse", "garden")
    for wing, hint in (("workship", "near: workshop"), ("warehouse", "there are 3")):
        asked = Scope(user="ana", wing=wing)
        _, (warning,) = build_mask(asked, {**FACETS, "user": owners, "wing": wings}, DATES)
        assert warning.message == f"no memory has wing {wing!r}; {hint}"


COUNT = 8

lineages = st.lists(
    st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=4, unique=True), min_size=1, max_size=4
)


def summaries_of(sources: list[list[int]], plans: list[int] | None = None) -> Summaries:
    lengths = [len(s) for s in sources]
    arrays = SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sources=np.array([p for s in sources for p in s], dtype=np.int32),
        confidences=np.linspace(0.1, 0.9, len(sources)),
        plans=np.array(plans or [OF_TURNS] * len(sources), dtype=np.int32),
    )
    return Summaries(COUNT, arrays, ("p0",), [f"s{i}" for i in range(len(sources))])


@given(lineages, st.lists(st.integers(0, 3), max_size=9))
def test_summaries_have_values_of_sources(sources: list[list[int]], asked: list[int]) -> None:
    ordinals = np.array([i for i in asked if i < len(sources)], dtype=np.int64)
    values = np.array([5, 3, 8, 1, 9, 2, 7, 4], dtype=np.int64)
    found = summaries_of(sources).largest(values, ordinals)
    assert found.tolist() == [max(int(values[s]) for s in sources[i]) for i in ordinals.tolist()]
    assert found.dtype == values.dtype


def test_a_turn_leads_to_its_summary_of_turns_and_never_to_that_of_a_plan() -> None:
    summaries = summaries_of([[0, 1], [1, 2]], plans=[OF_TURNS, 0])
    found = summaries.of_sources(np.array([0, 1, 2, 3, COUNT]))
    assert {p: view.position for p, view in found.items()} == {0: COUNT, 1: COUNT}
    assert summaries.plan_of(COUNT) is None
    assert summaries.plan_of(COUNT + 1) == "p0"
    assert summaries.position_of("s1") == COUNT + 1
    assert summaries.position_of("s2") is None


def test_arrays_of_different_lengths_are_refused() -> None:
    good = summaries_of([[0, 1], [2]])
    with pytest.raises(ValueError, match="different lengths"):
        Summaries(COUNT, good.arrays, (), ["only one"])
    with pytest.raises(ValueError, match="different lengths"):
        Summaries(2, good.arrays, (), good.ids)


TURNS = ("109", "110", "111", "112")
NIGHT = datetime(2026, 1, 20, tzinfo=UTC)
SUMMARIES = RetrievalProfile(turn_view="summaries")
QUERIES = ("morning flight Lisbon", "the invoice", "booked for the ninth", "Bot: done.", "cat key")


@pytest.fixture(name="dense")
def _dense(dense_store: Store) -> Recaller:
    return Recaller.open(dense_store.root)


def told(recaller: Recaller, query: str, profile: RetrievalProfile) -> list[RecalledMemory]:
    """Everything that is found, without what is said about summaries."""
    found = deep(recaller, query, profile).memories
    return [m._replace(annotations={}) for m in found]


@pytest.mark.parametrize("vectors", ["own", "turns"])
def test_a_hit_on_a_summary_ranks_its_turns_as_if_they_were_searched(
    dense: Recaller, vectors: str
) -> None:
    (summary,) = dense.reader.summaries.ids
    opened = 0
    for query in (*QUERIES, "zebra"):
        asked = deep(dense, query, SUMMARIES.replaced(summary_vectors=vectors))
        assert {m.kind for m in asked.memories} <= {"memory"}
        through = {str(m.id) for m in asked.memories if "summarized_by" in m.annotations}
        assert through <= set(TURNS)
        assert all(
            m.annotations == ({"summarized_by": summary} if str(m.id) in through else {})
            for m in asked.memories
        )
        expected = told(dense, query, RetrievalProfile())
        if not through:
            expected = [m for m in expected if str(m.id) not in TURNS]
            assert [m.id for m in asked.memories] == [m.id for m in expected]
            continue
        opened += 1
        assert [m._replace(annotations={}) for m in asked.memories] == expected
    assert opened >= 2


def test_the_turns_of_a_summary_that_is_no_hit_are_not_searched(dense: Recaller) -> None:
    words = RetrievalProfile(dense_weight=0.0)
    assert "109" in ids(deep(dense, "June", words))
    assert "June" not in dense.reader.describe([dense.reader.count])[dense.reader.count]["content"]
    assert deep(dense, "June", words.replaced(turn_view="summaries")).memories == ()


@pytest.mark.parametrize(
    ("until", "archived", "shown"),
    [(NIGHT + timedelta(minutes=1), {}, {"109", "110"}),
     (None, {"110": "112"}, {"109", "111", "112"})],
    ids=["as-of-the-second-turn-the-summary-tells-of-later-ones", "one-of-its-turns-is-archived"],
)  # fmt: skip
def test_a_summary_of_which_a_turn_is_hidden_gives_way_to_the_other_turns(
    dense: Recaller, until: datetime | None, archived: dict[str, str], shown: set[str]
) -> None:
    asked = archive(dense, archived) if archived else dense
    result = deep(asked, "morning flight Lisbon", SUMMARIES, scope=Scope(as_of=until))
    assert {m.kind for m in result.memories} == {"memory"}
    assert not any(m.annotations for m in result.memories)
    assert set(ids(result)) & set(TURNS) == shown


@pytest.mark.parametrize(
    "flags",
    [
        {"scorer": "hybrid"},
        {"scorer": "two_pass"},
        {"mmr_enabled": True},
        {"mmr_enabled": True, "wing_diversity_weight": 0.5, "wing_quota": 3},
        {"supersede_filter_enabled": True, "consolidation_enabled": True},
        {"pinned_memory_enabled": True, "ltp_enabled": True, "association_enabled": True},
        {"time_decay_enabled": True, "tagging_enabled": True},
        {"fusion": "rrf", "exact_match_bonus": 0.5},
        {"query_expansion_enabled": True},
    ],
)
@pytest.mark.parametrize("sort_by", SORT_ORDERS)
def test_no_scorer_and_no_phase_returns_a_turn_whose_summary_is_no_hit(
    dense: Recaller, flags: dict[str, Any], sort_by: str
) -> None:
    profile = SUMMARIES.replaced(candidate_trace=True, **flags)
    summary, folds = dense.reader.summaries.ids[0], flags.get("consolidation_enabled", False)
    for query in (*QUERIES, "zebra"):
        for result in (
            deep(dense, query, profile, sort_by=sort_by),
            dense.recall(query, 3, profile=profile.replaced(depth=1), sort_by=sort_by),
        ):
            found, dropped = set(ids(result)), result.candidate_trace or ()
            opened = {str(row["memory_id"]) for row in dropped if row["dropped_at"] == "turn_view"}
            # A further question of query expansion opens summaries of its own.
            if summary not in opened and not flags.get("query_expansion_enabled"):
                assert not found & {*TURNS, summary}
            assert folds or {m.kind for m in result.memories} <= {"memory"}
            assert {w.code for w in result.warnings} <= {"user_required"}
            assert len(found) == len(result.memories)


def test_a_consolidated_view_returns_the_summary_again(dense: Recaller) -> None:
    profile = SUMMARIES.replaced(consolidation_enabled=True)
    best = deep(dense, "morning flight Lisbon", profile).memories[0]
    assert (best.kind, tuple(map(str, best.sources))) == ("summary", TURNS)
    assert best.created_at == NIGHT + timedelta(minutes=3), "its last turn's, not the night's"
    assert (best.category, best.wing, best.session_id) == ("summary", "home", "s1")
    assert best.to_json()["sources"] == list(best.sources)


@pytest.fixture(name="planned")
def _planned(dense_store: Store) -> Recaller:
    """What answers with the summary of a plan in force, whatever the view."""
    return archive(plan_store(dense_store)[0], {"101": "108", "105": "108"})


def test_a_summarys_quality_is_an_event_and_deltas_sum_to_the_score(planned: Recaller) -> None:
    profile = SUMMARIES.replaced(explain=True)
    memories = deep(planned, "spare key and the boiler", profile).memories
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
    """The same snapshot, whose summaries are worth as much as said."""
    known = recaller.reader.summaries
    arrays = known.arrays._replace(confidences=np.full(known.size, confidence))
    changed = Summaries(known.count, arrays, known.plans, known.ids)
    recaller.reader.__dict__["summaries"] = changed
    return recaller


confidences = st.floats(0.0, 1.0, allow_nan=False)


@pytest.mark.parametrize("scorer", ["fusion", "hybrid", "two_pass"])
def test_more_confidence_never_lowers_a_summarys_score(planned: Recaller, scorer: str) -> None:
    """confidence -> decay rate -> Q -> final score, through the whole recall."""

    def score(confidence: float, penalty: float, sort_by: str) -> float:
        profile = SUMMARIES.replaced(scorer=scorer, quality_penalty=penalty)
        asked = with_confidence(planned, confidence)
        found = deep(asked, "spare key and the boiler", profile, sort_by=sort_by).memories
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


def test_an_archived_memory_is_out_until_the_plan_is_undone(dense: Recaller) -> None:
    query, raw = "spare key blue door", RetrievalProfile()
    before = deep(dense, query, raw)
    assert ids(before)[0] == "101"
    archive(dense, {"101": "108"})
    after = deep(dense, query, raw)
    assert "101" not in ids(after), "a recaller that is open notices it"
    assert not [w for w in after.warnings if "archive" in w.code]
    widened = deep(dense, query, RetrievalProfile(include_archived=True))
    assert widened.memories == before.memories
    archive(dense, {"101": "108"}, [(1, 2)])
    assert deep(dense, query, raw).memories == before.memories


def test_nothing_is_hidden_from_one_who_cannot_see_what_replaced_it(dense: Recaller) -> None:
    after = archive(dense, {"101": "105"})
    early = Scope(as_of=datetime(2026, 1, 3, tzinfo=UTC))  # before 105
    assert "101" in ids(deep(after, "spare key", RetrievalProfile(), scope=early))
    assert "101" not in ids(deep(after, "spare key", RetrievalProfile()))
    assert "101" in ids(deep(after, "spare key", RetrievalProfile(), scope=Scope(room="hall")))


def test_an_unreadable_archive_hides_nothing_and_is_a_warning(dense: Recaller) -> None:
    dense.paths.archive.write_bytes(b"no database")
    result = deep(dense, "spare key", RetrievalProfile())
    assert ids(result)[0] == "101"
    assert "archive_unreadable" in [w.code for w in result.warnings]


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


def test_an_archived_successor_is_passed_through(dense_store: Store) -> None:
    said = {"cat": 1, "kitten": 30, "feline": 60}
    chain = [
        memory(f"The {w} sleeps in the hall.", created_at_us=day_us(d)) for w, d in said.items()
    ]
    dense_store.publish(renumber(chain))
    recaller = Recaller.open(dense_store.root)
    profile = RetrievalProfile(supersede_filter_enabled=True)
    assert ids(deep(recaller, "cat", profile)) == ["103"]
    after = archive(recaller, {"102": "103"})
    assert ids(deep(after, "cat", profile)) == ["103"]


def test_a_turn_behind_a_summary_may_be_the_newer_version_of_a_hit(dense_store: Store) -> None:
    said = ("Ana: the boiler is loud.", "Bot: the invoice is due.",
            "Ana: the cat sleeps in the garden. Supersedes #101", "Bot: noted the boiler.",
            "Ana: thanks.", "Bot: done.")  # fmt: skip
    old = memory("The cat sleeps in the hall.", created_at_us=day_us(2))
    dense_store.publish(renumber([old, *turns("s1", *said)]))
    recaller, flags = Recaller.open(dense_store.root), {"dense_weight": 0.0, "graph_weight": 0.0}
    (summary,) = recaller.reader.summaries.views
    assert 3 in summary.sources
    profile = SUMMARIES.replaced(supersede_filter_enabled=True, **flags)
    (found,) = deep(recaller, "hall", profile).memories
    assert (found.id, found.content) == (104, said[2])
    why = explain(recaller, "hall", "104", **{**profile.to_json(), "explain": False})
    assert why.stage == "returned"
    assert "is a turn of the summary" in why.sentences[-1]


def test_views_never_mix_users(dense_store: Store) -> None:
    """A summary of one user's turns is as invisible as the turns, its text included."""
    said = ("Ana: the secret flight.", "Bot: which flight?", "Ana: the flight to Rome.",
            "Bot: noted, flight to Rome.", "Ana: thanks.", "Bot: done.")  # fmt: skip
    dense_store.publish(renumber(turns("s1", *said, user="ana")))
    recaller = Recaller.open(dense_store.root)
    assert recaller.reader.summaries.size == 1
    for user, found in ((None, 0), ("ben", 0), ("ana", 6)):
        asked = deep(recaller, "secret flight", SUMMARIES, scope=Scope(user=user))
        assert len(asked.memories) == found


def explain(recaller: Recaller, query: str, memory_id: str, **flags: Any) -> Why:
    request = Query(query, 5, RetrievalProfile(**flags), "test", dry_run=True)
    return explain_memory(recaller, request, memory_id)


def test_replay_answers_as_then_whatever_was_applied_or_undone_since(dense: Recaller) -> None:
    applied = archive(dense, {"101": "108"})
    profile = RetrievalProfile(replay_log=True, explain=True)
    how: dict[str, Any] = {"log_path": None, "profile": profile, "profile_used": "x"}
    then = log_recall(applied, "spare key", 5, scope=Scope(), **how)
    assert then.replay_packet is not None
    assert "101" not in ids(then)
    now_us = time.time_ns() // 1000
    undone = archive(dense, {"101": "108"}, [(1, now_us)])
    assert rerun(undone, then.replay_packet).identical
    later = log_recall(undone, "spare key", 5, scope=Scope(), **how)
    assert later.replay_packet is not None
    assert "101" in ids(later)
    again = archive(dense, {"101": "108"}, [(1, now_us), (time.time_ns() // 1000 + 1, None)])
    assert rerun(again, later.replay_packet).identical
    assert rerun(again, then.replay_packet).identical
    dense.paths.archive.unlink()
    lost = rerun(Recaller.open(dense.paths.root), then.replay_packet)
    assert not lost.identical
    assert "plans p1 were in force then" in lost.differences[0]


def test_why_says_that_a_memory_is_archived_and_by_what(dense: Recaller) -> None:
    after = archive(dense, {"101": "108"})
    why = explain(after, "spare key", "101")
    assert why.stage == "archived"
    assert "compaction plan p1" in why.sentences[0]
    assert "[108] replaces it" in why.sentences[0]
    assert "noctuary proposals compact --undo p1" in why.sentences[1]
    assert explain(after, "spare key", "101", include_archived=True).stage == "returned"


def test_why_says_that_a_turn_came_through_its_summary_or_is_behind_it(dense: Recaller) -> None:
    (summary,) = dense.reader.summaries.ids
    why = explain(dense, "morning flight", "110", turn_view="summaries")
    assert (why.stage, why.facts["summarized_by"]) == ("returned", summary)
    assert f"came through its summary [{summary}]" in why.sentences[-1]
    opened = explain(dense, "morning flight", summary, turn_view="summaries")
    assert (opened.stage, opened.facts["dropped_at"]) == ("dropped", "turn_view")
    assert "its turns took its place" in opened.sentences[0]
    shut: dict[str, Any] = {"turn_view": "summaries", "depth": 1, "graph_weight": 0.0}
    assert explain(dense, "cat", summary, **shut).stage == "not_found"
    behind = explain(dense, "cat", "110", **shut)
    assert (behind.stage, behind.facts["summarized_by"]) == ("behind_summary", summary)
    assert f"[{summary}]" in behind.sentences[0]


def test_the_trace_tells_archived_memories_and_turns_behind_summaries(dense: Recaller) -> None:
    (summary,) = dense.reader.summaries.ids
    profile = SUMMARIES.replaced(candidate_trace=True, dense_weight=0.0, graph_weight=0.0)
    after = deep(archive(dense, {"101": "108"}), "spare key June", profile)
    hidden = {str(row["memory_id"]): row for row in after.candidate_trace or ()}
    assert (hidden["101"]["dropped_at"], hidden["101"]["archived_behind"]) == ("archive", 108)
    turn = next(hidden[t] for t in TURNS if t in hidden)
    assert (turn["dropped_at"], turn["summarized_by"]) == ("turn_view", summary)
    assert 0.0 < turn["score"] <= 1.0


def test_candidates_whose_score_stayed_at_zero_are_described_as_well(dense_store: Store) -> None:
    """Members of a session come in with whatever score they have, 0 as well."""
    texts = ["Ana: where is the lantern?", *(f"Bot: {word}." for word in ("hm", "well", "so"))]
    dense_store.publish(renumber(turns("s1", *texts)))
    profile = RetrievalProfile(explain=True, candidate_trace=True, dense_weight=0.0)
    result = Recaller.open(dense_store.root).recall("lantern", 1, profile=profile, dry_run=True)
    rows = [row for row in result.candidates or () if "place" in row]
    assert len(rows) == result.pipeline["total_candidates_in"]
    assert any(row["final_score"] == 0.0 for row in rows)


EVERY_LEG = RetrievalProfile(depth=500, graph_weight=2.0)

SAID = (
    *("Ben: we need a flight to Lisbon.", "Bot: the morning flight is cheaper.") * 2,
    "Ben: put the invoice into the shared folder.",
    "Bot: done.",
)


def records() -> list[MemoryRecord]:
    """Ids from 101: one of nobody, one of Ana, three of Ben, Ben's conversation (106 to 111)."""
    facts = [
        memory("The spare key hangs behind the door."),
        memory("Ana has a key for the boiler room.", user="ana"),
        memory("# Zephyr Works\nBen's key supplier.", user="ben", wing="shop"),
        memory("Ben hides a key at Zephyr Works.", user="ben"),
        memory("Ben's key code is under the mat.", user="ben"),
    ]
    dated = [r._replace(created_at_us=day_us(day)) for day, r in enumerate(facts, start=2)]
    return renumber([*dated, *turns("s1", *SAID, user="ben")])


def publish(root: Path, shared: Sequence[tuple[str, str]]) -> Store:
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(records(), shares=[Share(*share) for share in shared])
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Ben shares two memories with Ana and his conversation, but for its end, with Eva."""
    talk = [(str(n), "eva") for n in range(106, 110)]
    root = tmp_path_factory.mktemp("sharing") / "store"
    return publish(root, [("103", "ana"), ("104", "ana"), *talk])


def found(store: Store, query: str, user: str | None, wing: str | None = None) -> set[str]:
    recaller = Recaller.open(store.root)
    asked = Scope(user=user, wing=wing)
    return set(ids(recaller.recall(query, 100, profile=EVERY_LEG, scope=asked)))


@pytest.mark.parametrize(
    ("user", "wing", "expected"),
    [
        ("ana", None, {"101", "102", "103", "104"}),
        ("ben", None, {"101", "103", "104", "105"}),
        ("eva", None, {"101"}),
        (None, None, {"101"}),
        ("ana", "shop", {"103"}),
        ("eva", "shop", set[str]()),
    ],
)
def test_who_a_memory_is_shared_with_finds_it_and_nobody_else_does(
    store: Store, user: str | None, wing: str | None, expected: set[str]
) -> None:
    facts = {str(n) for n in range(101, 106)}
    assert found(store, "key", user, wing) & facts == expected


def test_the_graph_walks_between_shared_memories(store: Store) -> None:
    result = Recaller.open(store.root).recall(
        "Zephyr Works", 100, profile=EVERY_LEG, scope=Scope(user="ana")
    )
    told = {str(m.id): m.graph for m in result.memories}
    assert told["103"] is not None
    assert told["103"].concept == "Zephyr Works"
    assert {m.user for m in result.memories if str(m.id) in ("103", "104")} == {"ben"}
    with View(store.root, user="eva").open() as seen, seen.graph() as (_, book):
        assert book.find("Zephyr Works") is None


def test_a_summary_is_seen_by_who_may_see_all_that_it_stands_for(store: Store) -> None:
    recaller = Recaller.open(store.root)
    reader = recaller.reader
    (view,) = reader.summaries.views
    turns_of = list(reader.memory_ids(view.sources).values())
    assert set(turns_of) <= {str(n) for n in range(106, 110)}
    (summary,) = reader.summaries.ids
    for user in ("eva", "ben"):
        recalled = recaller.recall("flight", profile=SUMMARIES, scope=Scope(user=user))
        through = {m.annotations.get("summarized_by"): str(m.id) for m in recalled.memories}
        assert through[summary] in turns_of
        shown = expand_from(reader, "s", summary, user).sources
        assert [str(source.id) for source in shown] == turns_of
    for user in ("ana", None):
        assert found(store, "flight", user) & {*turns_of, summary} == set()
        with pytest.raises(UnknownSummaryError):
            expand_from(reader, "s", summary, user)


def test_a_share_of_part_shows_the_part_and_a_revoked_one_nothing(tmp_path: Path) -> None:
    store = publish(tmp_path / "store", [("106", "eva"), ("107", "eva")])
    recaller = Recaller.open(store.root)
    recalled = ids(recaller.recall("flight", profile=SUMMARIES, scope=Scope(user="eva")))
    assert set(recalled) & {str(n) for n in range(106, 112)} == {"106", "107"}
    (summary,) = recaller.reader.summaries.ids
    assert summary not in recalled
    store.publish(records())
    assert not found(store, "flight", "eva") & {"106", "107"}


def test_a_reader_need_not_own_anything_and_an_owner_is_no_reader(store: Store) -> None:
    owners = Recaller.open(store.root).reader.facets["user"]
    assert owners.shared is not None
    assert "eva" not in owners.values
    talk = found(store, "flight", "eva") & {str(n) for n in range(106, 112)}
    assert talk == {"106", "107", "108", "109"}


def test_a_share_supersedes_nothing_of_another_user(tmp_path: Path) -> None:
    """What Ben shares does not hide what Ana has, however alike and new it is."""
    old = memory("The key hangs at the door.", user="ana", created_at_us=day_us(1))
    new = old._replace(user="ben", created_at_us=day_us(200), content="The key hangs at the gate.")
    root = tmp_path / "store"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(renumber([old, new]), shares=[Share("102", "ana")])
    profile = EVERY_LEG.replaced(supersede_filter_enabled=True)
    recalled = Recaller.open(root).recall("key", profile=profile, scope=Scope(user="ana"))
    assert set(ids(recalled)) == {"101", "102"}
    assert not [m.annotations for m in recalled.memories if "superseded_by" in m.annotations]


def test_reasons_are_made_for_what_is_described_and_for_nothing_else(
    dense: Recaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[int] = set()

    def counting(ranking: GraphRanking, position: int) -> GraphPath | None:
        asked.add(position)
        return path_of(ranking, position)

    monkeypatch.setattr(explaining, "path_of", counting)
    profile = RetrievalProfile(explain=True, candidate_trace=True)
    result = dense.recall("morning flight", 1, profile=profile)
    assert result.pipeline["total_candidates_in"] > 3
    assert len(asked) <= 1
    dense.recall("morning flight", 1, profile=profile, dry_run=True)
    assert len(asked) > 1, "every candidate is described then"
