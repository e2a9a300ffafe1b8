"""`noctuary hooks`: what it prints, writes and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.agents.state import (
    COUNTERS,
    HOOKS,
    JOURNAL,
    SESSIONS,
    JournalEntry,
    SessionState,
    append_entry,
    note_call,
    session_file,
    write_session,
)
from tests.support.store import Store

Run = Callable[..., Result]


@pytest.fixture
def settings(home: Path, tmp_path: Path) -> Path:
    """Claude's user settings of the test."""
    path = tmp_path / "claude" / "settings.json"
    path.parent.mkdir()
    path.write_text('{\n  "model": "opus"\n}\n')
    return path


def test_install_status_and_uninstall(run: Run, settings: Path) -> None:
    before = settings.read_bytes()
    dry = run("hooks", "install", "--agent", "claude", "--dry-run")
    assert dry.exit_code == 0
    assert '+    "UserPromptSubmit": [' in dry.output
    assert "would be installed" in dry.output
    assert settings.read_bytes() == before

    done = run("hooks", "install", "--agent", "claude")
    assert done.exit_code == 0
    assert "claude, user: installed" in done.output
    assert "kept as" in done.output
    again = run("hooks", "install", "--agent", "claude", "--json")
    assert json.loads(again.stdout)["action"] == "unchanged"
    assert "installed" in run("hooks", "status").output

    gone = run("hooks", "uninstall", "--agent", "claude", "--json")
    assert json.loads(gone.stdout)["action"] == "removed"
    assert settings.read_bytes() == before


def test_a_project_is_the_folder_that_is_named(run: Run, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    run("hooks", "install", "--agent", "codex", "--project", "--folder", str(folder))
    told = run("hooks", "install", "--agent", "claude", "--store", "typo", "--dry-run")
    assert "typo yet: until a night has run" in told.stderr
    assert "hook --agent codex" in (folder / ".codex" / "hooks.json").read_text()
    shown = json.loads(run("hooks", "status", "--json", "--folder", str(folder)).stdout)
    assert [p["state"] for p in shown["places"]] == ["absent", "absent", "absent", "installed"]


def test_a_broken_file_is_refused_with_exit_code_1(run: Run, settings: Path) -> None:
    settings.write_text("{ // mine\n}")
    result = run("hooks", "install", "--agent", "claude")
    assert result.exit_code == 1
    assert "JSON has no comments" in result.stderr
    as_json = run("hooks", "install", "--agent", "claude", "--json")
    assert json.loads(as_json.stdout)["error"] == "HookInstallError"
    assert run("hooks", "status").exit_code == 1


def test_status_shows_how_the_hooks_fared(run: Run, home: Path) -> None:
    (home / HOOKS).mkdir()
    note_call(home / COUNTERS, "claude", "Stop", code=None, took_ms=40, now_s=1_000.0, is_cut=True)
    note_call(home / COUNTERS, "claude", "Stop", code="no_store", took_ms=60, now_s=1_001.0)
    shown = run("hooks", "status").output
    shown = " ".join(shown.split())
    assert "2 calls, 1 failed, p95 60 ms; the deadline cut 1 answers short" in shown
    assert "(hook.deadline_ms); fails now: no_store" in shown
    (event,) = json.loads(run("hooks", "status", "--json").stdout)["events"]
    assert (event["calls"], event["p95_ms"], event["outage_code"]) == (2, 60.0, "no_store")


def test_status_tells_the_tokens_that_were_added(run: Run, home: Path) -> None:
    assert json.loads(run("hooks", "status", "--json").stdout)["tokens"]["days"] == []
    state = SessionState().with_injected([], 1_234)
    assert write_session(session_file(home / SESSIONS, "codex", "5f3c-2a1b"), state)
    entry = JournalEntry(0, "codex", "Stop", "5f3c-2a1b", cwd="/srv/\u202emill")
    assert append_entry(home / JOURNAL, entry) is None
    shown = " ".join(run("hooks", "status").output.split())
    assert f"tokens {state.spent[0].day} 1,234 (sessions: 1)" in shown
    assert "codex 5f3c-2a1b 1,234 tokens, last on" in shown
    assert "/srv/\\u202emill" in shown
    (one,) = json.loads(run("hooks", "status", "--json").stdout)["tokens"]["sessions"]
    assert (one["session_id"], one["tokens"]) == ("5f3c-2a1b", 1_234)


def test_a_program_that_is_gone_is_exit_code_1(run: Run, settings: Path, tmp_path: Path) -> None:
    run("hooks", "install", "--agent", "claude")
    text = settings.read_text()
    command = json.loads(text)["hooks"]["Stop"][0]["hooks"][0]["command"]
    settings.write_text(text.replace(command, str(tmp_path / "noctuary")))
    result = run("hooks", "status")
    assert result.exit_code == 1
    assert "cannot be started" in result.output


def test_the_plugin_folder(run: Run, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    result = run("hooks", "plugin", str(folder), "--portable", "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["written"]) == 7
    assert '"command": "noctuary"' in (folder / "noctuary" / "hooks" / "hooks.json").read_text()
    assert "0 of 7 files written" in run("hooks", "plugin", str(folder), "--portable").output
    (folder / "noctuary" / ".claude-plugin" / "plugin.json").unlink()
    assert run("hooks", "plugin", str(folder)).exit_code == 1


RunJson = Callable[..., Any]


def test_json_prints_what_it_would_answer_for(run_json: RunJson, plain_store: Store) -> None:
    found = run_json("mcp", "--user", "ana", "--wing", "home", "--store", str(plain_store.root))
    assert (found["user"], found["wing"]) == ("ana", "home")
    assert found["counts"]["memories"] == 9, "of fourteen: of the wing home"
    assert found["store"] == str(plain_store.root)


def test_json_without_a_store_says_what_to_run(run_json: RunJson, home: Path) -> None:
    assert "noctuary nightly" in run_json("mcp")["warnings"][0]["message"]


def test_the_store_is_passed_by_its_full_path(
    run: Run, settings: Path, plain_store: object, home: Path
) -> None:
    result = run("hooks", "install", "--agent", "claude", "--store", "house", "--json")
    assert all("NOCTUARY_HOME" in note for note in json.loads(result.stdout)["notes"])
    assert f'"{home / "house"}"' in settings.read_text()


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


def test_mcp_install_tells_the_agents_that_are_there_and_names_what_it_cannot_edit(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    cursor, gemini = user / ".cursor" / "mcp.json", user / ".gemini" / "settings.json"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(user / "nowhere"))
    monkeypatch.setenv("HOME", str(user))
    none = run("mcp", "install")
    assert (none.exit_code, "name one of claude, codex" in none.stderr) == (1, True)
    cursor.parent.mkdir(parents=True)
    gemini.parent.mkdir()
    gemini.write_text("{broken")
    dry = run("mcp", "install", "cursor", "--dry-run")
    assert '+    "noctuary": {' in dry.stdout
    assert not cursor.exists()
    done = run("mcp", "install", "--user", "ana", "--store", "notes", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [c["action"] for c in found["changes"]] == ["installed"]
    entry = json.loads(cursor.read_text())["mcpServers"]["noctuary"]
    assert entry["args"][-4:] == ["--store", str(home / "notes"), "--user", "ana"]
    assert entry["env"]["NOCTUARY_HOME"] == str(home), "agents pass on no variables of theirs"
    (refused,) = found["refused"]
    assert refused["agent"] == "gemini"
    assert json.loads(refused["snippet"])["mcpServers"]["noctuary"] == entry
    assert gemini.read_text() == "{broken"
    assert "behind `install`" in run("mcp", "--store", "notes", "install").stderr
    with monkeypatch.context() as plain:
        plain.setattr("noctuary.cli.main.is_installed", {"mcp": False}.get)
        assert "pip install 'noctuary[mcp]'" in run("mcp", "install", "cursor").stderr
    assert "cursor, user: removed" in run("mcp", "install", "--undo").stdout
    assert not cursor.exists()
    assert "no agent's settings have" in run("mcp", "install", "--undo").stdout
