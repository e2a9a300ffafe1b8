"""The plugin folder: both agents' forms, equal on every run, and nobody else's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noctuary import __version__
from noctuary.agents.install import HookInstallError, plugin_files, write_plugin
from tests.support.agent_settings import plugin_faults

PROGRAM = ("/opt/my tools/noctuary",)


@pytest.mark.parametrize(
    "program", [PROGRAM, ("noctuary",), ("/usr/bin/python3", "-m", "noctuary")]
)
@pytest.mark.parametrize("store", [None, "/data/ä store"])
def test_every_file_has_the_published_form(program: tuple[str, ...], store: str | None) -> None:
    files = plugin_files(program, store)
    assert plugin_faults(files) == []
    assert list(files) == sorted(files)
    server = json.loads(files["noctuary/.mcp.json"])["mcpServers"]["noctuary"]
    assert [server["command"], *server["args"]][: len(program) + 1] == [*program, "mcp"]
    assert ("--store" in server["args"]) == (store is not None)
    assert all(text.endswith("\n") for text in files.values())


def test_both_manifests_say_the_version_of_noctuary() -> None:
    files = plugin_files(PROGRAM)
    for agent in ("claude", "codex"):
        assert json.loads(files[f"noctuary/.{agent}-plugin/plugin.json"])["version"] == __version__


def test_each_agent_reads_hooks_of_its_own() -> None:
    files = plugin_files(PROGRAM)
    codex = json.loads(files["noctuary/.codex-plugin/plugin.json"])["hooks"]
    assert "--agent codex" in files[f"noctuary/{codex.removeprefix('./')}"]
    assert '"claude"' in files["noctuary/hooks/hooks.json"]
    assert "codex" not in files["noctuary/hooks/hooks.json"]


def test_writing_again_writes_nothing(tmp_path: Path) -> None:
    files = plugin_files(PROGRAM)
    folder = tmp_path / "plugin"
    assert len(write_plugin(folder, files)) == len(files)
    times = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert write_plugin(folder, files) == ()
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == times
    newer = plugin_files(("/new/noctuary",))
    changed = write_plugin(folder, newer)
    assert {p.name for p in changed} == {"hooks.json", "codex.json", ".mcp.json"}


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.md").write_text("mine")
    with pytest.raises(HookInstallError, match="holds more than"):
        write_plugin(folder, plugin_files(PROGRAM))
    assert [p.name for p in folder.iterdir()] == ["notes.md"]
    with pytest.raises(HookInstallError, match="not a folder"):
        write_plugin(folder / "notes.md", plugin_files(PROGRAM))


@pytest.mark.parametrize("manifest", ["[]", "{", '{"name": "other"}', "[" * 100_000])
def test_a_folder_with_another_plugin_is_left_alone(tmp_path: Path, manifest: str) -> None:
    path = tmp_path / "noctuary" / ".claude-plugin" / "plugin.json"
    path.parent.mkdir(parents=True)
    path.write_text(manifest)
    with pytest.raises(HookInstallError, match="holds more than"):
        write_plugin(tmp_path, plugin_files(PROGRAM))


def test_the_checks_see_faults() -> None:
    """The checks above would fail where something is wrong: each of these is told."""
    good = plugin_files(PROGRAM)

    def with_change(path: str, old: str, new: str) -> list[str]:
        assert old in good[path]
        return plugin_faults({**good, path: good[path].replace(old, new, 1)})

    assert with_change(".agents/plugins/marketplace.json", "./noctuary", "./")
    assert with_change(".claude-plugin/marketplace.json", '"noctuary-local"', '"My Market"')
    assert with_change("noctuary/.claude-plugin/plugin.json", '"noctuary"', '"Noctuary"')
    assert with_change(
        "noctuary/.codex-plugin/plugin.json", "./hooks/codex.json", "hooks/codex.json"
    )
    assert with_change("noctuary/hooks/hooks.json", '"timeout": 10', '"timeout": "5"')
    assert with_change("noctuary/hooks/hooks.json", '"Stop"', '"Stopped"')
    assert with_change("noctuary/hooks/codex.json", '"timeout": 10', '"timeout": 0.5')
    assert with_change("noctuary/hooks/codex.json", '"timeout": 10', '"args": [], "timeout": 10')
    assert with_change("noctuary/hooks/hooks.json", "startup|", "begin|")
