from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noctuary.cli.main import main
from tests.support.claude_memory import make_sqlite
from tests.support.secretive import PUBLIC, SENSITIVE, VAULT_COLUMNS, publish_source
from tests.support.store import Store

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, empty_store: Store) -> None:  # pyright: ignore[reportUnusedFunction]
    rows = (*PUBLIC, *SENSITIVE)
    publish_source(
        empty_store, make_sqlite(tmp_path / "memory.db", rows, extra_columns=VAULT_COLUMNS)
    )


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sensitive recall is switched on."""
    monkeypatch.setenv("NOCTUARY_SENSITIVE_RECALL", "1")


def test_off_is_a_sentence_and_exit_code_1(run: Run, run_json: Callable[..., Any]) -> None:
    result = run("sensitive", "alarm code")
    assert result.exit_code == 1
    assert "NOCTUARY_SENSITIVE_RECALL=true" in result.stderr
    assert run_json("sensitive", "alarm code", code=1)["error"] == "ConfigError"


@pytest.mark.usefixtures("allowed")
def test_it_shows_id_reason_and_text(run: Run) -> None:
    result = run("sensitive", "diary stairs")
    assert result.exit_code == 0
    head, text = result.stdout.splitlines()
    assert head.startswith("[13] ")
    assert head.endswith("flagged")
    assert text == "CANARYODD the diary lies under the stairs"
    assert "vault kv/CANARYPATH" in run("sensitive", "spare").stdout


@pytest.mark.usefixtures("allowed")
def test_json_is_the_whole_answer(run_json: Callable[..., Any]) -> None:
    told = run_json("sensitive", "diary")
    assert told["searched"] == len(SENSITIVE)
    assert [m["id"] for m in told["memories"]] == ["13"]
    assert told["memories"][0]["content"].startswith("CANARYODD")


@pytest.mark.usefixtures("allowed")
def test_nothing_found_is_said_without_an_error(run: Run) -> None:
    result = run("sensitive", "zebra")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"none of {len(SENSITIVE)} sensitive rows" in result.stderr


@pytest.mark.usefixtures("allowed")
def test_the_question_may_come_from_standard_input() -> None:
    result = CliRunner().invoke(main, ["sensitive", "-"], input="diary\n")
    assert "CANARYODD" in result.stdout
