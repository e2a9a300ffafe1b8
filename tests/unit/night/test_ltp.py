"""The stages access_statistics and ltp_scores one after the other, night after night."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.cli.store import examine
from noctuary.core.store import StorePaths, path_of
from noctuary.core.types import register_hook
from noctuary.recall.profile import RetrievalProfile
from noctuary.usage import statistics
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.reader import UsageReader
from noctuary.work.stage import StageResult
from noctuary_assets import index as ltp
from noctuary_assets import index as usage
from noctuary_assets.index import fold_accesses, score_memories, scoring_rules
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.usage_file import DAY_US, rows


@pytest.fixture
def night(tmp_path: Path) -> Night:
    night = Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl")
    hold(night, *range(1, 8))
    return night


def hold(night: Night, *ids: int, sensitive: int | None = None) -> None:
    """Let the source hold these memories, and export it."""
    lines = [
        {
            "id": n,
            "content": f"The key number {n} hangs in the hall.",
            "is_sensitive": n == sensitive,
        }
        for n in ids
    ]
    path_of(night.source).write_text("".join(json.dumps(line) + "\n" for line in lines))
    export_memories(night)


def recalled(night: Night, *ids: str, days_ago: int = 0) -> None:
    path = night.paths.access_log
    assert append_retrievals(path, snapshot_id="s", memory_ids=ids) is None
    if days_ago:
        with closing(sqlite3.connect(path)) as log, log:
            log.execute(
                "UPDATE retrievals SET retrieved_at_us = retrieved_at_us - ? "
                f"WHERE memory_id IN ({','.join('?' * len(ids))})",
                [days_ago * DAY_US, *ids],
            )


def pass_night(night: Night) -> tuple[StageResult, StageResult]:
    return fold_accesses(night), score_memories(night)


def configure(monkeypatch: pytest.MonkeyPatch, **flags: Any) -> None:
    def configured(_: Night) -> RetrievalProfile:
        return RetrievalProfile(**flags)

    for module in (ltp, usage):
        monkeypatch.setattr(module, "store_profile", configured)


def counted(night: Night, *ids: str) -> list[list[int]]:
    return [array.tolist() for array in UsageReader(night.paths.usage).counts(ids)][:2]


def test_recall_can_read_what_the_night_counted(night: Night) -> None:
    recalled(night, "1", "2", "gone")
    recalled(night, "2", "1")
    recalled(night, "3", days_ago=40)
    before_us = time.time_ns() // 1000
    facts = fold_accesses(night).facts
    assert counted(night, "1", "2", "3", "gone", "4") == [[2, 2, 0, 0, 0], [1, 1, 1, 0, 0]]
    reader = UsageReader(night.paths.usage)
    assert reader.co_retrieved(["1", "2", "3"]).tolist() == [2, 2, 0]
    assert set(reader.most_used(9)) == {"1", "2"}
    assert (reader.window_days, reader.digest) == (30, facts["usage_digest"])
    assert before_us <= reader.as_of_us <= time.time_ns() // 1000
    assert {name: facts[name] for name in facts if name.startswith(("recalled", "co_"))} == {
        "recalled_in_window": 2, "co_retrieved_pairs": 1, "co_retrieved_pairs_left_out": 0,
    }  # fmt: skip


def test_days_and_last_access_outlive_their_rows_recent_use_does_not(night: Night) -> None:
    recalled(night, "1", days_ago=100)
    assert fold_accesses(night).notes == {"rows_folded": 1, "rows_pruned": 1}
    assert counted(night, "1") == [[0], [1]]
    recalled(night, "1")
    fold_accesses(night)
    assert counted(night, "1") == [[1], [2]]


def test_scores_follow_use_and_an_unchanged_night_writes_none(night: Night) -> None:
    recalled(night, "2")
    _, scores = pass_night(night)
    assert scores.facts == {"memories": 7, "memories_in_use": 1, "not_scanned": 0}
    assert (scores.notes["ltp_updated"], scores.reused, scores.notes["warning"]) == (7, False, None)
    _, scores = pass_night(night)
    assert (scores.notes["ltp_updated"], scores.notes["ltp_skipped_unchanged"]) == (0, 7)
    assert scores.reused
    recalled(night, "2", "3")
    _, scores = pass_night(night)
    assert (scores.notes["ltp_updated"], scores.reused) == (2, False)
    assert scores.notes["pagination_state"]["total"] == 7
    json.dumps(scores.notes)


def test_deleted_and_newly_sensitive_memories_leave_the_file(night: Night) -> None:
    recalled(night, "6", "5", "1")
    pass_night(night)
    hold(night, 1, 2, 3, 4, 6, sensitive=6)
    pass_night(night)
    for table, column in (
        ("access", "memory_id"),
        ("ltp", "memory_id"),
        ("co_retrieval", "a || b"),
    ):
        found = rows(night.paths.usage, f"SELECT {column} FROM {table}")
        assert not {m for (m,) in found} & {"5", "6", "15", "16", "56"}, table
    assert rows(night.paths.usage, "SELECT memory_id FROM access") == [("1",)]


def test_the_configured_profile_decides_how_it_is_scanned(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "BATCH_ROWS", 2)
    configure(monkeypatch, max_scan_depth=5, decay_enabled=True)
    recalled(night, "1", days_ago=20)
    seen: list[dict[str, Any]] = []
    remove = register_hook("post_batch", seen.append)
    _, scores = pass_night(night)
    remove()
    assert [(b["offset"], b["batch_size"]) for b in seen] == [(0, 2), (2, 2), (4, 1)]
    assert scores.facts["not_scanned"] == 2
    assert "2 were not scanned" in scores.notes["warning"]
    [(multiplier, score, faded)] = rows(
        night.paths.usage,
        "SELECT ltp_multiplier, ltp_score, decayed_score FROM ltp WHERE ltp_score > 0",
    )
    assert (multiplier, score) == pytest.approx((1.208, 0.208), abs=1e-3)
    assert faded == pytest.approx(score * 0.819, rel=1e-2), "exp(-0.01 * 20)"
    [finding] = [f for f in examine(night.paths) if f.name == "usage"]
    assert (finding.level, "2 memories" in finding.message) == ("warn", True)
    assert finding.remedy
    configure(monkeypatch)
    pass_night(night)
    [finding] = [f for f in examine(night.paths) if f.name == "usage"]
    assert finding.level == "ok"


def test_a_failing_hook_is_a_note(night: Night) -> None:
    def fail(_: dict[str, Any]) -> None:
        raise RuntimeError("no")

    remove = register_hook("post_batch", fail)
    _, scores = pass_night(night)
    remove()
    assert scores.notes["hook_faults"] == "a post_batch hook raised RuntimeError: no"
    assert scores.facts["memories"] == 7


def test_a_damaged_log_leaves_the_sums_and_counts_nothing_recent(night: Night) -> None:
    recalled(night, "1", "2")
    pass_night(night)
    for beside in night.paths.root.glob("access.sqlite*"):
        beside.unlink()
    night.paths.access_log.write_bytes(b"x" * 5000)
    facts = fold_accesses(night).facts
    assert facts["fault"] is not None
    assert counted(night, "1", "2") == [[0, 0], [1, 1]]


def test_rules_of_a_profile() -> None:
    assert scoring_rules(RetrievalProfile())._asdict() == {
        "max_scan_depth": 0, "decay_lambda": 0.0,
    }  # fmt: skip
