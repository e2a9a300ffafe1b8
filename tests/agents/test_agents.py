"""Real agents are driven through scripts: every turn is kept once, and no machine's word is one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.claude import ClaudeCode
from tests.agents.claude_scenarios import CLAUDE
from tests.agents.codex import Codex
from tests.agents.codex_scenarios import CODEX
from tests.agents.home import PROJECT
from tests.agents.model_server import ScriptedServer
from tests.agents.scenario import Scenario, differences, read_turns
from tests.agents.versions import PACKAGES, NotInstalledError, install

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_DRIVERS = {"claude": ClaudeCode, "codex": Codex}
_RUNS = Path(__file__).resolve().parents[2] / "artifacts" / "agents"
_PLAYED = [
    pytest.param(version, played, id=f"{played.agent}-{version}-{played.name}")
    for played in (*CLAUDE, *CODEX)
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
    assert {turn.wing for turn in kept} == {PROJECT}


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
