"""Where hooks are installed and whether what stands there can run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from noctuary.agents.install import (
    ABSENT,
    BROKEN,
    DISABLED,
    INSTALLED,
    OUTDATED,
    UNREADABLE,
    SettingsPlace,
    enabled_plugin,
    find_place,
    find_program,
    install_hooks,
    is_used,
    look_at_place,
    look_at_places,
    receipts_path,
    uninstall_hooks,
)

RUNS = (sys.executable, "-m", "noctuary")


@pytest.fixture
def place(tmp_path: Path) -> SettingsPlace:
    return SettingsPlace("claude", "user", tmp_path / "settings.json")


def test_nothing_there_is_absent(place: SettingsPlace) -> None:
    assert look_at_place(place).state == ABSENT
    place.path.write_text('{"hooks": {"Stop": [{"hooks": []}]}}')
    assert look_at_place(place).state == ABSENT


def test_installed_and_taken_out(place: SettingsPlace, tmp_path: Path) -> None:
    install_hooks(place, RUNS, home=tmp_path, store="/s")
    found = look_at_place(place)
    assert (found.state, found.store, found.message) == (INSTALLED, "/s", "")
    assert len(found.events) == 6
    uninstall_hooks(place, home=tmp_path)
    assert look_at_place(place).state == ABSENT


def test_a_program_that_is_gone_is_broken(place: SettingsPlace, tmp_path: Path) -> None:
    install_hooks(place, (str(tmp_path / "noctuary"),), home=tmp_path)
    found = look_at_place(place)
    assert found.state == BROKEN
    assert "hooks install --agent claude --user" in found.message
    (tmp_path / "noctuary").write_text("#!/bin/sh\n")
    assert look_at_place(place).state == BROKEN  # not executable
    (tmp_path / "noctuary").chmod(0o755)
    assert look_at_place(place).state == INSTALLED


@pytest.mark.parametrize(("old", "new"), [('"timeout": 10', '"timeout": 7'), ("startup|", "")])
def test_other_entries_are_outdated(
    place: SettingsPlace, tmp_path: Path, old: str, new: str
) -> None:
    install_hooks(place, RUNS, home=tmp_path)
    place.path.write_text(place.path.read_text().replace(old, new, 1))
    assert look_at_place(place).state == OUTDATED


def test_an_event_without_an_entry_is_outdated(place: SettingsPlace, tmp_path: Path) -> None:
    install_hooks(place, RUNS, home=tmp_path)
    value = json.loads(place.path.read_bytes())
    del value["hooks"]["PreCompact"]
    place.path.write_text(json.dumps(value))
    assert look_at_place(place).state == OUTDATED


def test_disabled_and_unreadable(place: SettingsPlace, tmp_path: Path) -> None:
    install_hooks(place, RUNS, home=tmp_path)
    value = json.loads(place.path.read_bytes())
    place.path.write_text(json.dumps({**value, "disableAllHooks": True}))
    assert look_at_place(place).state == DISABLED
    place.path.write_text("{")
    found = look_at_place(place)
    assert found.state == UNREADABLE
    assert "not valid JSON" in found.message


def test_every_place_is_looked_at_and_other_projects_by_their_receipts(
    home: Path, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    install_hooks(find_place("codex", "project", there), RUNS, home=home)
    states = look_at_places(home, here)
    assert [(s.agent, s.scope, s.state) for s in states] == [
        ("claude", "user", ABSENT),
        ("claude", "project", ABSENT),
        ("codex", "user", ABSENT),
        ("codex", "project", ABSENT),
        ("codex", "project", INSTALLED),
    ]
    assert [s.path for s in look_at_places(home, there)].count(
        str(there / ".codex/hooks.json")
    ) == 1
    receipts_path(home).write_text('{"version": 99}')
    assert len(look_at_places(home, here)) == 4


def test_the_users_files_lie_where_the_variables_say(tmp_path: Path) -> None:
    environ = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "~/x"}
    assert find_place("claude", "user", tmp_path, environ).path == Path("/c/settings.json")
    assert find_place("codex", "user", tmp_path, environ).path == Path.home() / "x/hooks.json"
    assert find_place("claude", "user", tmp_path, {}).path == Path.home() / ".claude/settings.json"
    project = find_place("claude", "project", tmp_path, environ).path
    assert project == tmp_path / ".claude" / "settings.json"
    with pytest.raises(ValueError, match="cursor"):
        find_place("cursor", "user", tmp_path)


def test_a_switched_on_plugin_is_found(tmp_path: Path, home: Path) -> None:
    claude, codex = tmp_path / "claude" / "settings.json", tmp_path / "codex" / "config.toml"
    for agent in ("claude", "codex"):
        assert not is_used(agent)
        assert enabled_plugin(agent, tmp_path) is None
    claude.parent.mkdir()
    codex.parent.mkdir()
    claude.write_text('{"enabledPlugins": {"noctuary@local": true, "other@x": true}}')
    codex.write_text('[plugins."noctuary@local"]\nenabled = true\n')
    assert is_used("claude")
    assert enabled_plugin("claude", tmp_path) == claude
    assert enabled_plugin("codex", tmp_path) == codex
    claude.write_text('{"enabledPlugins": {"noctuary@local": false, "noctuarian@local": true}}')
    codex.write_text('[plugins."noctuary@local"]\nenabled = false\n')
    for agent in ("claude", "codex"):
        assert enabled_plugin(agent, tmp_path) is None


@pytest.mark.parametrize("text", ["{", "plugins = 3", "[plugins]\nnoctuary = 3", "\xff"])
def test_damaged_files_hold_no_plugin(tmp_path: Path, home: Path, text: str) -> None:
    for name in ("claude/settings.json", "codex/config.toml"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="latin-1")
    assert enabled_plugin("claude", tmp_path) is None
    assert enabled_plugin("codex", tmp_path) is None


def test_this_noctuary_can_be_started() -> None:
    assert Path(find_program()[0]).exists()
