from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from noctuary import __version__
from noctuary.cli.main import main

Run = Callable[..., Result]
COMMANDS = ("recall", "why", "serve", "status", "doctor", "snapshots", "rollback")
CONTEXT = click.Context(main)
ARGUMENTS = {"recall": ["key"], "why": ["key", "101"]}


def test_the_commands_are_these() -> None:
    assert set(main.list_commands(CONTEXT)) == {
        *COMMANDS,
        "expand",
        "context",
        "profile",
        "proposals",
        "graph",
        "evaluate",
        "mcp",
        "nightly",
        "ui",
        "hook",
        "hooks",
        "sensitive",
        "sql",
        "stores",
        "export",
        "import",
    }


def test_help_lists_every_command_and_shows_how_to_begin(run: Run) -> None:
    for flag in ("--help", "-h"):
        result = run(flag)
        assert result.exit_code == 0
        assert "noctuary nightly" in result.output
        named = re.findall(r"^ +(?:noctuary )?([a-z]+)", result.output, re.MULTILINE)
        assert set(main.list_commands(CONTEXT)) - {"hook"} <= set(named)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("recall", "relevant to QUERY, best first"),
        ("why", "does not return memory ID, or why it does"),
        ("why", "against its own snapshot"),
        ("serve", "from a warm process, for this user only"),
        ("status", "identity, age, source, encoder and counts"),
        ("doctor", "Exit code 1 if anything fails"),
        ("snapshots", "oldest first"),
        ("rollback", "Serve an older snapshot"),
    ],
)
def test_every_command_explains_itself_and_takes_store_and_json(
    run: Run, command: str, says: str
) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert says in " ".join(result.output.split())
    assert "--store STORE" in result.output
    assert "--json" in result.output


def test_a_command_loads_its_own_file_and_no_other() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from noctuary.cli.main import main; "
        "assert CliRunner().invoke(main, ['recall', '--help']).exit_code == 0; "
        "print(*(n for n in sys.modules if n.startswith('noctuary.cli.') or n == 'numpy'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {f"noctuary.cli.{name}" for name in ("main", "recall")}
    assert set(done.stdout.split()) == loaded


def test_every_option_has_a_help_text() -> None:
    for name in main.list_commands(CONTEXT):
        command = main.get_command(CONTEXT, name)
        assert command is not None
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "sort_by":
                assert getattr(parameter, "help", None), f"{command.name} {parameter.name}"


def test_the_version_is_the_package_s(run: Run) -> None:
    assert run("--version").output.strip() == f"noctuary, version {__version__}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("recal", "key"),
        ("recall",),
        ("recall", "key", "--wings", "home"),
        ("recall", "key", "-k", "many"),
        ("recall", "key", "-k", "-1"),
        ("recall", "key", "--sort-by", "date"),
        ("recall", "key", "--fusion", "sum"),
        ("recall", "key", "--deadline-ms", "soon"),
        ("why", "key"),
        ("why",),
        ("why", "key", "101", "--replay", "a"),
        ("why", "--replay", "a", "b"),
        ("why", "--replay", "--last", "0"),
        ("why", "--replay", "a", "--wing", "home"),
        ("status", "extra"),
        ("rollback", "a", "b"),
    ],
)
def test_a_wrong_call_is_exit_code_2_and_a_sentence(
    run: Run, home: Path, arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output
    assert "--help" in result.output


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("store", [[], ["--store", "nowhere"], ["--store", "/no/such/store"]])
def test_without_a_store_every_command_says_what_to_run(
    run: Run, home: Path, command: str, store: list[str]
) -> None:
    result = run(command, *ARGUMENTS.get(command, []), *store)
    if command == "snapshots" and store:
        assert "noctuary nightly" in result.output
        return
    assert result.exit_code == 1
    assert "noctuary nightly" in result.output


@pytest.mark.parametrize("command", ["status", "doctor", "snapshots", "rollback"])
def test_a_home_that_leads_nowhere_is_a_sentence(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("NOCTUARY_HOME", "~nobody-of-that-name/x")
    result = run(command)
    assert result.exit_code == 1
    assert "in full" in result.output


def test_the_installed_command_runs(home: Path) -> None:
    script = Path(sys.executable).with_name("noctuary")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(__version__)
