from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noctuary.cli.main import main
from noctuary.core.sqlite import directory_lock
from noctuary.sources import own_store

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of noctuary's, with a space in its name."""
    path = tmp_path / "a home"
    monkeypatch.setenv("NOCTUARY_HOME", str(path))
    return path


def test_it_says_the_id_the_next_command_and_what_is_similar(run: Run, home: Path) -> None:
    first = run("remember", "The spare key hangs behind the blue door.", "--wing", "home")
    assert (first.exit_code, first.stderr) == (0, "")
    told, night = first.stdout.splitlines()
    assert told == "remembered 1"
    assert f"noctuary nightly '{home}/memories.sqlite'`" in night
    second = run("remember", "the spare key hangs behind the blue door", "--tags", "key,door")
    assert second.stdout.startswith("remembered 2\n")
    assert second.stderr == "! 1 says the same: The spare key hangs behind the blue door.\n"
    third = run("remember", "It hangs in the hall.", "--supersedes", "1", "--user", "ana")
    assert third.exit_code == 3
    assert "no memory 1 of this user" in third.stderr
    third = run("remember", "It hangs in the hall.", "--supersedes", "1", "--importance", "0.9")
    assert "it replaces 1 from the next night on" in third.stdout
    with closing(sqlite3.connect(home / own_store.OWN_FILE)) as db:
        found = db.execute("SELECT id, wing, tags, importance FROM memories").fetchall()
    assert found == [(1, "home", "", 0.5), (2, None, "key,door", 0.5), (3, "home", "", 0.9)]


def test_json_is_the_whole_answer(run_json: Callable[..., Any], home: Path) -> None:
    run_json("remember", "The boiler was mended in May.")
    told = run_json("remember", "The boiler was mended in May!", "--room", "cellar")
    assert told.pop("store").startswith(f"{home}/a-home-memories-")
    assert told == {
        "id": 2, "path": f"{home}/memories.sqlite", "source": f"{home}/memories.sqlite",
        "supersedes": None, "warnings": [],
        "similar": [{"id": 1, "similarity": 1.0, "content": "The boiler was mended in May."}],
        "is_live": False, "night": f"noctuary nightly '{home}/memories.sqlite'",
    }  # fmt: skip


def test_a_text_may_come_from_standard_input(home: Path) -> None:
    ran = CliRunner().invoke(main, ["remember", "-"], input="Two lines\nof a note.\n")
    assert ran.stdout.startswith("remembered 1\n")
    with closing(sqlite3.connect(home / own_store.OWN_FILE)) as db:
        assert db.execute("SELECT content FROM memories").fetchone() == ("Two lines\nof a note.\n",)


@pytest.mark.parametrize(
    ("words", "code", "error", "said"),
    [
        (["my password is hunter2horse"], 3, "MemoryRefusedError", "reads like a secret"),
        ([""], 3, "MemoryRefusedError", "empty_content"),
        (["x", "--importance", "7"], 3, "MemoryRefusedError", "from 0 to 1"),
        (["x", "--supersedes", "7"], 3, "MemoryRefusedError", "no memory 7"),
    ],
)
def test_a_refusal_is_a_sentence_and_exit_code_3(
    run: Run, run_json: Callable[..., Any], words: list[str], code: int, error: str, said: str
) -> None:
    told = run_json("remember", *words, code=code)
    assert (told["error"], said in told["message"]) == (error, True)
    assert said in run("remember", *words).stderr


def test_others_that_write_are_exit_code_4(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("remember", "One.")
    monkeypatch.setattr(own_store.remember, "__kwdefaults__",
                        {**(own_store.remember.__kwdefaults__ or {}), "wait_s": 0.1})  # fmt: skip
    with directory_lock(home):
        ran = run("remember", "Two.")
    assert (ran.exit_code, "Try again" in ran.stderr) == (4, True)
