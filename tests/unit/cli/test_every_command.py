"""Every command where the build libraries are missing, and where nobody reads what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from noctuary.cli.main import main
from tests.support.store import Store

EXTRA = (
    "dagster", "dagster_webserver", "duckdb", "lance", "lancedb", "mcp", "polars", "pyarrow",
    "pydantic",
)  # fmt: skip
SET = ["missing-set"]
ARGUMENTS: dict[str, list[str]] = {
    "context": ["spare key", "--budget", "400"],
    "doctor": [],
    "evaluate check": SET,
    "evaluate compare": ["a.json", "b.json", "--queries", "missing-set"],
    "evaluate holes": ["a.json", "--judged", "b.jsonl"],
    "evaluate kappa": ["a.jsonl", "b.jsonl"],
    "evaluate pool": ["a.json", "--out", "b.jsonl"],
    "evaluate run": SET,
    "expand": ["no-summary"],
    "export": ["export"],
    "graph merges": [],
    "graph top": [],
    "graph path": ["Atlas", "Ana"],
    "graph show": ["Atlas"],
    "hook": ["--agent", "claude"],
    "hooks install": ["--agent", "claude", "--dry-run"],
    "hooks plugin": ["plugin"],
    "hooks status": [],
    "hooks uninstall": ["--agent", "claude", "--dry-run"],
    "import": ["missing-export", "--store", "copy"],
    "mcp": ["--json"],
    "nightly": ["env:NO_SUCH_VARIABLE"],
    "profile list": [],
    "profile show": [],
    "proposals compact": [],
    "proposals curate": [],
    "proposals promotions": [],
    "recall": ["spare key", "--explain"],
    "rollback": [],
    "sensitive": ["alarm"],
    "serve": ["--idle-minutes", "0.001"],
    "snapshots": [],
    "sql": ["select * from memories"],
    "status": [],
    "stores": [],
    "ui": ["env:NO_SUCH_VARIABLE"],
    "why": ["spare key", "101"],
}
NEED_BUILD = {
    "export", "nightly", "proposals curate", "proposals promotions", "sql", "ui",
}  # fmt: skip
CANNOT_BEGIN = {"nightly", "ui"}
"""Those that write a store, or serve one that is written: wrong to call without the extra."""

# One process that has the command line forks for every command: a fresh one each takes a minute.
DRIVER = """
import json, os, sys, tempfile
blocked, is_cut, calls = json.loads(sys.argv[1])
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import noctuary.cli.recall, noctuary.recall.engine, noctuary.cli.store  # once, not per fork
from noctuary.cli.entry import main
found = {}
for name, words in calls.items():
    said = tempfile.TemporaryFile()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.close(reader)
        os.dup2(writer if is_cut else os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(said.fileno(), 2)
        os.close(writer)
        sys.argv = ["noctuary", *words]
        sys.exit(main())
    os.close(reader)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    said.seek(0)
    found[name] = [os.waitstatus_to_exitcode(status), said.read().decode()]
print(json.dumps(found))
"""


def _leaves(command: click.Command, name: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        for part in command.list_commands(context := click.Context(command)):
            below = command.get_command(context, part)
            assert below is not None
            yield from _leaves(below, f"{name} {part}".strip())
    else:
        yield name


def _run_all(directory: Path, *, blocked: tuple[str, ...], cut: bool) -> Any:
    calls = {name: [*name.split(), *ARGUMENTS[name]] for name in _leaves(main)}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps([blocked, cut, calls])],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A directory that holds none of the files that the arguments name."""
    directory = tmp_path / "nowhere"
    directory.mkdir()
    return directory


def test_the_walk_finds_every_command() -> None:
    assert set(_leaves(main)) == set(ARGUMENTS)


def test_without_the_build_libraries_a_command_answers_or_names_the_extra(
    plain_store: Store, nowhere: Path
) -> None:
    found = _run_all(nowhere, blocked=EXTRA, cut=False)
    assert {name: said for name, (_, said) in found.items() if "Traceback" in said} == {}
    told = {
        name for name, (_, said) in found.items() if "pip install 'noctuary[pipelines]'" in said
    }
    assert told >= NEED_BUILD
    assert {found[name][0] for name in told - CANNOT_BEGIN} == {1}
    for name in CANNOT_BEGIN:
        code, said = found[name]
        assert (code, said.count("\n")) == (2, 1), said
        assert "this needs dagster" in said
    assert found["recall"][0] == found["status"][0] == found["doctor"][0] == 0


def test_a_reader_that_has_enough_is_no_fault(plain_store: Store, nowhere: Path) -> None:
    """`noctuary ... | head`: nothing about a broken pipe."""
    found = _run_all(nowhere, blocked=(), cut=True)
    loud = ("Traceback", "ipe", "Errno 32")
    assert {name: s for name, (_, s) in found.items() if any(word in s for word in loud)} == {}
