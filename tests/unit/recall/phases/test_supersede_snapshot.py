"""Phase 8 over snapshots as a night makes them: the stored table through the real `recall`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.types import MemoryRecord
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller, Search
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Rows, Scope
from noctuary.recall.reader import SnapshotGraph
from noctuary.recall.replay import replay
from noctuary.recall.result import RecallResult
from tests.support.replays import keep, last_packet
from tests.support.store import Store, day_us, memory, new_store, renumber

ALONE = {"graph_weight": 0.0, "importance_prior": 0.0}
"""Only the legs and the phase under test."""

ACME, GLOBEX, PLAN, NEW_PLAN = 101, 102, 104, 105


def jobs(**scope: Any) -> list[MemoryRecord]:
    """Two jobs of Lena, thirty days apart, and a plan that another with no word of it replaces."""
    return renumber(
        [
            memory("Lena works at Acme.", created_at_us=day_us(2), **scope),
            memory("Lena works at Globex.", created_at_us=day_us(32), **scope),
            memory("The boiler needs a new valve.", created_at_us=day_us(3)),
            memory("Deploys go out weekly.", created_at_us=day_us(4)),
            memory("Nightly from May on. Supersedes #104", created_at_us=day_us(60)),
        ]
    )


@pytest.fixture
def store(home: Path) -> Store:
    made = new_store(home / "house")
    made.publish(jobs())
    return made


def ask(query: str, action: str | None = "filter", k: int = 3, **options: Any) -> RecallResult:
    flags = {} if action is None else {"supersede_filter_enabled": True, "supersede_action": action}
    return recall(query, k, profile={**ALONE, **flags}, dry_run=True, **options)


def ids(result: RecallResult) -> list[Any]:
    return [m.id for m in result.memories]


@pytest.mark.usefixtures("store")
def test_filter_returns_what_holds_now() -> None:
    assert ids(ask("Acme", None)) == [ACME]
    filtered = ask("Acme", candidate_trace=True, explain=True)
    assert ids(filtered) == [GLOBEX]
    (found,) = filtered.memories
    assert found.final_score == ask("Acme", None).memories[0].final_score
    assert [dict(e) for e in found.score_events or ()] == [
        {
            "phase": "supersede",
            "delta": found.final_score,
            "reason": "takes the place of the older [101]",
        }
    ]
    (row,) = (r for r in filtered.candidate_trace or () if r["dropped_at"] == "supersede")
    assert row["memory_id"] == ACME
    assert row["reason"] == "superseded by [102]: newer_value, evidence [102]"
    assert (row["superseded_by"], row["evidence"]) == (GLOBEX, GLOBEX)
    assert row["score_at_drop"]["partial_score"] == row["score"]


@pytest.mark.usefixtures("store")
def test_final_scores_are_the_sums_of_their_events() -> None:
    found = ask("Lena works at Acme, deploys weekly, boiler valve", explain=True, k=9)
    assert {GLOBEX, NEW_PLAN} <= set(ids(found))
    assert not {ACME, PLAN} & set(ids(found))
    for memory_found in found.memories:
        summed = sum(event["delta"] for event in memory_found.score_events or ())
        assert summed == pytest.approx(memory_found.final_score, abs=1e-12)


@pytest.mark.usefixtures("store")
def test_an_explicit_successor_that_shares_no_word_comes_in() -> None:
    assert ids(ask("deploys weekly", None)) == [PLAN]
    filtered = ask("deploys weekly", candidate_trace=True)
    assert ids(filtered) == [NEW_PLAN]
    (row,) = (r for r in filtered.candidate_trace or () if r["dropped_at"] == "supersede")
    assert row["reason"] == "superseded by [105]: explicit, evidence [105]"


@pytest.mark.usefixtures("store")
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


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("action", ["filter", "annotate"])
def test_what_came_after_as_of_replaces_nothing(action: str) -> None:
    between = datetime(2026, 1, 20, tzinfo=UTC)
    (found,) = ask("Lena works", action, as_of=between).memories
    assert (found.id, found.annotations) == (ACME, {})
    later = ask("Lena works", action, as_of=datetime(2026, 2, 1, tzinfo=UTC))
    assert GLOBEX in ids(later)


@pytest.mark.parametrize("action", ["filter", "annotate"])
def test_a_successor_out_of_scope_replaces_nothing(home: Path, action: str) -> None:
    records = jobs()
    made = new_store(home / "house")
    # A memory without a wing may be replaced by one of any.
    records[1] = memory("Lena works at Globex.", created_at_us=day_us(32), category="note")
    made.publish(renumber(records))
    assert GLOBEX in ids(ask("Lena works", action))
    (found,) = ask("Lena works", action, category="fact").memories
    assert (found.id, found.annotations) == (ACME, {})


def test_the_table_is_read_once_and_only_if_asked(store: Store) -> None:
    recaller = Recaller.open(store.root)
    off = recaller.recall("Lena works", profile=RetrievalProfile())
    assert {m.id: m.annotations for m in off.memories[:2]} == {ACME: {}, GLOBEX: {}}
    assert "superseded" not in vars(recaller.reader)
    on = RetrievalProfile(supersede_filter_enabled=True)
    recaller.recall("Acme", profile=on)
    first = vars(recaller.reader)["superseded"]
    recaller.recall("Lena", profile=on)
    assert vars(recaller.reader)["superseded"] is first


def test_successors_come_with_their_evidence_and_in_chains(home: Path) -> None:
    made = new_store(home / "house")
    made.publish(
        renumber(
            [
                memory("TSLint: replaced by ESLint.", created_at_us=day_us(2)),
                memory("ESLint: the linter of the house.", created_at_us=day_us(9)),
                memory("Nothing but Biome. Supersedes #102", created_at_us=day_us(20)),
            ]
        )
    )
    recaller = Recaller.open(made.root)

    def successors(mask: list[bool] | None) -> dict[int, tuple[int, str, int]]:
        shown = None if mask is None else np.array(mask)
        query = Query("", 1, RetrievalProfile(), "test", Scope(), "relevance", None, True)
        graph, rows = SnapshotGraph(recaller.reader), Rows(shown, shown, shown)
        search = Search(recaller.reader, graph, query, recaller.inputs_now(), rows=rows)
        found = search.successors_of(np.array([0], dtype=np.int64))
        return {older: (s.newer, s.reason, s.evidence) for older, s in found.items()}

    both = {0: (1, "explicit", 0), 1: (2, "explicit", 2)}
    assert successors(None) == both
    assert successors([True, True, False]) == {0: both[0]}
    assert successors([True, False, True]) == {}


def test_a_replay_comes_to_the_same(store: Store) -> None:
    on = RetrievalProfile(replay_log=True, supersede_filter_enabled=True)
    kept = keep(store, "Acme", profile=on)
    assert ids(kept) == [GLOBEX]
    compared = replay(store.paths, last_packet(store))
    assert (compared.identical, compared.memories) == (True, 1), compared.differences
