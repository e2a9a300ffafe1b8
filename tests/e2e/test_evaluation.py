"""The night measures itself: a real loss keeps yesterday's snapshot, a proven gain is adopted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from noctuary.recall.api import recall
from noctuary.snapshot.publish import read_verdict
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, REFUSED, Ran, run_night
from tests.e2e.stores import Bench, give_encoder

CHECK = "recall_has_not_dropped_significantly"
N_TOPICS = 56
"""Two halves of 25 and more: below that nothing is adopted."""

THINGS = ("kettle", "ladder", "violin", "harbour", "lantern", "orchard", "saddle", "tunnel")
NAMES = tuple(
    f"{first}{last}"
    for last in ("mar", "bek", "lund", "dorf", "witz", "sen", "rup")
    for first in ("Ada", "Bru", "Cel", "Dor", "Fen", "Gil", "Hen", "Iri")
)
ACTS = ("repaired", "painted", "sold", "borrowed", "cleaned", "measured", "photographed")
NO_GRAPH = {"NOCTUARY_RECALL_GRAPH_WEIGHT": "0", "NOCTUARY_EVALUATION_EXACT_QUERIES": "0"}
"""Without exact phrases: here the graph costs literal lookups, and they would veto it."""


def topic(number: int) -> tuple[str, str]:
    """Return a memory and a question that it answers."""
    thing, act = THINGS[number % len(THINGS)], ACTS[number // len(THINGS)]
    return (
        f"last week the {thing} was {act} by the neighbours for the summer fair",
        f"was the {thing} {act}",
    )


def household(number: int) -> tuple[str, str, str]:
    """Return two memories and a question that only the second answers, by way of the first."""
    first, last = NAMES[number], NAMES[-number - 1]
    project = f"{THINGS[number % len(THINGS)]} {ACTS[number // len(THINGS)]}".title()
    return (
        f"{first} {last}: has a house at the edge of the forest.",
        f"Project {project}: is led by {first} {last}.",
        f"where does the head of Project {project} live",
    )


def write_bench(
    folder: Path, rows: Iterable[dict[str, Any]], questions: Iterable[str] = ()
) -> Bench:
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder, rows)
    lines = [
        json.dumps({"query_id": f"q{n}", "text": text, "relevant_ids": [n + 1]})
        for n, text in enumerate(questions)
    ]
    if lines:
        (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Bench(folder, folder.parent / "store")


def write_rows(folder: Path, rows: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "corpus.jsonl").write_text(text, encoding="utf-8")


def row(memory_id: int, content: str) -> dict[str, Any]:
    return {
        "id": memory_id,
        "content": content,
        "category": "fact",
        "created_at": "2026-01-05T10:00:00Z",
    }


def town() -> list[dict[str, Any]]:
    return [row(n + 1, topic(n)[0]) for n in range(N_TOPICS)]


def rivals() -> list[dict[str, Any]]:
    """Twelve memories per question that say its words and nothing else: they crowd it out."""
    return [
        row(1000 + 20 * n + copy, f"{topic(n)[1]}, and again {topic(n)[1]}, copy {copy}")
        for n in range(N_TOPICS)
        for copy in range(12)
    ]


def facts(ran: Ran, stage: str) -> dict[str, Any]:
    return ran.stage(stage)["facts"]


@pytest.mark.slow
def test_a_real_loss_of_recall_keeps_yesterdays_snapshot(tmp_path: Path) -> None:
    bench = write_bench(tmp_path / "town", town(), map(itemgetter(1), map(topic, range(N_TOPICS))))
    first = run_night(bench.source, bench.store)
    assert first.code == DONE, first.says
    assert facts(first, "recall_comparison")["note"] == "nothing serves yet"
    yesterday = bench.serving

    write_rows(bench.source, [*town(), *rivals()])
    second = run_night(bench.source, bench.store)

    assert second.code == REFUSED, second.says
    assert CHECK in second.says
    assert bench.serving == yesterday
    stamp = json.loads((bench.paths.work / "stamps" / "snapshot_candidate.json").read_text())
    verdict = read_verdict(bench.paths, stamp["facts"]["digest"])
    assert verdict is not None
    (check,) = (c for c in verdict.checks if not c.passed)
    assert check.name == CHECK
    assert "labelled recall@10" in check.found
    assert list((bench.store / "reports").glob("*.html")), "a refused night has its page too"

    # The owner says that the loss is meant: one night publishes, the next one has nothing to do.
    meant = {"NOCTUARY_EVALUATION_ON_DROP": "report"}
    third = run_night(bench.source, bench.store, extra=meant)
    assert third.code == DONE, third.says
    assert bench.serving != yesterday
    fourth = run_night(bench.source, bench.store)
    assert fourth.code == DONE, fourth.says
    assert fourth.report["status"] == "unchanged"
    assert fourth.stage("recall_evaluation")["reused"]


@pytest.mark.slow
def test_without_usable_labels_the_exact_group_is_asked_alone(
    small_night: FirstNight, tmp_path: Path
) -> None:
    bench = write_bench(tmp_path / "town", town())
    give_encoder(bench.store, small_night.bench)
    broken = {"query_id": "q1", "text": ["a value of the owner"], "relevant_ids": [1]}
    (bench.source / "queries.jsonl").write_text(json.dumps(broken) + "\n", encoding="utf-8")
    ran = run_night(bench.source, bench.store, extra={"NOCTUARY_EVALUATION_EXACT_QUERIES": "60"})
    assert ran.code == DONE, ran.says
    note = facts(ran, "recall_evaluation")["note"]
    assert "queries.jsonl is not used: 1 faults, the first on line 1" in note
    assert "noctuary evaluate check" in note
    assert "a value of the owner" not in note, "notes go into Dagster's event log"
    queries = facts(ran, "recall_evaluation")["queries"]
    assert queries["exact"] >= 40
    assert "labelled" not in queries
    assert facts(ran, "fusion_decision")["adopted"] is None
    assert not (bench.snapshot / "ranking.json").exists()
    (page,) = (bench.store / "reports").glob("*.html")
    text = page.read_text(encoding="utf-8")
    assert "favour lexical" in text
    assert "neighbours" not in text, "a page holds ids, no memory text"


@pytest.mark.slow
def test_what_is_proven_better_ranks_the_snapshot(tmp_path: Path) -> None:
    """Configured without the graph, where only the graph leads from the question to its answer."""
    homes = [household(n) for n in range(N_TOPICS)]
    rows = [row(n + 1, home) for n, (home, _, _) in enumerate(homes)]
    rows += [row(500 + n, project) for n, (_, project, _) in enumerate(homes)]
    bench = write_bench(tmp_path / "desk", rows, (question for _, _, question in homes))
    ran = run_night(bench.source, bench.store, extra=NO_GRAPH)
    assert ran.code == DONE, ran.says
    adopted = facts(ran, "fusion_decision")["adopted"]
    assert adopted in {"graph_0.5", "graph_1", "graph_2"}, facts(ran, "fusion_decision")
    ranking = json.loads((bench.snapshot / "ranking.json").read_text())
    assert ranking["challenger"] == adopted
    served = recall(homes[3][2], 5, store=bench.store, dry_run=True)
    assert served.profile is not None
    assert {name: served.profile[name] for name in ranking["adopted"]} == ranking["adopted"]
    assert 4 in [memory.id for memory in served.memories]

    again = run_night(bench.source, bench.store, extra=NO_GRAPH)
    assert again.report["status"] == "unchanged", again.says
    assert again.stage("serving_pack")["reused"]

    off = {
        **NO_GRAPH,
        "NOCTUARY_EVALUATION_ADOPT": "false",
        "NOCTUARY_EVALUATION_ON_DROP": "report",
    }
    dropped = run_night(bench.source, bench.store, extra=off)
    assert dropped.code == DONE, dropped.says
    assert dropped.stage("serving_pack")["reused"], "another decision builds nothing again"
    assert not (bench.snapshot / "ranking.json").exists()
    # These nights were configured without the graph, which wins over what one of them adopted.
    assert facts(dropped, "recall_comparison")["dropped"] == 0
