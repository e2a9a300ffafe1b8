"""The read side, hooks and MCP in processes without what Windows lacks (tests.support.windows)."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from noctuary.agents.state import COUNTERS, JOURNAL, read_counters, read_journal
from noctuary.core.store import StorePaths
from tests.support import windows
from tests.support.mcp import call
from tests.support.store import Store
from tests.support.transcripts import ClaudeSession

ENTRY = "noctuary.cli.entry"
PROCESS = [sys.executable, "-P", windows.__file__]  # beside it lies an mcp.py


def run(*arguments: str, event: dict[str, Any] | None = None, module: str = ENTRY) -> str:
    """Run a command in such a process; what it printed."""
    done = subprocess.run(
        [*PROCESS, module, *arguments],
        input=None if event is None else json.dumps(event),
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "NOCTUARY_HOOK_DEADLINE_MS": "20000"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_the_process_lacks_what_it_must(home: Path) -> None:
    said = "import sys, os\ntry:\n    import fcntl\nexcept ImportError:\n    print(sys.platform)"
    (home / "look.py").write_text(f"{said}\nprint(hasattr(os, 'fork'), hasattr(os, 'geteuid'))")
    done = subprocess.run(
        [*PROCESS, "look"], cwd=home, env={**os.environ, "PYTHONPATH": str(home)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["win32", "False", "False"]


def test_commands_that_read_answer_as_ever_and_log(dense_store: Store, home: Path) -> None:
    found = json.loads(run("recall", "spare key", "--user", "ana", "--json"))
    assert found["memories"][0]["id"] == 101
    assert found["warnings"] == [], "its log was written, so its lock was taken"
    assert found["served_by"] == "process"
    with closing(sqlite3.connect(StorePaths(dense_store.root).access_log)) as db:
        ((logged,),) = db.execute("SELECT count(*) FROM retrievals").fetchall()
    assert logged == len(found["memories"])
    assert json.loads(run("why", "spare key", "101", "--json"))["stage"] == "returned"
    asked = ("spare key", "--user", "ana", "--budget", "400")
    assert "hangs behind the blue door" in run("context", *asked)
    assert json.loads(run("status", "--json"))["snapshot_id"]
    done = json.loads(run("mcp", "install", "cursor", "--dry-run", "--json"))
    assert done["changes"][0]["action"] == "installed"


def test_every_event_of_a_hook_is_answered_and_kept(
    dense_store: Store, home: Path, tmp_path: Path
) -> None:
    session = ClaudeSession()
    session.user("Where does the parcel label come from?")
    transcript = tmp_path / "session.jsonl"
    transcript.write_text("".join(json.dumps(line) + "\n" for line in session.lines))
    shared = {"session_id": "s", "cwd": "/p", "transcript_path": str(transcript)}

    def hook(name: str, **fields: Any) -> str:
        event = {"hook_event_name": name, **shared, **fields}
        return run("hook", "--agent", "claude", event=event)

    block = json.loads(hook("UserPromptSubmit", prompt="where is the spare key?"))
    assert "- [101]" in block["hookSpecificOutput"]["additionalContext"]
    assert hook("UserPromptSubmit", prompt="where is the spare key?") == "", "it is there already"
    assert hook("PreCompact", trigger="auto") == ""
    again = json.loads(hook("SessionStart", source="compact"))
    assert "- [101]" in again["hookSpecificOutput"]["additionalContext"]
    assert hook("SessionEnd", reason="exit") == ""
    counted = {c.event: (c.calls, c.failures) for c in read_counters(home / COUNTERS).events}
    assert counted == {
        "UserPromptSubmit": (2, 0), "PreCompact": (1, 0), "SessionStart": (1, 0),
        "SessionEnd": (1, 0),
    }  # fmt: skip
    assert [e.event for e in read_journal(home / JOURNAL)] == ["PreCompact", "SessionEnd"]
    # What a Stop hook starts in the background.
    run("claude", str(transcript), module="noctuary.agents.hooks")
    with closing(sqlite3.connect(StorePaths(dense_store.root).turns)) as db:
        assert "parcel label" in str(db.execute("SELECT * FROM parts").fetchall())


def test_a_hook_whose_agent_never_ends_its_event_ends_itself(home: Path) -> None:
    started = time.monotonic()
    process = subprocess.Popen(
        [*PROCESS, ENTRY, "hook", "--agent", "claude"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.wait(timeout=30) == 0
    assert time.monotonic() - started > 2, "it waited"
    process.communicate()


def test_processes_that_remember_at_once_lose_nothing(home: Path) -> None:
    code = "from noctuary import remember\nfor n in range(12): remember(f'{MARK} brought {n} keys')"
    for mark in "abc":
        (home / f"writer_{mark}.py").write_text(f"MARK = {mark!r}\n{code}")
    writers = [
        subprocess.Popen(
            [*PROCESS, f"writer_{mark}"], cwd=home,
            env={**os.environ, "PYTHONPATH": str(home)},
        )
        for mark in "abc"
    ]  # fmt: skip
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    with closing(sqlite3.connect(home / "memories.sqlite")) as db:
        ((rows, texts),) = db.execute(
            "SELECT count(*), count(DISTINCT content) FROM memories"
        ).fetchall()
    assert (rows, texts) == (36, 36)


def test_an_agent_asks_the_mcp_server(dense_store: Store) -> None:
    arguments = [*PROCESS[1:], ENTRY, "mcp", "--store", str(dense_store.root)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))

    async def ask() -> None:
        async with Client(server, read_timeout_seconds=60) as client:
            found = await call(client, "recall", query="spare key", k=1)
            assert found["memories"][0]["id"] == 101
            kept = await call(client, "remember", text="The bike stands in the shed.")
            assert kept["id"] == 1
            assert (await call(client, "status"))["counts"]["memories"] == 12

    asyncio.run(ask())
