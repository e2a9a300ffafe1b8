"""Steps of explained recalls: what lifts is never shown as a loss, and looking changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from tests.support.store import Store

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
