"""Why a memory came back or did not, step by step."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import Why, explain_memory, find_standings
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallResult
from noctuary.recall.rows import Rows
from noctuary.snapshot.pack import build_candidate
from tests.support.lean import SYNONYMS
from tests.support.store import (
    Store,
    day_us,
    household,
    memory,
    pack_inputs,
    provenance,
    renumber,
)

DEFAULT = RetrievalProfile()
DAYS = {day: f"2026-01-0{day}T00:00:00+00:00" for day in (1, 2)}


@pytest.fixture
def dense(dense_store: Store) -> Recaller:
    return Recaller.open(dense_store.root)


def ask(recaller: Recaller, query: str, memory_id: str, k: int = 10, **changes: Any) -> Why:
    scope, sort_by = Scope(**changes.pop("scope", {})), changes.pop("sort_by", "relevance")
    profile = DEFAULT.replaced(**changes)
    request = Query(query, k, profile, "p", scope, sort_by, dry_run=True)
    return explain_memory(recaller, request, memory_id)


def test_a_returned_memory_is_shown_with_its_place_and_its_steps(dense: Recaller) -> None:
    why = ask(dense, "Nina key", "104", 5)
    assert why.stage == "returned"
    assert why.sentences == ("[104] came back at place 2 of 5, with a score of 0.197.",)
    assert sum(step["delta"] for step in why.steps) == pytest.approx(why.facts["final_score"])
    assert why.facts["score_breakdown"]["lexical_match"] > 0
    ordered = ask(dense, "Nina key", "101", 1, sort_by="recency")
    assert (ordered.stage, ordered.steps[-1]["phase"]) == ("below_limit", "sort_by")


def test_a_memory_below_k_is_set_beside_the_last_returned_one(dense: Recaller) -> None:
    why = ask(dense, "Nina key", "103", 2)
    assert why.stage == "below_limit"
    own, last = why.facts["final_score"], why.facts["last_returned_score"]
    assert 0.0 < own < last
    assert why.sentences == (
        "[103] was found, at place 3 of 12; 2 were asked for.",
        f"Its score is {own:.3f}; the last one returned, [104], has {last:.3f}.",
    )
    steps = {step["phase"]: step for step in why.steps}
    assert list(steps) == ["lexical", "dense", "graph", "graph_scale", "importance"]
    assert (steps["lexical"]["delta"], steps["lexical"]["reason"]) == (0.0, "")
    reached = "reached over the graph from [104] by mentions_subject, beside words of the query"
    assert steps["graph"]["reason"] == reached
    assert steps["graph"]["delta"] > steps["graph"]["delta_of_last_returned"] >= 0.0
    assert max(steps["graph_scale"]["delta"], steps["graph_scale"]["delta_of_last_returned"]) < 0.0
    assert sum(step["delta"] for step in why.steps) == pytest.approx(own)
    assert sum(step["delta_of_last_returned"] for step in why.steps) == pytest.approx(last)


def test_a_memory_that_a_phase_dropped_says_which_and_why(dense_store: Store) -> None:
    old = memory("The cat sleeps in the hall.", created_at_us=day_us(1))
    new = memory("The kitten sleeps in the hall.", created_at_us=day_us(90))
    dense_store.publish(renumber([old, new]))
    recaller = Recaller.open(dense_store.root)
    why = ask(recaller, "cat", "101", supersede_filter_enabled=True)
    assert why.stage == "dropped"
    assert why.facts["dropped_at"] == "supersede"
    assert why.sentences[0].startswith("[101] was found, then dropped by supersede: ")
    assert "[102]" in why.sentences[0]
    assert why.sentences[1].startswith("Its score was ")
    assert {"lexical_match", "cosine_similarity"} <= {step["phase"] for step in why.steps}
    assert ask(recaller, "cat", "101").stage == "returned"


def test_a_turn_behind_its_summary_is_dropped_by_consolidation(dense: Recaller) -> None:
    turns = ["109", "110", "111", "112"]
    on = [ask(dense, "morning flight", t, 14, consolidation_enabled=True) for t in turns]
    assert {why.stage for why in on} == {"dropped"}
    assert {why.facts["dropped_at"] for why in on} == {"consolidation"}
    (summary,) = dense.reader.summaries.ids
    assert ask(dense, "morning flight", summary, 14, consolidation_enabled=True).stage == "returned"
    off = ask(dense, "morning flight", summary, 14)
    assert off.stage == "not_found"
    assert "[109]" in off.sentences[0]
    assert off.sentences[-1].endswith("(it is off).")


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 (naive on purpose)
CREATED = f"It was created {DAYS[2]}, but the recall asks for {DAYS[1]} and before."


@pytest.mark.parametrize(
    ("memory_id", "scope", "hiding", "said"),
    [
        ("101", {"wing": "work"}, ["wing"], "Its wing is 'home', but the recall asks for 'work'."),
        ("101", {"room": "atlas"}, ["room"],
         "Its room is 'hall', but the recall asks for 'atlas'."),
        ("101", {"category": "decision"}, ["category"],
         "Its category is 'fact', but the recall asks for 'decision'."),
        ("101", {"as_of": datetime(2026, 1, 1, tzinfo=UTC)}, ["as_of"], CREATED),
        ("101", {"as_of": NAIVE}, ["as_of"], "It was created"),
        ("101", {"wing": "nowhere"}, ["wing"],
         "Its wing is 'home', but the recall asks for 'nowhere'."),
        ("106", {"wing": "home", "category": "fact"}, ["wing"], "Its wing is none"),
    ],
)  # fmt: skip
def test_only_the_filters_that_hide_it_are_named(
    dense: Recaller, memory_id: str, scope: dict[str, Any], hiding: list[str], said: str
) -> None:
    why = ask(dense, "spare key", memory_id, scope={"user": "ana", **scope})
    assert (why.stage, len(why.sentences)) == ("out_of_scope", 2)
    assert why.sentences[1].startswith(said)
    assert [f["filter"] for f in why.facts["filters"]] == hiding


@pytest.mark.parametrize("user", [None, "ana", "eve"])
def test_another_users_memory_is_not_told_from_one_that_does_not_exist(
    dense: Recaller, user: str | None
) -> None:
    def told(memory_id: str, **more: Any) -> dict[str, Any]:
        answer = ask(dense, "door code", memory_id, scope={"user": user, **more}).to_json()
        # Not inside of a longer number: a snapshot is named by the moment it was built at.
        text = re.sub(rf"(?<!\d){memory_id}(?!\d)", "ID", repr(answer))
        return {"text": text}

    for more in ({}, {"wing": "home"}, {"as_of": datetime(2025, 1, 1, tzinfo=UTC)}):
        assert told("107", **more) == told("999", **more)
    assert ask(dense, "door code", "107", scope={"user": "ben"}).stage == "returned"


def test_an_id_that_nobody_has_says_when_the_snapshot_was_built(dense: Recaller) -> None:
    for memory_id in ("999", "", "ten", "1e2", "\udcff", "101 ", "-1", "\x00"):
        why = ask(dense, "key", memory_id)
        assert why.stage == "unknown"
        assert dense.reader.manifest.built_at in why.sentences[0]
        assert "noctuary nightly" in why.sentences[2]


def test_a_memory_that_no_leg_found_says_where_it_stands_in_each(empty_store: Store) -> None:
    empty_store.publish(renumber([memory("boat"), *(memory(f"lake {n}") for n in range(80))]))
    recaller = Recaller.open(empty_store.root)
    why = ask(recaller, "lake", "101", 5)
    assert why.stage == "not_found"
    assert why.sentences == (
        "[101] was found by no leg.",
        "lexical: shares no word with the query.",
        "dense: the snapshot has no vectors.",
        "graph: no hit led to it.",
    )
    deep = ask(recaller, "lake", "181", 5, graph_weight=0.0, dense_weight=0.0)
    assert deep.sentences[1].startswith("lexical: rank 80 of 80 that share a word with the query (")
    assert deep.sentences[1].endswith("; the best 50 are taken.")
    assert deep.sentences[2:] == ("dense: off (dense_weight 0).", "graph: off (graph_weight 0).")
    assert (deep.facts["depth"], deep.facts["allowed"]) == (50, 81)


def test_a_shared_name_that_led_nowhere_is_told(empty_store: Store) -> None:
    texts = ("Ada Quill keeps the harbour ledger.", "It rained when Ada Quill came home.", "Snow.")
    empty_store.publish(renumber([memory(text) for text in texts]))
    recaller = Recaller.open(empty_store.root)
    said = [ask(recaller, "harbour ledger", one).sentences[-1] for one in ("102", "103")]
    shares = "it shares 'Ada Quill' with [101], but together they hold no more of the query's words"
    assert said == [f"graph: {shares} than one memory alone.", "graph: no hit led to it."]


def test_a_score_after_the_ranks_of_a_leg_is_not_called_a_missing_hit(empty_store: Store) -> None:
    texts = ("Ada Quill keeps the harbour ledger.", "The strongbox of Ada Quill has a brass key.")
    empty_store.publish(renumber([memory(text) for text in texts]))
    why = ask(Recaller.open(empty_store.root), "harbour ledger strongbox", "102", 1, depth=1)
    assert why.stage == "below_limit"
    assert why.steps[0]["phase"] == "lexical"
    assert why.steps[0]["delta"] > 0.0
    assert re.fullmatch(r"lexical after rank 1 \(\d\.\d{3}\)", why.steps[0]["reason"])


def test_the_dense_leg_says_its_rank_and_cosine(dense: Recaller) -> None:
    why = ask(dense, "cat", "105", 1, depth=1, graph_weight=0.0)
    assert why.stage == "not_found"
    assert why.facts["dense"]["rank"] > 1
    assert f"dense: rank {why.facts['dense']['rank']} of 12 (cosine " in why.sentences[2]
    assert why.sentences[2].endswith("; the best 1 are taken.")


@pytest.mark.parametrize(("scorer", "said"), [("hybrid", "dense leg alone."), ("two_pass", "0.9.")])
def test_another_scorer_says_what_it_looks_at(dense: Recaller, scorer: str, said: str) -> None:
    why = ask(dense, "cat", "105", 1, depth=1, scorer=scorer, coarse_threshold=0.9)
    assert why.stage == "not_found"
    assert why.sentences[-1].startswith(f"The scorer {scorer} looks at the dense leg alone")
    assert why.sentences[-1].endswith(said)
    assert "lexical" not in why.facts


def test_a_recall_that_was_not_answered_says_so_and_nothing_is_written(
    dense: Recaller, dense_store: Store
) -> None:
    before = sorted(p.name for p in dense_store.root.iterdir())
    for query, k, said in (
        ("key", 0, "k is 0: nothing was asked for."), (" ", 10, "the query holds no text."),
    ):  # fmt: skip
        why = ask(dense, query, "101", k)
        assert why.stage == "not_answered"
        assert why.sentences[0] == f"The recall returned nothing: {said}"
    for memory_id in ("101", "105", "999"):
        ask(dense, "Nina key", memory_id, replay_log=True)
    assert sorted(p.name for p in dense_store.root.iterdir()) == before


def sixty_memories() -> list[MemoryRecord]:
    """Known words and unknown ones in many combinations, three wings."""
    random = np.random.default_rng(7)
    known = [word for words in SYNONYMS[1:] for word in words]
    unknown = ("ladder", "lantern", "meadow", "violin", "walnut")
    texts = [" ".join([*random.choice(known, 2), *random.choice(unknown, 2)]) for _ in range(60)]
    wings = ("home", "work", "club")
    return renumber([memory(text, wing=wings[n % 3]) for n, text in enumerate(texts)])


def test_a_standing_is_the_rank_of_the_leg_itself(dense_store: Store) -> None:
    """Against a recall so deep that it finds everything, with and without a scope."""
    dense_store.publish(sixty_memories())
    recaller = Recaller.open(dense_store.root)
    reader, wings = recaller.reader, recaller.reader.facets["wing"]
    profile = DEFAULT.replaced(graph_weight=0.0, depth=1000)
    masks = {None: None, "home": np.asarray(wings.codes == wings.values.index("home"))}
    for (wing, mask), query in product(masks.items(), ("kitten violin", "trip walnut meadow")):
        found = recaller.recall(query, 100, profile=profile, scope=Scope(wing=wing)).memories
        assert found
        for m in found:
            position = reader.positions_of([str(m.id)])[str(m.id)]
            standings = find_standings(recaller, profile, Rows(mask, mask, mask), query, position)
            for standing, hit in zip(standings, (m.lexical, m.dense), strict=True):
                assert standing.rank == (hit.rank if hit else None)
                if hit is not None:
                    assert standing.score == pytest.approx(hit.score)


PROFILES = st.builds(
    RetrievalProfile,
    graph_weight=st.sampled_from([0.0, 0.05, 0.5, 1.0, 3.0]),
    session_weight=st.sampled_from([0.0, 0.3, 1.0]),
    exact_match_bonus=st.sampled_from([0.0, 1e-6, 0.2, 1.0, 50.0]),
    importance_prior=st.sampled_from([0.0, 0.3]),
    fusion=st.sampled_from(["cc", "rrf"]),
)

QUERIES = st.sampled_from(
    ["Nina key", "morning flight", "Atlas migration", "door code", "flight to Lisbon Ana", "valve"]
)


def scores_of(result: RecallResult) -> list[tuple[object, float, float]]:
    return [(m.id, m.final_score, m.relevance) for m in result.memories]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PROFILES, QUERIES)
def test_a_lift_is_a_gain_a_rescaling_a_line_of_its_own_and_looking_changes_nothing(
    dense_store: Store, profile: RetrievalProfile, query: str
) -> None:
    recaller = Recaller.open(dense_store.root)
    plain = recaller.recall(query, 14, profile=profile, dry_run=True)
    told = recaller.recall(query, 14, profile=profile.replaced(explain=True), dry_run=True)
    assert scores_of(told) == scores_of(plain)
    lifted_by = {m.id: profile.graph_weight * m.graph.score for m in told.memories if m.graph}
    for row in told.candidates or ():
        events = {event["phase"]: event["delta"] for event in row["score_events"]}
        assert len(events) == len(row["score_events"])
        assert sum(events.values()) == pytest.approx(row["final_score"], abs=1e-9)
        assert min(events.get("graph", 0.0), events.get("exact_match", 0.0)) >= 0.0
        if row["id"] in lifted_by:
            assert events["graph"] == pytest.approx(lifted_by[row["id"]], abs=1e-9)
        if "exact_match" in events:
            assert events["exact_match"] == pytest.approx(profile.exact_match_bonus, abs=1e-9)


def test_a_rescaling_says_by_what_it_divides(dense_store: Store) -> None:
    profile = RetrievalProfile(explain=True, exact_match_bonus=0.5)
    found = Recaller.open(dense_store.root).recall("Nina Atlas backup", profile=profile)
    events = [{e["phase"]: e for e in m.score_events or ()} for m in found.memories]
    lifted = next(steps for steps in events if "graph" in steps)
    assert lifted["graph"]["delta"] > 0.0 > lifted["graph_scale"]["delta"]
    assert lifted["graph_scale"]["reason"].startswith("all scores are divided by ")
    found = Recaller.open(dense_store.root).recall("spare key", profile=profile)
    steps = {e["phase"]: e for e in found.memories[0].score_events or ()}
    assert steps["exact_match"]["delta"] == pytest.approx(0.5)
    assert steps["exact_match_scale"]["reason"] == "all scores are divided by 1.500"


def test_near_words_are_named_and_an_older_snapshot_has_none(empty_store: Store) -> None:
    profile, told = RetrievalProfile(explain=True), list[str]()
    for near in ({"cheaper": [("book", 0.5), ("zzz", 0.5)]}, {}):
        packed = replace(pack_inputs(household()), near=near)
        directory = build_candidate(empty_store.paths, packed, provenance())
        reader = SnapshotReader.open(directory)
        assert reader.near_words(["cheaper", "zzz"]) == ([("cheaper", "book", 0.5)] if near else [])
        recaller = Recaller(empty_store.paths, reader, "by hand")
        result = recaller.recall("Lisbon, cheaper?", 14, profile=profile, dry_run=True)
        (booked,) = (m for m in result.memories if "is booked" in m.content)
        events = booked.score_events or ()
        told += [event["reason"] for event in events if event["phase"] == "graph"]
    assert [reason.partition("; ")[2] for reason in told] == ["near words: booked near cheaper", ""]
