"""The table of events in each agent's form, and how an entry of ours is told from others."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents.client import AGENTS
from noctuary.agents.install import (
    EVENTS,
    HookInstallError,
    find_program,
    hook_groups,
    read_command,
    require_utf8,
)
from tests.support.agent_settings import hook_faults

PROGRAM = ("/opt/my tools/noctuary",)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("store", [None, "/data/my store"])
def test_every_entry_has_the_published_form(agent: str, store: str | None) -> None:
    groups = hook_groups(agent, PROGRAM, store)
    assert hook_faults(agent, {event: [group] for event, group in groups.items()}) == []
    assert set(groups) == {
        "UserPromptSubmit", "SessionStart", "PreCompact", "PostCompact", "Stop", "SessionEnd",
    }  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS)
def test_the_words_come_out_of_the_entry_as_they_went_in(agent: str) -> None:
    for group in hook_groups(agent, PROGRAM, "/my store").values():
        command = read_command(group["hooks"][0])
        assert command is not None
        assert command.program == PROGRAM
        assert command.arguments == ("--agent", agent, "--store", "/my store")
        assert command.store == "/my store"
        assert not command.is_there


def test_claude_gets_no_shell_and_codex_a_quoted_line() -> None:
    (claude,) = hook_groups("claude", PROGRAM)["Stop"]["hooks"]
    assert claude["command"] == PROGRAM[0]
    assert claude["args"] == ["hook", "--agent", "claude"]
    assert claude["async"] is True
    (codex,) = hook_groups("codex", PROGRAM)["Stop"]["hooks"]
    assert shlex.split(codex["command"]) == [*PROGRAM, "hook", "--agent", "codex"]
    assert "async" not in codex
    assert "args" not in codex


def test_a_prompt_waits_less_than_the_agents_own_ceiling() -> None:
    seconds = {event.name: event.timeout_s for event in EVENTS}
    assert seconds["UserPromptSubmit"] <= 30  # Claude ends it then, and says nothing
    assert seconds["SessionEnd"] <= 1.5  # shared by all such hooks of Claude


def test_a_restart_after_compaction_is_among_the_starts() -> None:
    assert "compact" in hook_groups("claude", PROGRAM)["SessionStart"]["matcher"].split("|")


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "command", "command": "noctuary hook --agent claude"},
        {"type": "command", "command": "'/opt/my tools/noctuary' hook"},
        {"type": "command", "command": "C:/tools/noctuary.exe", "args": ["hook"]},
        {"type": "command", "command": "/usr/bin/python3.12 -m noctuary.cli.entry hook --agent x"},
        {"type": "command", "command": "python", "args": ["-m", "noctuary", "hook"], "timeout": 9},
    ],
)
def test_entries_of_other_versions_are_ours(entry: dict[str, Any]) -> None:
    assert read_command(entry) is not None


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "noctuary hook",
        {},
        {"type": "command"},
        {"type": "command", "command": ""},
        {"type": "command", "command": "noctuary"},
        {"type": "command", "command": "noctuary recall hook"},
        {"type": "command", "command": "noctuary", "args": ["recall", "hook"]},
        {"type": "command", "command": "noctuary", "args": ["hook", 1]},
        {"type": "command", "command": "noctuary hook '"},
        {"type": "command", "command": "notnoctuary hook"},
        {"type": "command", "command": "my-noctuary hook"},
        {"type": "command", "command": "nice noctuary hook"},
        {"type": "command", "command": "python -m other hook"},
        {"type": "command", "command": "ruby -m noctuary hook"},
        {"type": "command", "command": 5, "args": ["hook"]},
        {"type": "prompt", "command": "noctuary hook"},
    ],
)
def test_what_its_owner_wrote_is_not_ours(entry: object) -> None:
    assert read_command(entry) is None


def test_the_program_is_found_by_its_full_path() -> None:
    program = find_program()
    assert program[0].startswith("/")
    assert read_command({"type": "command", "command": shlex.join([*program, "hook"])})


def test_without_an_executable_nothing_of_the_project_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook runs in whatever folder the agent works in, with whatever modules lie there."""
    python = sys.executable
    (tmp_path / "python").symlink_to(python)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = find_program()
    assert read_command({"type": "command", "command": shlex.join([*program, "hook"])})
    (tmp_path / "project" / "noctuary").mkdir(parents=True)
    for name in ("noctuary/__init__.py", "json.py"):
        (tmp_path / "project" / name).write_text("print('taken over')")
    words = [python, *program[1:], "hook"]
    ran = subprocess.run(words, cwd=tmp_path / "project", input=b"{}", capture_output=True,
                         check=True)  # fmt: skip
    assert b"taken over" not in ran.stdout + ran.stderr


def test_an_unknown_agent_and_an_empty_program_are_refused() -> None:
    with pytest.raises(ValueError, match="cursor"):
        hook_groups("cursor", PROGRAM)
    with pytest.raises(ValueError, match="words"):
        hook_groups("claude", ())


def test_a_path_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(HookInstallError, match="not UTF-8"):
        require_utf8("/opt/\udcff/noctuary")
