"""A laptop with several memories: one command, an answer from each, and every byte back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.store import StorePaths, store_for_source
from noctuary.recall.api import recall
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, REFUSED, Ran, run
from tests.e2e.stores import Bench, give_encoder
from tests.support.laptop import SECRET, files_of, make_laptop

ANSWERS = {
    "turn-": "Which port does Redis use in staging?",
    "palace:": "When was the cache Memcached?",
    "palace-2:": "Does Dana Whitfield sign off releases?",
    "auto-memory/-home-me-shop:": "Where is the tax office?",
    "claude-memory:": "How often does the feline eat?",
}
"""A question for each member, by the beginning of the id of what answers it."""


@pytest.mark.slow
def test_one_command_reads_every_memory_and_undo_takes_it_back(
    tmp_path: Path, small_night: FirstNight, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = make_laptop(tmp_path / "user")
    home = user / ".local/share/noctuary"
    before = dict(files_of(user))
    store = store_for_source(home, home / "noctuary.toml")
    give_encoder(store, small_night.bench)
    named = {"HOME": str(user), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": "", "MEMORY_DB": ""}

    def noctuary(*words: str) -> Ran:
        return run([sys.executable, "-m", "noctuary.cli.entry", *words], home, extra=named)

    def answered(*words: str) -> Any:
        ran = noctuary(*words, "--json")
        assert ran.code == DONE, ran.says
        return json.loads(ran.out)

    refused = noctuary("init")
    assert (refused.code, dict(files_of(user))) == (REFUSED, before), refused.says
    done = noctuary("init", "--yes")
    assert done.code == DONE, done.says
    assert "published snapshot" in done.out
    question = next(line for line in done.out.splitlines() if line.startswith("noctuary recall "))
    assert "What do I know about" in question
    assert SECRET not in done.says
    assert SECRET.encode() not in b"".join(p.read_bytes() for p in store.rglob("*") if p.is_file())
    for prefix, asked in ANSWERS.items():
        first = answered("recall", asked, "-k", "1")["memories"][0]
        assert str(first["id"]).startswith(prefix), asked
    kept = answered("remember", "The boiler man is called Petersen.")
    assert (kept["is_live"], kept["store"]) == (True, str(store))
    found = answered("recall", "who is the boiler man", "-k", "1")["memories"][0]
    assert (found["id"], found["live"]) == ("own:1", True)
    event = {"hook_event_name": "UserPromptSubmit", "prompt": ANSWERS["palace:"], "cwd": "/"}
    assert "Memcached" in _hook(user, event), "the hook that was installed answers"
    again = answered("nightly")
    assert (again["status"], again["store"]) == ("published", str(store))
    monkeypatch.setenv("NOCTUARY_HOME", str(home))
    assert not any(m.live for m in recall("boiler man", 1, dry_run=True).memories)
    assert Bench(home / "noctuary.toml", store).manifest.counts["memories"] == 18
    answered("init", "--undo")
    assert dict(files_of(user)) == before
    assert not (home / "noctuary.toml").exists()
    assert StorePaths(store).current.is_file()


def _hook(user: Path, event: dict[str, Any]) -> str:
    """Run what the agent's settings say for a prompt; return what it prints."""
    settings = json.loads((user / ".claude/settings.json").read_text("utf-8"))
    entry = settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]
    told = {**os.environ, "HOME": str(user), "NOCTUARY_HOOK_DEADLINE_MS": "20000"}
    told["NOCTUARY_HOOK_ABSTAIN"] = "false"
    told.pop("NOCTUARY_HOME", None)
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps(event), env=told, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    return done.stdout
