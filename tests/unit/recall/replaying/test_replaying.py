from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.types import from_micros
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.replay import replay, rerun
from tests.support.replays import EVERYTHING, KEPT, forget_users, keep, last_packet, use
from tests.support.store import Store, day_us, household, memory, renumber
from tests.support.usage import count_retrievals

PROFILES = {
    "default": KEPT,
    "everything": EVERYTHING,
    "off": RetrievalProfile.off().replaced(replay_log=True),
    "rrf": KEPT.replaced(fusion="rrf"),
    "hybrid": KEPT.replaced(scorer="hybrid"),
    "two_pass": KEPT.replaced(scorer="two_pass", coarse_threshold=0.0),
}


def change_the_world(store: Store) -> None:
    """A night with other memories, another use, another past query."""
    store.publish(renumber([memory("A spare key for Nina."), *household()[1:]]))
    count_retrievals(store, [["102", "104"]] * 5)
    use(store, "the blue door")


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("query", ["Nina key", "morning flight", "door code", "zebra"])
def test_a_kept_recall_is_identical_whatever_happens_to_the_store_afterwards(
    dense_store: Store, name: str, query: str
) -> None:
    use(dense_store)
    scope = Scope(user="ana")
    then = keep(dense_store, query, profile=PROFILES[name], scope=scope)
    assert then.warnings == ()
    packet = last_packet(dense_store)
    change_the_world(dense_store)
    now = Recaller.open(dense_store.root)
    assert now.snapshot_id != packet["snapshot_id"]
    compared = replay(dense_store.paths, packet)
    assert compared.differences == ()
    assert compared.identical
    assert compared.memories == len(then.memories)


def test_the_same_recall_is_another_one_after_the_change(dense_store: Store) -> None:
    """What the test above would miss if replays looked at the world of today."""
    use(dense_store)
    keep(dense_store, "Nina key", profile=EVERYTHING)
    packet = last_packet(dense_store)
    count_retrievals(dense_store, [["102", "104"]] * 5)
    recaller = Recaller.open(dense_store.root)
    assert recaller.snapshot_id == packet["snapshot_id"]
    live = recaller.recall("Nina key", 5, profile=EVERYTHING)
    scores = [{"id": m.id, "final_score": m.final_score} for m in live.memories]
    assert scores != packet["results"]
    assert rerun(recaller, packet).identical


_flags = st.fixed_dictionaries(
    {},
    optional={
        name: st.booleans()
        for name in (
            "ltp_enabled", "time_decay_enabled", "association_enabled", "mmr_enabled",
            "pinned_memory_enabled", "query_expansion_enabled", "supersede_filter_enabled",
            "consolidation_enabled", "explain", "candidate_trace",
        )
    }
    | {"fusion": st.sampled_from(["cc", "rrf"]), "graph_weight": st.floats(0, 3)},
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(
        st.sampled_from(["key", "cat", "Atlas", "flight", "door", "🔑\udcff"]), max_size=4
    ),
    k=st.integers(0, 20),
    flags=_flags,
    sort_by=st.sampled_from(["relevance", "importance", "recency"]),
    as_of=st.none() | st.integers(0, 60).map(lambda day: from_micros(day_us(day))),
)
def test_any_packet_survives_json_and_replays_identically(
    dense_store: Store,
    words: list[str],
    k: int,
    flags: dict[str, Any],
    sort_by: str,
    as_of: datetime | None,
) -> None:
    if not dense_store.paths.queries.exists():
        use(dense_store)
    result = keep(
        dense_store,
        " ".join(words),
        k,
        profile=KEPT.replaced(**flags),
        scope=Scope(as_of=as_of),
        sort_by=sort_by,
        dry_run=True,
    )
    packet = json.loads(json.dumps(result.replay_packet))
    assert packet == result.replay_packet
    assert rerun(Recaller.open(dense_store.root), packet).differences == ()


def test_a_packet_has_the_fields_of_the_rfc_and_no_text_of_a_memory(dense_store: Store) -> None:
    use(dense_store)
    result = keep(
        dense_store, "Nina key", 3, profile=EVERYTHING, session_id="s1",
        scope=Scope(user="ana", as_of=datetime(2026, 3, 1, tzinfo=UTC)),
    )  # fmt: skip
    packet = last_packet(dense_store)
    assert packet == result.replay_packet
    assert (packet["format"], len(packet["replay_id"])) == (2, 12)
    assert (packet["query"], packet["k"], packet["sort_by"]) == ("Nina key", 3, "relevance")
    assert packet["scope"] == {
        "wing": None, "room": None, "category": None, "user": "ana",
        "as_of": "2026-03-01T00:00:00+00:00",
    }  # fmt: skip
    assert (packet["session_id"], packet["profile_used"]) == ("s1", "p")
    assert packet["profile"] == EVERYTHING.to_json()
    assert packet["snapshot_id"] == result.snapshot_id
    assert packet["wing_counts_at_query_time"] == {"home": 9, "work": 2}
    assert packet["model_guard_result"] == "MATCH"
    assert [row["id"] for row in packet["results"]] == [m.id for m in result.memories]
    assert packet["pagination_state"] == {
        "total": 13, "batches_processed": 0, "last_offset": 0, "scan_depth_reached": False,
    }, "Ben has another"  # fmt: skip
    for row in packet["results"]:
        events = packet["score_events"][str(row["id"])]
        assert sum(e["delta"] for e in events) == pytest.approx(row["final_score"], abs=1e-9)
    text = json.dumps(packet)
    assert not [m.content for m in household() if m.content in text]


def test_a_packet_holds_whatever_the_recall_asked_of_the_world(dense_store: Store) -> None:
    """So that the replays above replay something."""
    forget_users(dense_store)
    use(dense_store)
    keep(dense_store, "morning flight", profile=EVERYTHING, scope=Scope(user="ana"))
    world = last_packet(dense_store)["world"]
    (past,) = world["past_queries"].values()
    assert [row[0] for row in past["found"]] == ["flight to Lisbon"]
    assert len(world["vectors"]) > 1, "expansion asked further questions"
    assert world["usage"]["101"][0] == 3
    assert any(world["co_retrieved"].values())
    assert "101" in [i for ids in world["most_used"].values() for i in ids]
    assert world["encoder"]["dimension"] == 8


def test_a_packet_tells_how_far_the_scan_of_a_store_without_users_came(dense_store: Store) -> None:
    forget_users(dense_store)
    scanned = {"total": 14, "batches_processed": 1, "last_offset": 14, "scan_depth_reached": False}
    before = (keep(dense_store, "key").replay_packet or {})["pagination_state"]
    assert before == {**scanned, "batches_processed": 0, "last_offset": 0}, "no night has counted"
    use(dense_store)
    assert (keep(dense_store, "key").replay_packet or {})["pagination_state"] == scanned


def test_without_replay_log_nothing_is_kept_and_in_a_dry_run_nothing_is_written(
    dense_store: Store,
) -> None:
    assert keep(dense_store, "key", profile=RetrievalProfile()).replay_packet is None
    assert keep(dense_store, "key", dry_run=True).replay_packet is not None
    assert not dense_store.paths.replays.exists()


def test_keeping_a_recall_changes_nothing_in_it(dense_store: Store) -> None:
    use(dense_store)
    quiet = EVERYTHING.replaced(replay_log=False)
    for query in ("Nina key", "morning flight", "", "door"):
        kept = keep(dense_store, query, profile=EVERYTHING)
        plain = keep(dense_store, query, profile=quiet)
        assert [m.id for m in kept.memories] == [m.id for m in plain.memories]
        assert kept.warnings == plain.warnings
        assert all(m.score_events is None for m in kept.memories)
