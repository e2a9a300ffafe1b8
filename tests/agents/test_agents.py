"""Real agents are driven through scripts: every turn is kept once, and no machine's word is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.claude import ClaudeCode
from tests.agents.claude_scenarios import CLAUDE
from tests.agents.codex import Codex
from tests.agents.codex_scenarios import CODEX
from tests.agents.model_server import Call, Reply, Rule, ScriptedServer
from tests.agents.other_scenarios import OTHER_AGENTS
from tests.agents.others import OTHERS
from tests.agents.scenario import Scenario, differences, read_turns
from tests.agents.versions import PACKAGES, NotInstalledError, install
from tests.support.lean import write_encoder
from tests.support.store import household, new_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_DRIVERS = {"claude": ClaudeCode, "codex": Codex, **OTHERS}
_RUNS = Path(__file__).resolve().parents[2] / "artifacts" / "agents"
_PLAYED = [
    pytest.param(version, played, id=f"{played.agent}-{version}-{played.name}")
    for played in (*CLAUDE, *CODEX, *OTHER_AGENTS)
    for version in PACKAGES[played.agent].versions
    if played.versions(version)
]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as serving:
        yield serving


def _driver(agent: str, version: str, root: Path, server: ScriptedServer, **more: Any) -> Any:
    if agent == "claude" and shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    try:
        command = install(agent, version)
    except NotInstalledError as error:
        pytest.skip(str(error))
    return _DRIVERS[agent](root, command, server.url, **more)


@pytest.mark.parametrize(("version", "played"), _PLAYED)
def test_every_turn_of_a_script_is_kept_once(
    version: str, played: Scenario, server: ScriptedServer, tmp_path: Path
) -> None:
    driver = _driver(played.agent, version, tmp_path, server)
    played.drive(driver, server)
    _keep_run(driver, server, _RUNS / f"{played.agent}-{version}" / played.name)
    kept = read_turns(driver.transcripts, tmp_path / "turns.db")
    assert differences(kept, played.turns) == []
    assert {turn.wing for turn in kept} == {driver.wing}


def _keep_run(driver: Any, server: ScriptedServer, folder: Path) -> None:
    """Leave what was written where `python -m tests.agents.shrink` finds it."""
    shutil.rmtree(folder, ignore_errors=True)
    for root in driver.transcripts:
        if root.exists():
            shutil.copytree(root, folder / root.name)
    requests = "".join(f"{json.dumps(asked.body)}\n" for asked in server.asked)
    (folder / "requests.jsonl").write_text(requests, encoding="utf-8")
    (folder / "hooks.jsonl").write_text(
        "".join(f"{json.dumps(h)}\n" for h in driver.hooked), "utf-8"
    )


_CODEX = PACKAGES["codex"].versions
_STORE_COMPRESSION = "[features]\nlocal_thread_store_compression = true\n"
_LONG_AGO = 1_700_000_000


def test_codex_migrates_its_rollouts_without_a_turn_of_another_id(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """`codex migrate-rollouts --apply` of the newest version over sessions of the oldest."""
    old = _driver("codex", _CODEX[-1], tmp_path, server)
    next(p for p in CODEX if p.name == "fork").drive(old, server)
    before = read_turns(old.transcripts, tmp_path / "before.db")
    old.command = install("codex", _CODEX[0])
    assert "migrated" in old.run("migrate-rollouts", "--apply", "--verbose").stdout
    rollouts = old.transcripts[0].rglob("*.jsonl")
    assert all('"history_mode":"paginated"' in path.read_text("utf-8") for path in rollouts)
    assert read_turns(old.transcripts, tmp_path / "after.db") == before
    assert read_turns(old.transcripts, tmp_path / "before.db") == before


@pytest.mark.parametrize("version", _CODEX)
def test_codex_compresses_old_rollouts_and_no_turn_is_lost(
    version: str, server: ScriptedServer, tmp_path: Path
) -> None:
    codex = _driver("codex", version, tmp_path, server, more=_STORE_COMPRESSION)
    next(p for p in CODEX if p.name == "exec_and_resume").drive(codex, server)
    before = read_turns(codex.transcripts, tmp_path / "before.db")
    for path in codex.home.rglob("rollout-*"):
        os.utime(path, (_LONG_AGO, _LONG_AGO))
        if path.suffix == ".lock":
            path.unlink()  # Says that the worker ran today
    with codex.app():
        _wait_until(lambda: any(codex.transcripts[0].rglob("*.jsonl.zst")))
    assert not any(codex.transcripts[0].rglob("*.jsonl"))
    assert read_turns(codex.transcripts, tmp_path / "after.db") == before


@pytest.mark.parametrize(
    ("agent", "version"),
    [(agent, version) for agent in ("claude", "codex") for version in PACKAGES[agent].versions],
)
def test_the_label_of_an_mcp_call_names_server_and_tool(
    agent: str, version: str, server: ScriptedServer, tmp_path: Path
) -> None:
    driver = _driver(agent, version, tmp_path, server)
    next(p for p in (*CLAUDE, *CODEX) if (p.agent, p.name) == (agent, "mcp")).drive(driver, server)
    (call,) = (t for t in read_turns(driver.transcripts, tmp_path / "turns.db") if "[" in t.content)
    assert "[mcp__quay__log_entry: the tide is high]" in call.content
    assert "entry logged: the tide is high" in call.content
    assert "Wall time" not in call.content


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


# noctuary's own hooks and MCP server in a real session.

_ASKED = "Where does the spare key hang?"
_ANSWER = "The spare key hangs behind the blue door."  # One of the household's memories
_REMEMBERED = "The quay master wants the ladder mended before Easter."
_WAIT = "sleep 6; echo the wait is over"
_WAITS = {
    "claude": Call("Bash", {"command": _WAIT, "description": "wait"}),
    "codex": Call("exec_command", {"cmd": _WAIT, "yield_time_ms": 20_000}),
}
_CALLS = {
    "claude": Call("mcp__noctuary__remember", {"text": _REMEMBERED}),
    "codex": Call("remember", {"text": _REMEMBERED}, "mcp__noctuary"),
}


@pytest.mark.parametrize(
    ("agent", "version"),
    [(agent, version) for agent in ("claude", "codex") for version in PACKAGES[agent].versions],
)
def test_memories_reach_the_model_and_the_session_reaches_the_memories(
    agent: str, version: str, server: ScriptedServer, tmp_path: Path
) -> None:
    server.rules = [
        Rule("spare key hang", Reply("Behind the blue door.")),
        # Its MCP server may still be starting when an agent sends its first request.
        Rule("Keep in mind", Reply("I keep it.", (_WAITS[agent],))),
        Rule("the wait is over", Reply("Now.", (_CALLS[agent],))),
    ]
    server.otherwise = Reply("Kept.")
    driver = _driver(agent, version, tmp_path, server, is_hooked=False)
    captured = _install_noctuary(driver, agent, tmp_path)
    for prompt in (_ASKED, "Keep in mind what the quay master wants."):
        if agent == "claude":
            driver.say(prompt)
        else:
            driver.exec(prompt)
    first = next(asked for asked in server.asked if _ASKED in asked.said)
    assert first.raw.count(_ANSWER) == 1
    assert '"similar":[]' in server.asked[-1].said
    kept = read_turns(driver.transcripts, tmp_path / "turns.db")
    assert [t for t in kept if _REMEMBERED in t.content or _ANSWER in t.content] == []
    assert [t.text for t in kept if t.role == "user"] == [
        _ASKED, "Keep in mind what the quay master wants.",
    ]  # fmt: skip
    # What the hooks kept, without a night: at the end of a session at the latest.
    _wait_until(lambda: captured.exists() and read_turns([], captured) == kept)


def _install_noctuary(driver: Any, agent: str, folder: Path) -> Path:
    """Publish the household for a driver, tell its agent; return where hooks keep turns."""
    home = folder / "noctuary"
    store = new_store(home / "store", encoder=write_encoder(home / "store" / "encoders"))
    store.publish(household())
    driver.environ["NOCTUARY_HOME"] = str(home)
    if agent == "claude":
        driver.allow("mcp__noctuary", "Bash")
    noctuary = str(Path(sys.executable).with_name("noctuary"))
    for words in (["hooks", "install", "--agent", agent], ["mcp", "install", agent]):
        subprocess.run(
            [noctuary, *words, "--store", str(store.root)], cwd=driver.project,
            env=driver.environ, check=True, capture_output=True,
        )  # fmt: skip
    return store.paths.turns
