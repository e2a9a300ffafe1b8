"""Files of real agents that were driven through scripts (`make test-agents`), long texts cut."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.agents.claude_scenarios import CLAUDE
from tests.agents.codex_scenarios import CODEX
from tests.agents.home import PROJECT
from tests.agents.scenario import Scenario, differences, read_turns

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "agents"
_LONGEST_BYTES = 40 * 2**10
_LONG_AGO = 1_700_000_000
_RUNS = [
    pytest.param(run, played, id=f"{run.parent.name}-{run.name}")
    for played in (*CLAUDE, *CODEX)
    for run in sorted(GOLDEN.glob(f"{played.agent}-*/{played.name}"))
]


@pytest.mark.parametrize(("run", "played"), _RUNS)
def test_every_turn_is_kept_once_and_nothing_else(
    run: Path, played: Scenario, tmp_path: Path
) -> None:
    kept = read_turns(sorted(run.iterdir()), tmp_path / "turns.db")
    assert differences(kept, played.turns) == []
    assert {turn.wing for turn in kept} == {PROJECT}


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_one_reading_of_every_run_is_all_turns_of_all(agent: str, tmp_path: Path) -> None:
    runs = sorted(GOLDEN.glob(f"{agent}-*/*"))
    one_by_one = {
        turn.id
        for at, run in enumerate(runs)
        for turn in read_turns(sorted(run.iterdir()), tmp_path / f"{at}.db")
    }
    together = read_turns(runs, tmp_path / "turns.db")
    assert {turn.id for turn in together} == one_by_one


def test_a_fork_repeats_nothing_also_where_its_parent_went_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(GOLDEN / "codex-0.146.0" / "fork", run)
    for age_s, path in enumerate(sorted(run.rglob("*.jsonl"), key=lambda path: path.name)):
        os.utime(path, (_LONG_AGO - age_s, _LONG_AGO - age_s))
    kept = read_turns(sorted(run.iterdir()), tmp_path / "turns.db")
    assert differences(kept, next(p for p in CODEX if p.name == "fork").turns) == []


@pytest.mark.parametrize("version", ["2.1.332", "2.1.197"])
def test_a_prompt_in_mid_turn_is_kept_once_wherever_a_reading_stops(
    version: str, tmp_path: Path
) -> None:
    run = GOLDEN / f"claude-{version}" / "queued"
    growing = tmp_path / "growing"
    shutil.copytree(run, growing)
    (path,) = growing.rglob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    for stop in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:stop]))
        read_turns([growing], tmp_path / "growing.db")
    path.write_bytes(b"".join(lines))
    kept = read_turns([growing], tmp_path / "growing.db")
    assert differences(kept, next(p for p in CLAUDE if p.name == run.name).turns) == []


def test_fixtures_are_small_and_name_no_machine() -> None:
    files = sorted(GOLDEN.rglob("*.jsonl"))
    assert files
    assert [f for f in files if f.stat().st_size > _LONGEST_BYTES] == []
    assert [f for f in files if "/tmp/pytest" in f.read_text("utf-8")] == []
