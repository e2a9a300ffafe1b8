"""What is not searched is told: why, candidate trace, replay; explanations of what is shown."""

from __future__ import annotations

import time
from typing import Any

import pytest

from noctuary.recall import explain as explaining
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import Why, explain_memory
from noctuary.recall.legs import GraphPath, GraphRanking, path_of
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from noctuary.recall.replay import rerun
from tests.support.replays import log_recall
from tests.support.store import (
    Store,
    renumber,
    turns,
)
from tests.support.views import archive, deep, ids

SUMMARIES = RetrievalProfile(turn_view="summaries")


@pytest.fixture(name="dense")
def _dense(dense_store: Store) -> Recaller:
    return Recaller.open(dense_store.root)


def explain(recaller: Recaller, query: str, memory_id: str, **flags: Any) -> Why:
    profile = RetrievalProfile(**flags)
    return explain_memory(
        recaller,
        Query(query, 5, profile, "test", Scope(), "relevance", None, dry_run=True),
        memory_id,
    )


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
    assert "[108] stands for it" in why.sentences[0]
    assert "noctuary proposals compact --undo p1" in why.sentences[1]
    assert explain(after, "spare key", "101", include_archived=True).stage == "returned"


def test_why_says_that_a_turn_is_behind_its_summary_and_what_became_of_that(
    dense: Recaller,
) -> None:
    (summary,) = dense.reader.summaries.ids
    why = explain(dense, "morning flight", "110", turn_view="summaries")
    assert why.stage == "behind_summary"
    assert f"[{summary}]" in why.sentences[0]
    assert any(f"[{summary}] came back at place 1" in said for said in why.sentences)
    own = explain(dense, "morning flight", summary, turn_view="summaries")
    assert own.stage == "returned"
    far = explain(dense, "cat", summary, turn_view="summaries", depth=1, graph_weight=0.0)
    assert far.stage in {"not_found", "below_limit"}


def test_the_candidate_trace_names_what_is_hidden_and_what_stands_for_it(dense: Recaller) -> None:
    (summary,) = dense.reader.summaries.ids
    after = archive(dense, {"101": "108"})
    profile = SUMMARIES.replaced(candidate_trace=True)
    rows = deep(after, "spare key morning flight", profile).candidate_trace or ()
    hidden = {str(r["memory_id"]): r for r in rows if r["dropped_at"] in {"archive", "turn_view"}}
    assert hidden["101"]["dropped_at"] == "archive"
    assert hidden["101"]["archived_behind"] == 108
    assert hidden["110"]["summarized_by"] == summary
    assert 0.0 < hidden["110"]["score"] <= 1.0


def test_candidates_whose_score_stayed_at_zero_are_described_as_well(dense_store: Store) -> None:
    """Members of a session come in with whatever score they have, 0 as well."""
    texts = ["Ana: where is the lantern?", *(f"Bot: {word}." for word in ("hm", "well", "so"))]
    dense_store.publish(renumber(turns("s1", *texts)))
    profile = RetrievalProfile(explain=True, candidate_trace=True, dense_weight=0.0)
    result = Recaller.open(dense_store.root).recall("lantern", 1, profile=profile, dry_run=True)
    rows = [row for row in result.candidates or () if "place" in row]
    assert len(rows) == result.pipeline["total_candidates_in"]
    assert any(row["final_score"] == 0.0 for row in rows)


def test_reasons_are_made_for_what_is_described_and_for_nothing_else(
    dense: Recaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counting(ranking: GraphRanking, position: int) -> GraphPath | None:
        asked.append(position)
        return path_of(ranking, position)

    monkeypatch.setattr(explaining, "path_of", counting)
    profile = RetrievalProfile(explain=True, candidate_trace=True)
    result = dense.recall("morning flight", 1, profile=profile)
    assert result.pipeline["total_candidates_in"] > 3
    assert len(set(asked)) <= 1
    dense.recall("morning flight", 1, profile=profile, dry_run=True)
    assert len(set(asked)) > 1, "every candidate is described then"
