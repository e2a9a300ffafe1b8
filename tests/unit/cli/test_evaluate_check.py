from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result

from noctuary.cli.evaluate import evaluate

Run = Callable[..., Result]
RunJson = Callable[..., Any]
COMMANDS = {"check", "run", "compare", "pool", "holes", "kappa"}


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    """A set that loads and one with two faults."""
    for name, label in (("good", 1), ("broken", 9)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "corpus.jsonl").write_text('{"id": 1, "content": "The key."}\n')
        rows = [
            {"query_id": "q1", "text": "Key?", "stratum": "exact", "relevant_ids": [1]},
            {"query_id": "q2", "text": "Key?", "stratum": "vague", "relevant_ids": [label]},
            {"query_id": "q3", "text": "Boat?", "relevant_ids": []},
        ]
        (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (tmp_path / "broken" / "queries.jsonl").open("a") as handle:
        handle.write('{"query_id": "q4", "text": "Wh')
    (tmp_path / "good" / "qrels.jsonl").write_text("q1 0 1 2\n")
    return tmp_path / "good", tmp_path / "broken"


def test_the_commands_of_the_group_are_these() -> None:
    assert set(evaluate.commands) == COMMANDS


def test_the_group_shows_how_to_begin_one_command_a_line(run: Run) -> None:
    result = run("evaluate", "--help")
    assert result.exit_code == 0
    assert "\n  noctuary evaluate run SET --out ours.json " in result.output
    assert "\\b" not in result.output
    assert all(f"\n  noctuary evaluate {name} " in result.output for name in COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_teaches_with_an_example_and_takes_json(run: Run, command: str) -> None:
    result = run("evaluate", command, "--help")
    assert result.exit_code == 0
    assert f"\n  noctuary evaluate {command} " in result.output
    assert "--json" in result.output
    options = [p for p in evaluate.commands[command].params if isinstance(p, click.Option)]
    assert all(option.help for option in options)


def test_a_line_says_what_a_set_holds(run: Run, sets: tuple[Path, Path]) -> None:
    result = run("evaluate", "check", str(sets[0]))
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert said == "good ok 1 memories 2 queries in 2 strata 1 unanswerable 1 judgements"


def test_a_set_that_cannot_load_is_named_with_its_lines_and_others_are_checked(
    run: Run, sets: tuple[Path, Path]
) -> None:
    good, broken = sets
    result = run("evaluate", "check", str(broken), str(good))
    assert result.exit_code == 1
    assert f"broken  FAIL  {broken / 'queries.jsonl'} has 2 faults:" in result.stdout
    assert "line 2: query 'q2' names ids that the corpus lacks: ['9']" in result.stdout
    assert "line 4: half-written or not JSON" in result.stdout
    assert "good    ok " in result.stdout


def test_a_folder_that_is_no_set_is_a_sentence(run: Run, tmp_path: Path) -> None:
    result = run("evaluate", "check", str(tmp_path), str(tmp_path / "gone"))
    assert result.exit_code == 1
    assert "is not a labelled set: it lacks corpus.jsonl.gz" in result.stdout
    assert "gone is not a folder" in result.stdout


def test_check_as_json(run_json: RunJson, sets: tuple[Path, Path]) -> None:
    good, broken = run_json("evaluate", "check", *map(str, sets), code=1)["sets"]
    assert good == {
        "name": "good",
        "memories": 1,
        "queries": 2,
        "strata": {"exact": 1, "vague": 1},
        "unanswerable": 1,
        "judgements": 1,
    }
    assert broken["error"] == "QueryFileError"
    assert [(f["line"], f["kind"]) for f in broken["faults"]] == [
        (2, "unknown_label"),
        (4, "half_written_line"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("run",),
        ("run", "set", "-k", "0"),
        ("run", "set", "--limit", "0"),
        ("run", "set", "--metric", "recall"),
        ("run", "set", "--metric", "accuracy@5"),
        ("run", "set", "--retriever", "a:b", "--store", "house"),
        ("run", "set", "--retriever", "a:b", "--in-wing"),
        ("compare", "a.json", "b.json"),
        ("pool", "a.json"),
        ("holes", "a.json"),
        ("holes", "--judged", "q.jsonl"),
        ("kappa", "a.jsonl"),
        ("kappa", "a.jsonl", "b.jsonl", "--threshold", "high"),
    ],
)
def test_a_wrong_call_is_exit_code_2_and_a_sentence(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("evaluate", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output
