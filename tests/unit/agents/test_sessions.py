from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents import state as sessions
from noctuary.agents.state import (
    KEPT_DAYS,
    MAX_INJECTED,
    Injected,
    SessionState,
    prune_sessions,
    read_session,
    session_file,
    write_session,
)
from tests.support.hook_worlds import memory

KEY = memory(17, "The spare key hangs in the pantry.", 0.9)
DOG = memory("d3", "The dog is called Pixel.", 0.4)


def test_a_session_is_read_back(tmp_path: Path) -> None:
    state = SessionState().with_injected([KEY, DOG]).compacted().with_injected([DOG])
    path = session_file(tmp_path / "sessions", "claude", "s")
    assert write_session(path, state)
    assert read_session(path) == state
    assert [i.memory_id for i in state.injected] == ["17", "d3"]
    assert [i.in_context for i in state.injected] == [False, True]
    assert state.compactions == 1


@pytest.mark.usefixtures("open_umask")
def test_a_session_is_its_owners_alone(tmp_path: Path) -> None:
    path = session_file(tmp_path / "home" / "sessions", "claude", "s")
    assert write_session(path, SessionState())
    assert [p.stat().st_mode & 0o777 for p in path.parents[:2]] == [0o700, 0o700]
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_text_and_no_session_is_in_the_files(tmp_path: Path) -> None:
    path = session_file(tmp_path, "claude", "secret-session")
    write_session(path, SessionState().with_injected([KEY, DOG]))
    stored = path.name + path.read_text()
    for word in ("pantry", "Pixel", "spare", "secret"):
        assert word not in stored


def test_two_sessions_and_two_agents_have_files_of_their_own(tmp_path: Path) -> None:
    names = {
        session_file(tmp_path, agent, session).name
        for agent in ("claude", "codex")
        for session in ("s", "../s", "s\0", "")
    }
    assert len(names) == 8
    assert all("/" not in name and len(name) < 50 for name in names)


def test_what_is_injected_again_counts_once_with_its_best_score() -> None:
    state = SessionState().with_injected([KEY]).with_injected([DOG, {**KEY, "final_score": 0.2}])
    assert [(i.memory_id, i.score) for i in state.injected] == [("d3", 0.4), ("17", 0.9)]
    assert [i.memory_id for i in state.best_first()] == ["17", "d3"]


def test_of_equal_scores_the_later_one_comes_first() -> None:
    state = SessionState().with_injected([memory(i, f"m{i}", 0.5) for i in range(4)])
    assert [i.memory_id for i in state.best_first()] == ["3", "2", "1", "0"]


def test_an_edited_memory_is_another_one() -> None:
    state = SessionState().with_injected([KEY])
    assert state.knows(KEY)
    assert not state.knows({**KEY, "content": "The spare key is lost."})
    assert not state.knows({**DOG, "id": 17})
    assert not state.compacted().knows(KEY)


def test_the_oldest_are_forgotten_first() -> None:
    state = SessionState()
    for i in range(MAX_INJECTED + 30):
        state = state.with_injected([memory(i, f"memory {i}")])
    assert len(state.injected) == MAX_INJECTED
    assert state.injected[0].memory_id == "30"


@pytest.mark.parametrize("score", [None, "0.5", float("nan"), float("inf")])
def test_a_score_that_is_none_counts_as_nothing(score: Any) -> None:
    (found,) = SessionState().with_injected([{**KEY, "final_score": score}]).injected
    assert found.score == 0.0


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", '{"version": 1}', '{"version": 2, "injected": []}',
        '{"version": 1, "injected": {}}', "[" * 50_000,
    ],
)  # fmt: skip
def test_a_damaged_file_is_a_session_without_memories(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    assert read_session(path) == SessionState()


def test_damaged_rows_are_left_out(tmp_path: Path) -> None:
    rows = [["1", "h", 0.5, True], [1, "h", 0.5, True], ["1"], None, ["1", "h", True, True],
            ["1", 2, 0.1, True], ["2", "h", 1, "yes"]]  # fmt: skip
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"version": 1, "compactions": -3, "injected": rows}))
    found = read_session(path)
    assert found.injected == (Injected("1", "h", 0.5),)
    assert found.compactions == 0


def test_old_sessions_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_790_000_000.0
    for days in (0, 1, KEPT_DAYS - 1, KEPT_DAYS + 1, 400):
        path = tmp_path / f"{days}.json"
        path.write_text("{}")
        changed_s = now_s - days * 86_400
        os.utime(path, (changed_s, changed_s))
    assert prune_sessions(tmp_path, now_s=now_s) == 2
    assert {p.stem for p in tmp_path.iterdir()} == {"0", "1", str(KEPT_DAYS - 1)}
    monkeypatch.setattr(sessions, "MAX_FILES", 2)
    assert prune_sessions(tmp_path, now_s=now_s) == 1
    assert {p.stem for p in tmp_path.iterdir()} == {"0", "1"}
    assert prune_sessions(tmp_path / "none") == 0


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not write_session(tmp_path / "file" / "s.json", SessionState())
    assert read_session(tmp_path / "file" / "s.json") == SessionState()
