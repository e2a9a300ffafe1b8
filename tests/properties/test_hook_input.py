"""Whatever is on stdin and whatever state the store is in: a hook never stops its agent."""

from __future__ import annotations

import json
import random
import statistics
from contextlib import ExitStack
from pathlib import Path

import pytest

from noctuary.agents.client import LIFETIME_S
from noctuary.agents.hooks import answer as reply
from tests.support.hook_inputs import event_name, raw_inputs
from tests.support.hook_runner import Case, Done, run_cases
from tests.support.hook_shapes import AGENTS, shape_faults, stdout_faults
from tests.support.hook_stores import STATES, hook_state
from tests.support.hook_worlds import BrokenWorld
from tests.support.store import Store

LIMIT_MS = 1_000 * LIFETIME_S + 1_500
"""A hook's own lifetime, and what a busy machine takes to begin and end a process."""

PLAIN = b"""{"hook_event_name": "UserPromptSubmit", "session_id": "first", "cwd": "/p",
"transcript_path": null, "prompt": "where is the spare key and the Atlas migration?"}"""
SAID = {
    "published": "context",
    "no store": "message",
    "no home": "message",
    "bad home": "",
    "bad settings": "message",
    "locked": "context",
    "corrupt": "message",
    "torn": "message",
    "other format": "message",
    "full disk": "context",
    "nearly full disk": "context",
    "no directory": "context",
    "no stdout": "",
    "no stdin": "",
}
"""What a plain prompt is answered with in every state."""


def _kind(stdout: bytes) -> str:
    if b"additionalContext" in stdout:
        return "context"
    return "message" if b"systemMessage" in stdout else ""


def faults_of(case: Case, done: Done) -> list[str]:
    faults = stdout_faults(case.agent, event_name(case.raw), done.stdout)
    if done.code != 0:
        faults.append(f"exit code {done.code}")
    if done.took_ms > LIMIT_MS:
        faults.append(f"{done.took_ms:.0f} ms")
    return faults


def run_in_all_states(template: Path, folder: Path, per_state: int, seed: int) -> list[float]:
    """Run generated inputs in every state; return how long each took, in ms."""
    cases: list[tuple[str, Case]] = []
    with ExitStack() as states:
        for place, name in enumerate(STATES):
            fields = states.enter_context(hook_state(name, template, folder / str(place)))
            inputs = [("claude", PLAIN), *raw_inputs(per_state - 1, seed + place)]
            cases += [(name, Case(agent, raw, **fields)) for agent, raw in inputs]
        results = list(run_cases(case for _, case in cases))
    wrong = {
        (name, case.agent, case.raw[:300]): faults
        for (name, case), done in zip(cases, results, strict=True)
        if (faults := faults_of(case, done))
    }
    assert not wrong
    said = [(name, done.stdout) for (name, _), done in zip(cases, results, strict=True)]
    assert {name: _kind(said[i * per_state][1]) for i, name in enumerate(STATES)} == SAID
    assert not any(stdout for name, stdout in said if name == "no stdout")
    # What should have been printed must not have been written into somebody's file.
    for path in folder.rglob("*"):
        assert not path.is_file() or b"hookSpecificOutput" not in path.read_bytes(), path
    return [done.took_ms for done in results]


@pytest.mark.parametrize("seed", range(4))
def test_the_core_answers_anything_with_something_allowed(seed: int) -> None:
    """2,500 inputs for each seed, 10,000 in all, in worlds that fail by chance."""
    rng = random.Random(seed)
    said = 0
    for agent, raw in raw_inputs(2_500, seed):
        world = BrokenWorld(rng, agent)
        output = json.loads(reply(raw, world) or b"{}")
        name = event_name(raw)
        if name is None:
            assert output == {}
            assert world.calls == []
        else:
            assert shape_faults(agent, name, output) == [], raw[:300]
            said += bool(output)
    assert said > 60, "the inputs reach what there is to say"


def test_a_hook_process_ends_well_in_every_state(plain_store: Store, tmp_path: Path) -> None:
    """Five inputs in each of fourteen states."""
    assert len(run_in_all_states(plain_store.root, tmp_path / "states", 5, seed=100)) >= 60


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_ten_thousand_hook_processes_end_well(dense_store: Store, tmp_path: Path) -> None:
    times = run_in_all_states(dense_store.root, tmp_path / "states", 10_000 // len(STATES) + 1, 7)
    assert len(times) >= 10_000
    print(  # noqa: T201 (a measurement, shown with -s)
        f"{len(times)} processes: median {statistics.median(times):.0f} ms, "
        f"p95 {statistics.quantiles(times, n=20)[-1]:.0f} ms, slowest {max(times):.0f} ms"
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_the_checks_see_what_they_must(agent: str) -> None:
    """The shapes themselves, on outputs that break them."""
    good = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "x"}}
    assert shape_faults(agent, "UserPromptSubmit", good) == []
    for event, output in (
        ("UserPromptSubmit", {**good, "decision": "block", "reason": "x"}),
        ("UserPromptSubmit", {"continue": False}),
        ("UserPromptSubmit", {"unknown": 1}),
        ("UserPromptSubmit", {"systemMessage": 1}),
        ("UserPromptSubmit", {"hookSpecificOutput": {"additionalContext": "x"}}),
        ("UserPromptSubmit", {"hookSpecificOutput": {**good["hookSpecificOutput"], "new": 1}}),
        ("SessionStart", good),
        ("PreCompact", {"hookSpecificOutput": {"hookEventName": "PreCompact"}}),
        ("Stop", {"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x"}}),
        ("UserPromptSubmit", []),
    ):
        assert shape_faults(agent, event, output), (event, output)
    assert stdout_faults(agent, "Stop", b"{")
    assert stdout_faults(agent, "Stop", b"{}")
    assert stdout_faults(agent, None, b'{"systemMessage": "x"}')
    assert stdout_faults(agent, "Stop", b"") == []
