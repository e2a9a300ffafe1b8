"""The hook that hears what compaction is about to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mnemon.hooks import register_hook
from mnemon.night.compaction import cluster_old_turns
from mnemon.night.context import Night
from mnemon.night.corpus import export_memories
from mnemon.snapshot.layout import StorePaths

TURNS = 60


@pytest.fixture
def night(tmp_path: Path) -> Night:
    night = Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl")
    lines = [
        {
            "id": n,
            "content": f"Ana: turn number {n} about the garden.",
            "category": "turn",
            "session_id": "s1",
            "created_at": f"2026-03-01T10:{n:02d}:00Z",
        }
        for n in range(TURNS)
    ]
    night.source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    export_memories(night)
    return night


def test_the_plan_names_every_turn_that_would_be_summarised(night: Night) -> None:
    heard: list[dict[str, Any]] = []
    unregister = register_hook("post_compaction_plan", heard.append)
    try:
        result = cluster_old_turns(night)
        again = cluster_old_turns(night)
    finally:
        unregister()
    plan = heard[0]
    grouped = [m for group in plan["groups"] for m in group["memory_ids"]]
    assert [c["memory_id"] for c in plan["candidates"]] == grouped
    assert len(grouped) == result.facts["clustered_turns"] > 0
    assert plan["would_archive"] == 0
    assert plan["would_create_summaries"] == result.rows - result.facts["trivial_clusters"]
    assert again.reused
    assert heard[1] == plan


def test_a_hook_that_fails_leaves_the_plan_alone(night: Night) -> None:
    plain = cluster_old_turns(night)

    def fail(context: dict[str, Any]) -> None:
        context["groups"].clear()
        raise RuntimeError("not today")

    unregister = register_hook("post_compaction_plan", fail)
    try:
        result = cluster_old_turns(night)
    finally:
        unregister()
    assert result.digest == plain.digest
    assert "RuntimeError: not today" in result.notes["hook_faults"]
