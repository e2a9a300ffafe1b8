"""Nights around an archive: planned, applied, packed, taken back, forgotten."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from noctuary import expand
from noctuary_assets.proposals import PLAN
from tests.e2e.byte_scan import find_texts
from tests.e2e.driver import DONE, Ran, run, run_night
from tests.e2e.stores import Bench, add_memory, answers, editing

CODES = ("4471", "9032", "7715", "1260")
QUERIES = ["garage paint", "boiler error", "9032"]


def compact(bench: Bench, *words: str) -> Any:
    """Run the command as its user does; what it printed, parsed."""
    command = [sys.executable, "-m", "noctuary.cli.main", "proposals", "compact", *words, "--json"]
    ran = run([*command, "--store", str(bench.store)], bench.store.parent)
    assert ran.code == DONE, ran.says
    return json.loads(ran.out)


def night(bench: Bench) -> Ran:
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says
    return ran


def found(bench: Bench) -> list[str]:
    return [m.content for m in bench.ask("garage paint").memories if "garage paint" in m.content]


@pytest.fixture
def chained(small: Bench) -> Bench:
    """A bench with four versions of one fact, each of which names the one that it replaces."""
    previous = ""
    for month, code in zip((2, 4, 6, 8), CODES, strict=True):
        replaced = f" Supersedes #{previous}." if previous else ""
        created = f"2026-{month:02d}-01T08:00:00+00:00"
        text = f"The garage paint is {code} since this season.{replaced}"
        previous = str(add_memory(small.source, text, created_at=created))
    (small.store.parent / "noctuary.toml").write_text(
        "[profiles.default]\nadaptive_compaction = true\ncompaction_age_days = 0\n"
    )
    return small


@pytest.mark.slow
def test_an_archive_over_three_nights(chained: Bench) -> None:
    bench = chained
    night(bench)
    kept = json.loads((bench.paths.work / PLAN).read_text())
    plan = compact(bench)
    assert kept["plan_id"] == plan["plan_id"], "the night and the command make one plan"
    assert (plan["would_archive"], plan["would_create_summaries"]) == (3, 1)
    assert len(found(bench)) == 4
    before = answers(bench, QUERIES)

    compact(bench, "--apply", plan["plan_id"])
    (left,) = found(bench)
    assert CODES[-1] in left

    night(bench)
    summary, last = sorted(found(bench), key=lambda text: CODES[-1] in text)
    assert CODES[-1] in last
    (told,) = [m for m in bench.ask("garage paint").memories if m.content == summary]
    assert told.kind == "summary"
    assert len(told.sources) == 3

    compact(bench, "--undo", plan["plan_id"])
    assert answers(bench, QUERIES) == before, "also with the summary in the snapshot"

    compact(bench, "--apply", plan["plan_id"])
    with editing(bench.source) as db:
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE content LIKE '%9032%'")
    night(bench)
    texts = ["The garage paint is 9032"]
    assert find_texts(bench.store, texts, skip=[bench.paths.encoders]) == []
    assert not any("9032" in text for text in found(bench))
    (listed,) = compact(bench, "--list")["plans"]
    assert listed["in_force"]


@pytest.mark.slow
def test_a_compact_recall_answers_with_the_turns_that_a_nights_summaries_quote(
    small: Bench,
) -> None:
    summaries = [
        m.content
        for query in ("backup", "boiler", "flight", "invoice", "deploy")
        for m in small.ask(query, profile={"consolidation_enabled": True}).memories
        if m.kind == "summary"
    ]
    assert summaries
    for text in dict.fromkeys(summaries):
        answer = small.ask(text, profile="compact")
        assert {m.kind for m in answer.memories} == {"memory"}
        best = answer.memories[0]
        opened = expand(best.annotations["summarized_by"], store=str(small.store))
        assert opened.text == text
        assert best.id in [turn.id for turn in opened.sources]
        assert best.content in [turn.content for turn in opened.sources]
