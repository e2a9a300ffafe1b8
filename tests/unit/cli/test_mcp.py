from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.store import Store

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_help_says_how_an_agent_starts_it_and_what_it_shows(run: Run) -> None:
    result = run("mcp", "--help")
    assert result.exit_code == 0
    for said in ('"args": ["mcp"', "--user", "--wing", "--timeout-s", "--store", "Exit code 0"):
        assert said in result.output


@pytest.mark.parametrize(
    "arguments", [("--timeout-s", "0"), ("--timeout-s", "soon"), ("--k", "3"), ("extra",)]
)
def test_a_wrong_call_is_exit_code_2(run: Run, home: Path, arguments: tuple[str, ...]) -> None:
    assert run("mcp", *arguments).exit_code == 2


def test_json_prints_what_it_would_answer_for(run_json: RunJson, plain_store: Store) -> None:
    found = run_json("mcp", "--user", "ana", "--wing", "home", "--store", str(plain_store.root))
    assert (found["user"], found["wing"]) == ("ana", "home")
    assert found["counts"]["memories"] == 9, "of fourteen: of the wing home"
    assert found["store"] == str(plain_store.root)


def test_json_without_a_store_says_what_to_run(run_json: RunJson, home: Path) -> None:
    found = run_json("mcp")
    assert "noctuary nightly" in found["warnings"][0]["message"]


def test_without_the_extra_it_says_what_to_install(
    run: Run, run_json: RunJson, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("mcp")
    assert result.exit_code == 1
    assert "pip install 'noctuary[mcp]'" in result.stderr
    assert result.stdout == ""
    assert run_json("mcp", code=1)["error"] == "ExtraMissingError"


def test_other_commands_do_not_load_the_sdk(home: Path) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from noctuary.cli.main import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "assert CliRunner().invoke(main, ['mcp', '--help']).exit_code == 0; "
        "sys.exit(any(n.split('.')[0] in {'mcp', 'pydantic', 'anyio'} for n in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
