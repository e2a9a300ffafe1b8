"""The night's plan of adaptive compaction: when there is one, what is kept, who hears of it."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.compact.archive import ArchiveReader
from noctuary.compact.archive_apply import apply_in_store
from noctuary.compact.archive_plan import ArchiveRules, plan_store
from noctuary.core.settings import CorpusSettings
from noctuary.core.store import path_of
from noctuary.core.types import register_hook
from noctuary.curate.apply import PROPOSALS, Where, apply_proposals, read_proposals, read_proposed
from noctuary.curate.promotions import PROMOTIONS
from noctuary.curate.stores import open_writable
from noctuary_assets.index import fold_accesses, score_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from noctuary_assets.proposals import OFF, PLAN, plan_compaction
from tests.support import usage_file
from tests.support.archive import NOW_US, count_use, new_archive_store, versions
from tests.support.curation import Nights
from tests.support.lean import write_encoder
from tests.support.promotions import Nights as PromotionNights
from tests.support.promotions import turn
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
    table = {"adaptive_compaction": True, **flags}
    night.settings = night.settings._replace(profiles={"default": table})


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
    nothing = {"candidates": [], "groups": [], "would_archive": 0, "would_create_summaries": 0}
    assert contexts == [nothing]
    assert (kept(night)["is_on"], kept(night)["note"], result.facts["note"]) == (False, OFF, OFF)
    assert result.rows == 0


def test_the_hook_hears_low_scores_and_superseded_memories_only(night: Night) -> None:
    """The RFC's own example of a test."""
    switch_on(night)
    usage_file.write(night.paths.usage, {"105": (5, 5, 2, NOW_US)}, as_of_us=NOW_US)
    with heard() as contexts:
        result = plan_compaction(night)
    (context,) = contexts
    assert context["candidates"]
    for candidate in context["candidates"]:
        assert candidate["ltp_score"] < 0.3
        assert candidate["is_superseded"] is True
        assert candidate["memory_id"] != "105"
    assert (context["would_archive"], context["would_create_summaries"]) == (3, 1)
    (group,) = context["groups"]
    assert group["memory_ids"] == ["101", "102", "103"]
    # What is kept and told holds no text of a memory, and equal nights keep equal bytes.
    before = night.work(PLAN).read_text()
    said = before + json.dumps([contexts, result.facts, result.notes])
    assert not [r.content for r in versions()[0] if r.content in said]
    assert "spare" not in said
    assert plan_compaction(night).reused
    assert night.work(PLAN).read_text() == before


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


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_it_counts_by_kind_and_action_and_the_table_holds_no_text(nights: Nights) -> None:
    facts = nights.run().facts
    assert facts["by_action"] == {"ADD": 1, "NOOP": 1, "SUPERSEDE": 1, "UPDATE": 1}
    kinds = (
        "contradiction NOOP",
        "exact_duplicate UPDATE",
        "fragments ADD",
        "superseded SUPERSEDE",
    )
    assert facts["by_kind_and_action"] == dict.fromkeys(kinds, 1)
    assert facts["would_supersede"] == 4
    written = str([p.to_json() for p in read_proposals(nights.paths.work / PROPOSALS).proposals])
    assert not any(word in written for word in ("harbour", "Tides", "Initech", "Deploy"))


def test_an_unchanged_night_does_nothing_one_switched_off_forgets(nights: Nights) -> None:
    nights.run()
    assert nights.run().reused
    result = nights.run(enabled=False)
    assert (result.rows, result.facts["note"]) == (0, "off: curation.enabled is false")
    found = read_proposals(nights.paths.work / PROPOSALS)
    assert (found.is_on, found.proposals) == (False, ())
    nights.edit("UPDATE memories SET content = 'Edited.' WHERE id = 1")
    assert nights.run(enabled=False).reused


def test_after_applying_the_next_night_leaves_tombstones_alone(nights: Nights) -> None:
    nights.run()
    found = read_proposed(nights.paths.work)
    store = open_writable(found.source, CorpusSettings())
    due = [p for p in found.proposals if p.action != "NOOP"]
    apply_proposals(store, due, Where(is_own=True, text_of=found.text_of))
    store.close()
    nights.run()
    again = read_proposed(nights.paths.work)
    assert [(p.kind, p.memory_ids) for p in again.proposals] == [("contradiction", ("7", "8"))]


ROWS = (
    {"content": "Nina keeps bees.", "category": "facts"},
    turn("User: I work at Initech as a nurse, since 2019.", 1),
    turn("Assistant: I work at Initech as well, since 2019.", 2),
    turn("User: ok", 3),
    turn("User: thanks!", 4, user="ana"),
    turn("no label: maybe", 5, session_id=None),
    turn("I have two brothers.", 6),
)


@pytest.fixture
def promoted(tmp_path: Path) -> PromotionNights:
    found = PromotionNights(tmp_path)
    found.write(*ROWS)
    return found


def test_it_judges_what_a_person_said_and_touches_no_source(promoted: PromotionNights) -> None:
    source = promoted.source.read_bytes(), promoted.source.stat().st_mtime_ns
    result = promoted.run()
    assert result.rows == 3
    assert result.facts == {
        "proposed": 1,
        "by_reason": {"nothing_said": 2, "proposed": 1},
        "not_said_by_a_person": 2,
        "durable_memories": 2,
    }
    first, second, third = promoted.table.rows
    told = (first["turn_id"], first["decision"], first["marks"])
    assert told == ("2", "propose", ["date", "fact"])
    assert first["g"] == pytest.approx(0.35 + 0.25 * 0.6)
    assert (second["turn_id"], second["reason"], second["g"]) == ("4", "nothing_said", 0.0)
    assert (third["turn_id"], third["user"]) == ("5", "ana")
    assert [n["memory_id"] for n in first["neighbours"]] == ["1", "6"]
    assert b"Initech" not in (promoted.paths.work / PROMOTIONS).read_bytes()
    assert "Initech" not in str(promoted.table)
    assert (promoted.source.read_bytes(), promoted.source.stat().st_mtime_ns) == source


def test_an_unchanged_night_does_nothing_equal_ones_the_same(promoted: PromotionNights) -> None:
    table = promoted.paths.work / PROMOTIONS
    promoted.run()
    before = table.read_bytes()
    assert promoted.run().reused
    table.unlink()
    assert not promoted.run().reused
    assert table.read_bytes() == before
    off = promoted.run(enabled=False)
    assert (off.rows, off.facts) == (0, {"note": "off: promotion.enabled is false"})
    assert (promoted.table.is_on, promoted.table.rows) == (False, ())


def test_another_threshold_vectors_or_text_judge_anew(promoted: PromotionNights) -> None:
    promoted.run()
    assert promoted.run(threshold=0.6).facts["proposed"] == 0
    assert not promoted.run(vectors=np.ones((7, 1), dtype=np.float32)).reused
    promoted.write(*ROWS[:-1], turn("User: I have two brothers.", 6))
    assert promoted.run().rows == 4
    promoted.write(ROWS[0], {**ROWS[1], "is_sensitive": True}, *ROWS[2:])
    promoted.run()
    assert "2" not in {row["turn_id"] for row in promoted.table.rows}, "it turned sensitive"
    promoted.write(ROWS[0])
    assert promoted.run().rows == 0, "a store without turns"
    promoted.write(turn("User: I work at Initech."))
    assert promoted.run().facts["proposed"] == 1, "or without memories"


def test_what_is_durable_already_is_not_proposed(promoted: PromotionNights) -> None:
    same = np.eye(7, dtype=np.float32)
    same[1] = same[0]
    promoted.run(vectors=same)
    row = promoted.table.rows[0]
    # Of two memories one is alike: H = .5.
    assert row["h"] == 0.5
    assert row["neighbours"][0]["cosine"] == 1.0
    assert row["decision"] == "leave"
