"""Every phase, switched on, changes a real search result for the reason that it is there for.

Real stores, the real `recall`, real logs and a real usage file: the reference implementation's MMR
and query expansion passed their unit tests and did nothing end to end.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.files import remove_tree
from noctuary.core.sqlite import close_logs
from noctuary.core.types import MemoryRecord
from noctuary.embed.lean import LeanEncoder
from noctuary.recall.api import recall
from noctuary.recall.result import RecallResult
from tests.support.lean import write_encoder
from tests.support.store import Store, day_us, memory, new_store, renumber, turns
from tests.support.usage import count_retrievals

NOTHING = {
    "graph_weight": 0.0,
    "importance_prior": 0.0,
    "ltp_enabled": False,
    "tagging_enabled": False,
}
"""Flags under which only the phase under test acts."""


@pytest.fixture
def encoder(home: Path) -> LeanEncoder:
    return write_encoder(home / "house" / "encoders")


def store_of(home: Path, records: Sequence[MemoryRecord], encoder: LeanEncoder | None) -> Store:
    store = new_store(home / "house", encoder=encoder)
    store.publish(renumber(records))
    return store


def ask(query: str, k: int = 3, *, dry_run: bool = True, **flags: Any) -> RecallResult:
    return recall(query, k, profile={**NOTHING, **flags}, dry_run=dry_run, candidate_trace=True)


def ids(result: RecallResult) -> list[Any]:
    return [memory.id for memory in result.memories]


def trace_of(result: RecallResult, phase: str) -> list[dict[str, Any]]:
    return [dict(r) for r in result.candidate_trace or () if r.get("dropped_at") == phase]


def test_model_guard_keeps_another_model_s_cosines_out(home: Path, encoder: LeanEncoder) -> None:
    store = store_of(home, [memory("the feline sleeps"), memory("a cat flap")], encoder)
    assert set(ids(ask("cat"))) == {101, 102}
    remove_tree(store.paths.encoders / encoder.fingerprint.digest)
    other = write_encoder(store.paths.encoders, scale=2.0)
    assert other.fingerprint.dimension == encoder.fingerprint.dimension
    place = store.paths.encoders / encoder.fingerprint.digest
    (store.paths.encoders / other.fingerprint.digest).rename(place)
    guarded = ask("cat")
    assert ids(guarded) == [102]
    assert guarded.pipeline["model_guard"] == "MISMATCH"
    assert "model_mismatch" in {w.code for w in guarded.warnings}
    assert guarded.candidate_trace is not None
    assert guarded.candidate_trace[0]["action"] == "warn"
    strict = ask("cat", model_guard_strict=True)
    assert ids(strict) == []
    assert {w.code for w in strict.warnings} == {"model_guard_blocked"}


def test_ltp_lifts_what_was_recalled_often(home: Path) -> None:
    store = store_of(home, [memory("door key"), memory("door lock")], None)
    assert ids(ask("door")) == [101, 102]
    count_retrievals(store, [["102"]] * 9)
    assert ids(ask("door")) == [101, 102]
    lifted = ask("door", ltp_enabled=True)
    assert ids(lifted) == [102, 101]
    assert all(0 <= m.final_score <= 1 for m in lifted.memories)


def test_time_decay_prefers_the_younger_of_equals(home: Path) -> None:
    records = [
        memory("door key", created_at_us=day_us(1)),
        memory("door lock", created_at_us=day_us(200)),
    ]
    store_of(home, records, None)
    assert ids(ask("door")) == [101, 102]
    assert ids(ask("door", time_decay_enabled=True)) == [102, 101]


def test_tagging_lifts_what_was_filed_today(home: Path) -> None:
    now_us = time.time_ns() // 1000
    store_of(home, [memory("door key"), memory("door lock", created_at_us=now_us)], None)
    assert ids(ask("door")) == [101, 102]
    assert ids(ask("door", tagging_enabled=True)) == [102, 101]


def test_association_lifts_what_was_recalled_together(home: Path) -> None:
    records = [memory("door key"), memory("door lock"), memory("door mat")]
    store = store_of(home, records, None)
    count_retrievals(store, [["102", "103"]] * 6)
    assert ids(ask("door")) == [101, 102, 103]
    assert ids(ask("door", association_enabled=True)) == [102, 103, 101]


def test_query_expansion_finds_by_the_words_of_similar_questions(
    home: Path, encoder: LeanEncoder
) -> None:
    records = [memory("the kitten naps upstairs"), memory("upstairs: the heater hums")]
    store = store_of(home, records, encoder)
    # The words alone rank; the vectors only tell which questions are alike.
    log: dict[str, Any] = {"query_expansion_enabled": True, "dense_weight": 0.0}
    first = ask("kitten", dry_run=False, **log)
    assert ids(first) == [101]
    assert store.paths.queries.exists()
    assert ids(ask("cat", dense_weight=0.0)) == []
    expanded = ask("cat", dry_run=False, **log)
    assert set(ids(expanded)) == {101, 102}
    assert set(expanded.pipeline["expanded"]) == {101, 102}
    assert expanded.pipeline["notes"]["query_expansion"]["applied"] is True
    assert retrieved(store) == {"101"}


def retrieved(store: Store) -> set[str]:
    """Every memory that the access log counts."""
    close_logs()
    with closing(sqlite3.connect(store.paths.access_log)) as log:
        return {memory_id for (memory_id,) in log.execute("SELECT memory_id FROM retrievals")}


def test_a_stale_fact_yields_to_its_successor(home: Path, encoder: LeanEncoder) -> None:
    records = [
        memory("the doctor: at the market, doctor", created_at_us=day_us(1)),
        memory("the physician: at the harbour", created_at_us=day_us(90)),
        memory("the boiler valve", created_at_us=day_us(1)),
    ]
    store_of(home, records, encoder)
    assert ids(ask("doctor", 1)) == [101]
    filtered = ask("doctor", 1, supersede_filter_enabled=True)
    assert ids(filtered) == [102]
    (drop,) = trace_of(filtered, "supersede")
    assert (drop["memory_id"], drop["superseded_by"]) == (101, 102)
    told = ask("doctor", supersede_filter_enabled=True, supersede_action="annotate")
    by_id = {m.id: m.annotations for m in told.memories}
    assert by_id[101]["superseded_by"] == 102
    assert by_id[102]["supersedes"] == [101]


def test_a_summary_stands_for_its_turns(home: Path, encoder: LeanEncoder) -> None:
    talk = turns(
        "s1",
        *(f"Ana: the flight number {i} is cheap." for i in range(8)),
    )
    store_of(home, talk, encoder)
    plain = ask("flight", 8)
    assert {m.kind for m in plain.memories} == {"memory"}
    folded = ask("flight", 8, consolidation_enabled=True)
    summaries = [m for m in folded.memories if m.kind == "summary"]
    assert summaries
    sources = summaries[0].sources
    assert set(sources) <= set(ids(plain))
    assert not set(sources) & set(ids(folded))
    assert {d["memory_id"] for d in trace_of(folded, "consolidation")} >= set(sources)


def test_pinned_memories_are_lifted(home: Path) -> None:
    store_of(home, [memory("door key", tags="iron"), memory("door lock", tags="pinned")], None)
    some: dict[str, Any] = {"importance_prior": 0.3}
    assert ids(ask("door", **some)) == [101, 102]
    pinned = ask("door", pinned_memory_enabled=True, **some)
    assert ids(pinned) == [102, 101]
    assert "pinned_reason" in pinned.memories[0].annotations


def test_mmr_puts_something_else_in_the_place_of_a_copy(home: Path, encoder: LeanEncoder) -> None:
    records = [
        memory("cat cat flap"), memory("cat cat flap"), memory("cat cat flap"),
        memory("cat invoice and payment due in may for the clinic in town"),
    ]  # fmt: skip
    store_of(home, records, encoder)
    assert ids(ask("cat", 2)) == [101, 102]
    diverse = ask("cat", 2, mmr_enabled=True, mmr_lambda=0.5, wing_diversity_weight=0.0)
    assert ids(diverse) == [101, 104]
    assert trace_of(diverse, "mmr")


def test_cambodia_surfaces_from_a_wing_of_five_among_four_thousand(home: Path) -> None:
    """The scene of MemPalace issue 860: the big wing's files name the word, the trip tells it."""
    work = [
        memory(f"region: cambodia key{i}", wing="work") if i % 20 == 0
        else memory(f"swagger schema field{i} type string", wing="work")
        for i in range(4000)
    ]  # fmt: skip
    told = (
        "Long itinerary: Phnom Penh, the temples of Siem Reap, all of Cambodia in nine days, two "
        "rest days, a cooking class and a night train that may not run in the rain."
    )
    trip = [
        told,
        "Booked the hotel by the river and the boat for the second week, paid in advance.",
        "The travel insurance covers the whole family and the rented car.",
        "Visa on arrival, two photographs, cash only.",
        "Bring the adapter and the light rain jacket.",
    ]
    flights = [memory(text, wing="flights") for text in trip]
    store_of(home, [*work, *flights], None)
    crowded = ask("cambodia", 5)
    assert {m.wing for m in crowded.memories} == {"work"}
    plain_mmr = ask("cambodia", 5, mmr_enabled=True, wing_diversity_weight=0.0)
    assert {m.wing for m in plain_mmr.memories} == {"work"}
    balanced = ask("cambodia", 5, mmr_enabled=True)
    assert "flights" in {m.wing for m in balanced.memories}
    dropped = trace_of(balanced, "cross_wing_balancing")
    assert dropped
    assert "already saturated" in dropped[0]["reason"]
    no_quota = ask("cambodia", 5, mmr_enabled=True, wing_quota=0)
    assert {m.wing for m in no_quota.memories} == {"work"}


def test_importance_graph_and_exact_matches_act(home: Path) -> None:
    records = [
        memory("door key", importance=0.1),
        memory("door lock", importance=0.9),
        memory("Atlas: migration plan"),
        memory("who leads? Nina leads the Atlas rewrite", category="note"),
    ]
    store_of(home, records, None)
    assert ids(ask("door", importance_prior=0.3)) == [102, 101]
    reached = ask("who leads", 4, graph_weight=1.0)
    assert set(ids(ask("who leads", 4))) < set(ids(reached))


@pytest.mark.parametrize("scorer", ["hybrid", "two_pass"])
def test_the_alternative_scorers_rank_by_recency_too(
    home: Path, encoder: LeanEncoder, scorer: str
) -> None:
    now_us = time.time_ns() // 1000
    records = [memory("the cat", importance=0.5), memory("the cat", importance=0.5)]
    records = [records[0], records[1]._replace(created_at_us=now_us)]
    store_of(home, records, encoder)
    assert ids(ask("cat")) == [101, 102]
    assert ids(ask("cat", scorer=scorer)) == [102, 101]
