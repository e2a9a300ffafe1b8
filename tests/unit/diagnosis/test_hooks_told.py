"""What doctor says of the hooks: not installed, broken, failing, twice, and well."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from noctuary.agents.install import find_place, install_hooks
from noctuary.agents.state import COUNTERS, HOOKS, TOLD_AFTER_TIMEOUTS, note_call
from noctuary.cli.store import Finding, are_hooked, look_at_hooks

RUNS = (sys.executable, "-m", "noctuary")


@pytest.fixture
def claude(home: Path, tmp_path: Path) -> Path:
    """Claude is used on this machine; its settings."""
    (tmp_path / "claude").mkdir()
    return tmp_path / "claude" / "settings.json"


def install(home: Path, folder: Path, program: tuple[str, ...] = RUNS) -> None:
    install_hooks(find_place("claude", "user", folder), program, home=home)


def look(home: Path, folder: Path) -> Finding:
    (finding,) = look_at_hooks(home, folder)
    return finding


def count(home: Path, code: str | None, times: int = 1, event: str = "UserPromptSubmit") -> None:
    (home / HOOKS).mkdir(exist_ok=True)
    for _ in range(times):
        note_call(
            home / COUNTERS, "claude", event, code=code, took_ms=120, now_s=time.time() - 7200
        )


def test_without_an_agent_there_is_nothing_to_say(home: Path, tmp_path: Path) -> None:
    assert look(home, tmp_path) == Finding(
        "hooks", "ok", "no agent keeps settings here: nothing to install them into"
    )
    assert not are_hooked(home, tmp_path)


def test_an_agent_without_hooks_is_told(home: Path, claude: Path, tmp_path: Path) -> None:
    found = look(home, tmp_path)
    assert (found.name, found.level) == ("hooks", "warn")
    assert "not installed" in found.message
    assert found.remedy == "`noctuary hooks install --agent claude`"


def test_installed_and_well(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    assert are_hooked(home, tmp_path)
    assert look(home, tmp_path).level == "ok"
    assert "never called yet" in look(home, tmp_path).message
    count(home, "timeout")
    count(home, None, 3)
    found = look(home, tmp_path)
    assert found.level == "ok"
    assert "4 calls, 1 failed at times, none now, a prompt takes 120 ms" in found.message


@pytest.mark.parametrize(
    ("code", "level", "remedy"),
    [
        ("timeout", "warn", "noctuary serve"),
        ("no_snapshot", "fail", "noctuary nightly"),
        ("a new one", "fail", "hooks status"),
    ],
)
def test_failing_hooks_are_told_with_what_to_do(
    home: Path, claude: Path, tmp_path: Path, code: str, level: str, remedy: str
) -> None:
    install(home, tmp_path)
    count(home, None)
    count(home, code, TOLD_AFTER_TIMEOUTS)
    found = look(home, tmp_path)
    assert found.level == level
    told = "UserPromptSubmit of claude fails since 2.0 h ago, 3 time(s) one after the other: "
    assert told + code in found.message
    assert remedy in found.remedy
    count(home, None)
    assert look(home, tmp_path).level == "ok"


def test_the_worse_of_two_failures_comes_first(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    count(home, "timeout", 9)
    count(home, "journal", 1, "PreCompact")
    found = look(home, tmp_path)
    assert found.level == "fail"
    assert "PreCompact of claude fails" in found.message
    assert "1 more event(s) fail" in found.message


def test_a_program_that_is_gone(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path, (str(tmp_path / "noctuary"),))
    found = look(home, tmp_path)
    assert found.level == "fail"
    assert "cannot be started" in found.message
    assert "hooks install --agent claude --user" in found.remedy
    assert not are_hooked(home, tmp_path)


def test_settings_that_cannot_be_read(home: Path, claude: Path, tmp_path: Path) -> None:
    claude.write_text("{")
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "not valid JSON" in found.message
    assert found.remedy


def test_switched_off_by_the_agents_setting(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    value = {**json.loads(claude.read_bytes()), "disableAllHooks": True}
    claude.write_text(json.dumps(value))
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "disableAllHooks" in found.message
    assert found.remedy == "remove that line"


def test_outdated_entries(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    claude.write_text(claude.read_text().replace('"timeout": 10', '"timeout": 60'))
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "renews them" in found.remedy
    assert are_hooked(home, tmp_path)


def test_the_plugin_counts_and_both_at_once_are_told(
    home: Path, claude: Path, tmp_path: Path
) -> None:
    claude.write_text('{"enabledPlugins": {"noctuary@local": true}}')
    assert look(home, tmp_path).level == "ok"
    assert are_hooked(home, tmp_path)
    install(home, tmp_path)
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "installed twice" in found.message
    assert "uninstall" in found.remedy


def test_damaged_counters_are_told(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    (home / COUNTERS).write_text("{")
    first, second = look_at_hooks(home, tmp_path)
    assert (first.name, first.level, second.level) == ("hooks", "warn", "ok")
    assert "counters.json" in first.remedy
