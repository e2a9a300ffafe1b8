"""The night's plan of adaptive compaction: when there is one, what is kept, who hears of it."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noctuary.compact.archive import ArchiveReader
from noctuary.compact.archive_apply import apply_in_store
from noctuary.compact.archive_plan import ArchiveRules, plan_store
from noctuary.core.store import path_of
from noctuary.core.types import register_hook
from noctuary_assets.index import fold_accesses, score_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from noctuary_assets.proposals import OFF, PLAN, plan_compaction
from tests.support import usage_file
from tests.support.archive import NOW_US, count_use, new_archive_store, versions
from tests.support.lean import write_encoder
from tests.support.store import Store

RULES = ArchiveRules()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "house"
    return new_archive_store(root, write_encoder(root / "encoders"))


@pytest.fixture
def night(store: Store, tmp_path: Path) -> Night:
    """Return a night of that store up to its scores; use is counted as the store's tests say."""
    night = Night(store.paths, tmp_path / "memories.jsonl")
    records, _ = versions()
    lines = [{"id": int(r.memory_id), "content": r.content} for r in records]
    path_of(night.source).write_text("".join(json.dumps(line) + "\n" for line in lines))
    export_memories(night)
    fold_accesses(night)
    score_memories(night)
    count_use(store)
    return night


def switch_on(night: Night, **flags: Any) -> None:
    lines = [f"{name} = {json.dumps(value)}" for name, value in flags.items()]
    night.paths.profiles.write_text("\n".join(["[default]", "adaptive_compaction = true", *lines]))


@contextmanager
def heard() -> Generator[list[dict[str, Any]]]:
    contexts: list[dict[str, Any]] = []
    unregister = register_hook("post_compaction_plan", contexts.append)
    try:
        yield contexts
    finally:
        unregister()


def kept(night: Night) -> dict[str, Any]:
    return json.loads(night.work(PLAN).read_text())


def test_off_means_an_empty_plan_and_the_hook_hears_that(night: Night) -> None:
    with heard() as contexts:
        result = plan_compaction(night)
    assert contexts == [
        {"candidates": [], "groups": [], "would_archive": 0, "would_create_summaries": 0}
    ]
    assert (kept(night)["is_on"], kept(night)["note"], result.facts["note"]) == (False, OFF, OFF)
    assert result.rows == 0


def test_the_hook_hears_low_scores_and_superseded_memories_only(night: Night) -> None:
    """The RFC's own example of a test."""
    switch_on(night)
    usage_file.write(night.paths.usage, {"105": (5, 5, 2, NOW_US)}, as_of_us=NOW_US)
    with heard() as contexts:
        plan_compaction(night)
    (context,) = contexts
    assert context["candidates"]
    for candidate in context["candidates"]:
        assert candidate["ltp_score"] < 0.3
        assert candidate["is_superseded"] is True
        assert candidate["memory_id"] != "105"
    assert (context["would_archive"], context["would_create_summaries"]) == (3, 1)
    (group,) = context["groups"]
    assert group["memory_ids"] == ["101", "102", "103"]


def test_it_is_the_plan_that_the_command_finds_and_nothing_is_archived(night: Night) -> None:
    switch_on(night)
    result = plan_compaction(night)
    plan = plan_store(night.paths, RULES)
    assert kept(night)["plan_id"] == plan.plan_id == result.facts["plan_id"]
    assert result.facts["would_archive"] == len(plan.archived) == 4
    assert not night.paths.archive.exists()
    times = result.notes["phase_timing_ms"]["adaptive_compaction"]
    assert set(times) == {
        "ltp_scan_ms", "supersede_check_ms", "consolidation_plan_ms", "total_ms",
    }  # fmt: skip
    done = apply_in_store(night.paths, RULES, result.facts["plan_id"], now_us=NOW_US)
    assert done.applied_at_us is not None
    assert len(ArchiveReader(night.paths.archive).entries_at(None)) == 4
    assert plan_compaction(night).facts["would_archive"] == 0


def test_the_same_night_again_writes_the_same_bytes(night: Night) -> None:
    switch_on(night)
    plan_compaction(night)
    before = night.work(PLAN).read_bytes()
    assert plan_compaction(night).reused
    assert night.work(PLAN).read_bytes() == before


def test_what_is_kept_and_told_holds_no_text_of_a_memory(night: Night) -> None:
    switch_on(night)
    with heard() as contexts:
        result = plan_compaction(night)
    said = night.work(PLAN).read_text() + json.dumps([contexts, result.facts, result.notes])
    assert not [r.content for r in versions()[0] if r.content in said]
    assert "spare" not in said


@pytest.mark.parametrize("spoiled", ["groups", "candidates"])
def test_a_hook_that_writes_and_fails_changes_nothing(night: Night, spoiled: str) -> None:
    switch_on(night)
    plain = plan_compaction(night)

    def fail(context: dict[str, Any]) -> None:
        context[spoiled].clear()
        raise RuntimeError("not today")

    unregister = register_hook("post_compaction_plan", fail)
    try:
        result = plan_compaction(night)
    finally:
        unregister()
    assert result.digest == plain.digest
    assert "RuntimeError: not today" in result.notes["hook_faults"]


def test_the_stores_profile_decides(night: Night) -> None:
    switch_on(night, compaction_age_days=370, decay_enabled=True, max_scan_depth=3)
    result = plan_compaction(night)
    assert result.facts["superseded"] == 4
    assert result.facts["candidates"] < 4
    assert kept(night)["rules"]["decay_lambda"] == 0.01
    assert "max_scan_depth ended the scan after 3 of 4" in result.notes["warning"]
    assert kept(night)["pagination_state"]["scan_depth_reached"] is True


def test_without_counts_of_use_a_night_plans_nothing(night: Night) -> None:
    switch_on(night)
    night.paths.usage.unlink()
    result = plan_compaction(night)
    assert result.facts["would_archive"] == 0
    assert "no night has counted yet" in result.notes["warning"]
