from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.store import Store

Run = Callable[..., Result]


@pytest.fixture
def agents_md(tmp_path: Path) -> str:
    path = tmp_path / "AGENTS.md"
    path.write_text("- Feed the cat.\n\nYou must lock the door.\n\nThe boiler is in the cellar.\n")
    return str(path)


@pytest.fixture
def session(tmp_path: Path) -> str:
    path = tmp_path / "session.jsonl"
    lines = [{"role": "user" if n % 2 == 0 else "assistant", "text": f"turn {n}"} for n in range(6)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def test_the_text_is_printed_as_it_was_counted(
    run: Run, run_json: Callable[..., Any], dense_store: Store, agents_md: str, session: str
) -> None:
    arguments = (
        "context", "the spare key", "--budget", "2000", "--document", agents_md,
        "--session", session, "--user", "ana", "--dry-run",
    )  # fmt: skip
    plain = run_json(*arguments)
    assert run(*arguments).stdout == plain["text"]
    assert plain["tokens"] <= plain["budget_tokens"] == 2_000
    assert [part["kind"] for part in plain["parts"]][:5] == ["I1", "tail", "tail", "tail", "tail"]
    assert plain["parts"][-1]["kind"] == "variant"
    assert plain["degraded"] == []


def test_parts_are_listed_with_what_they_cost_and_why(
    run: Run, dense_store: Store, agents_md: str
) -> None:
    result = run(
        "context", "spare key", "--budget", "900", "--document", agents_md, "--parts", "--dry-run"
    )
    assert result.exit_code == 0
    assert "rule=hard" in result.stdout
    assert "rule=two_pass similarity=" in result.stdout
    assert "of 900 tokens" in result.stdout.splitlines()[-1]
    assert "tokenizer:word-axes" in result.stdout.splitlines()[-1]
    assert "! user_required" in result.stderr


def test_a_budget_that_is_too_small_is_exit_code_3_and_prints_all_the_same(
    run: Run, dense_store: Store, agents_md: str
) -> None:
    result = run("context", "x", "--budget", "5", "--document", agents_md)
    assert result.exit_code == 3
    assert "Feed the cat." in result.stdout
    assert "! hard_over_budget: " in result.stderr


def test_without_a_store_there_is_an_answer_where_there_is_a_document(
    run: Run, home: Path, agents_md: str
) -> None:
    result = run("context", "boiler", "--budget", "500", "--document", agents_md)
    assert result.exit_code == 0
    assert "cellar" in result.stdout
    assert "! no_snapshot" in result.stderr
    assert run("context", "boiler", "--budget", "500").exit_code == 1


def test_files_and_arguments_that_are_wrong_are_said_in_a_sentence(
    run: Run, home: Path, tmp_path: Path
) -> None:
    missing = run("context", "x", "--budget", "9", "--document", str(tmp_path / "none.md"))
    assert missing.exit_code == 1
    assert "there is no document at" in missing.stderr
    (tmp_path / "bad.jsonl").write_text("{}\n")
    bad = run("context", "x", "--budget", "9", "--session", str(tmp_path / "bad.jsonl"))
    assert bad.exit_code == 1
    assert "line 1: role is missing" in bad.stderr
    unknown = run("context", "x", "--budget", "9", "--profile", "nope")
    assert unknown.exit_code == 2
    assert "profile must be one of default, reference" in unknown.stderr
    assert run("context", "x").exit_code == 2
    assert run("context", "x", "--budget", "9", "--as-of", "soon").exit_code == 2
