"""The process boundary: real processes with real stdin and stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents.client import LIFETIME_S, MAX_EVENT_BYTES, parse_options
from noctuary.agents.state import COUNTERS, JOURNAL, read_counters, read_journal
from tests.support.hook_runner import NO_SERVER, Case, run_cases, run_installed
from tests.support.hook_shapes import AGENTS, stdout_faults
from tests.support.store import Store


def event(name: str = "UserPromptSubmit", **fields: Any) -> bytes:
    made = {"hook_event_name": name, "session_id": "s", "cwd": "/p", "transcript_path": None}
    if name == "UserPromptSubmit":
        made["prompt"] = "where is the spare key?"
    return json.dumps({**made, **fields}).encode()


def run_script(
    code: str, raw: bytes = b"", *arguments: str, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    """Run some code in a fresh Python that leaves as the installed command would."""
    known = {n: v for n, v in os.environ.items() if not n.startswith("NOCTUARY_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=raw,
        capture_output=True,
        env={**known, **NO_SERVER, **environ},
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_the_installed_command_answers_a_prompt(dense_store: Store, home: Path, agent: str) -> None:
    # Patient: what a busy machine has not found in time would come with the second prompt.
    patient = {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_DEADLINE_MS": "20000"}
    case = Case(agent, event(), patient)
    done = run_installed(case)
    assert done.code == 0
    assert stdout_faults(agent, "UserPromptSubmit", done.stdout) == []
    block = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert "- [101] 2026-01-02 (home/hall): The spare key hangs behind the blue door." in block
    assert run_installed(case).stdout == b"", "the second time the model has it already"
    (counted,) = read_counters(home / COUNTERS).events
    assert (counted.agent, counted.calls, counted.failures) == (agent, 2, 0)
    assert (home / "house" / "injected.sqlite").exists(), "on record, not to be stored again"


def test_it_prints_before_it_loads_the_secret_rules_and_records(
    dense_store: Store, home: Path
) -> None:
    code = """
import os, sys
from noctuary.agents import hooks
from noctuary.cli import entry
record, rules, steps = sys.argv[1], "noctuary.text.secrets", []
def look(line, tell=entry._print_line):
    steps.append([os.path.exists(record), rules in sys.modules])
    tell(line)
def end(code, leave=os._exit):
    steps.append([os.path.exists(record), rules in sys.modules])
    os.write(2, repr(steps).encode())
    leave(code)
entry._print_line, os._exit = look, end
entry.run_hook(["--agent", "claude"], entry.time.monotonic())
"""
    record = dense_store.paths.injections
    patient = {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_DEADLINE_MS": "20000"}
    done = run_script(code, event(), str(record), **patient)
    assert b"spare key" in done.stdout
    assert json.loads(done.stderr.lower()) == [[False, False], [True, True]]


@pytest.mark.parametrize("arguments", [(), ("--agent",), ("--agent", "vim"), ("extra", "--x")])
def test_a_wrong_command_line_says_so_on_stderr_and_stops_nobody(arguments: tuple[str]) -> None:
    code = f"import sys; from noctuary.cli.entry import main; sys.argv[1:] = {['hook', *arguments]}"
    done = run_script(f"{code}; main()", b"{}")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"usage: noctuary hook --agent claude|codex")


def test_options() -> None:
    assert parse_options(["--agent", "codex"]) == ("codex", None)
    assert parse_options(["--store=/s", "--new", "--agent=claude", "x"]) == ("claude", "/s")
    assert parse_options(["--agent", "claude", "--store"]) == ("claude", None)
    for wrong in (["--agent="], ["--store", "x"]):
        assert parse_options(wrong) is None


def test_help_is_the_usual_help() -> None:
    done = run_installed(Case("claude", b"", {}), arguments=("--help",))
    assert done.code == 0
    assert b"The exit code is always 0" in done.stdout


def run_handler(
    home: Path, *body: str, agent: str = "claude", before: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a hook process in which some lines of code handle the prompt."""
    lines = [
        "import os, threading, time",
        "from noctuary.agents import client, hooks",
        "from noctuary.cli import entry",
        "def handler(event, world):",
        *(f"    {line}" for line in body),
        "hooks._HANDLERS['UserPromptSubmit'] = handler",
        *before,
        f"entry.run_hook(['--agent', {agent!r}], time.monotonic())",
    ]
    return run_script("\n".join(lines), event(), NOCTUARY_HOME=str(home))


def test_a_hook_that_gets_no_end_of_stdin_ends_by_itself(home: Path) -> None:
    endless = ("client.LIFETIME_S = 0.4", "read, write = os.pipe()", "os.dup2(read, 0)")
    started = time.monotonic()
    done = run_handler(home, "pass", before=endless)
    assert (done.returncode, done.stdout) == (0, b"")
    assert 0.3 < time.monotonic() - started < LIFETIME_S


def test_a_hook_that_hangs_ends_in_time_and_counts_it(home: Path) -> None:
    """In the middle of its work, behind everything that could catch it."""
    done = run_handler(home, "time.sleep(60)", agent="codex", before=["hooks.LIFETIME_S = 0.4"])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (counted,) = read_counters(home / COUNTERS).events
    assert (counted.agent, counted.timeouts, counted.last_error_code) == ("codex", 1, "timeout")


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(3)", "MemoryError"])
def test_no_exception_gets_out(home: Path, error: str) -> None:
    done = run_handler(home, f"raise {error}")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"MemoryError in the hook" in done.stdout) is (error == "MemoryError")


def test_what_is_left_behind_is_not_waited_for(home: Path) -> None:
    started = time.monotonic()
    sleep = "threading.Thread(target=time.sleep, args=(60,)).start()"
    done = run_handler(home, sleep, "return hooks.Reply('context')")
    assert (done.returncode, done.stderr) == (0, b"")
    assert stdout_faults("claude", "UserPromptSubmit", done.stdout) == []
    assert b"context" in done.stdout
    assert time.monotonic() - started < 20


def test_nothing_is_printed_into_a_file_that_a_hook_holds_open(home: Path, tmp_path: Path) -> None:
    hold = f"held = open({str(tmp_path / 'file')!r}, 'w')"
    reply = "return hooks.Reply('context')"
    done = run_handler(home, "global held", hold, reply, before=["os.close(1)"])
    assert done.returncode == 0
    assert (tmp_path / "file").read_bytes() == b""


def test_no_file_takes_the_place_of_a_closed_stdout(tmp_path: Path) -> None:
    code = f"""
import os
from noctuary.agents.client import keep_standard_handles
os.close(0); os.close(1)
keep_standard_handles()
opened = os.open({str(tmp_path / "file")!r}, os.O_RDWR | os.O_CREAT)
os.write(1, b"into nothing")
os._exit(opened)
"""
    assert run_script(code).returncode >= 3
    assert (tmp_path / "file").read_bytes() == b""


def test_an_event_that_is_too_long_is_read_and_passed_over(plain_store: Store, home: Path) -> None:
    environ = {"NOCTUARY_HOME": str(home)}
    long = event(x="x" * MAX_EVENT_BYTES)
    just = event(x="x" * (MAX_EVENT_BYTES - len(event(x=""))))
    assert len(just) == MAX_EVENT_BYTES
    over, within = run_cases([Case("claude", long, environ), Case("claude", just, environ)])
    assert (over.code, over.stdout) == (0, b"")
    assert b"additionalContext" in within.stdout


def test_an_outage_is_told_once_and_again_after_it_was_over(plain_store: Store, home: Path) -> None:
    case = Case("claude", event(), {"NOCTUARY_HOME": str(home)})
    pointer = home / "house" / "CURRENT"
    published = pointer.read_bytes()
    pointer.unlink()
    broken = list(run_cases([case] * 3))
    pointer.write_bytes(published)
    (works,) = run_cases([case])
    pointer.unlink()
    again = list(run_cases([case] * 2))
    told = [b"systemMessage" in done.stdout for done in (*broken, works, *again)]
    assert told == [True, False, False, False, True, False]
    assert b"noctuary nightly" in broken[0].stdout


def test_a_session_from_its_first_prompt_over_a_compaction_to_its_end(
    dense_store: Store, home: Path, tmp_path: Path
) -> None:
    transcript = tmp_path / "s.jsonl"
    transcript.write_text("x" * 1_234)
    shared = {"transcript_path": str(transcript)}
    environ = {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_CAPTURE": "false"}
    environ["NOCTUARY_HOOK_MEMORIES"] = "2"
    events = [
        event("SessionStart", source="startup", **shared),
        event(**shared),
        event(**shared, prompt="and what about the Atlas migration?"),
        event("Stop", **shared),
        event("PreCompact", trigger="auto", **shared),
        event("PostCompact", trigger="auto", compact_summary="x", **shared),
        event("SessionStart", source="compact", **shared),
        event(**shared),
        event("SessionEnd", reason="logout", **shared),
    ]
    done = list(run_cases(Case("claude", raw, environ) for raw in events))
    assert [bool(d.stdout) for d in done] == [
        False, True, True, False, False, False, True, False, False,
    ]  # fmt: skip
    restored = json.loads(done[6].stdout)["hookSpecificOutput"]
    assert restored["hookEventName"] == "SessionStart"
    for text in ("The spare key hangs", "Atlas"):
        assert text in restored["additionalContext"]
    entries = read_journal(home / JOURNAL)
    assert [e.event for e in entries] == ["Stop", "PreCompact", "PostCompact", "SessionEnd"]
    assert {(e.transcript_path, e.offset_bytes) for e in entries} == {(str(transcript), 1_234)}


def test_nothing_of_another_user_is_injected_or_restored(dense_store: Store, home: Path) -> None:
    own = {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_USER": "ana"}
    other = {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_USER": "ben"}
    ask = event(prompt="what does Ana say about the locker code of the gym?")
    compact = event("SessionStart", source="compact")
    first, _, restored = run_cases(
        [Case("claude", ask, own), Case("claude", ask, other), Case("claude", compact, other)]
    )
    private = [r for r in _contents(dense_store) if r[1] == "ana"]
    assert private
    shown = [text for text, _ in private if text.encode()[:40] in first.stdout]
    assert shown, "the owner sees it"
    assert not [text for text, _ in private if text.encode()[:40] in restored.stdout]


def test_a_hook_loads_what_it_needs(dense_store: Store, home: Path) -> None:
    """A compaction is journalled without settings; a prompt is answered without numpy."""
    code = """
import os, sys, time
def leave(code):
    os.write(2, "\\n".join(sorted(sys.modules)).encode())
    os.kill(os.getpid(), 9)
os._exit = leave
sys.argv = ["noctuary", "hook", "--agent", "claude"]
from noctuary.cli.entry import main
main()
"""
    loaded = {
        name: set(run_script(code, raw, NOCTUARY_HOME=str(home)).stderr.decode().split())
        for name, raw in (("compact", event("PreCompact")), ("prompt", event()))
    }
    assert "noctuary.agents.hooks" in loaded["compact"]
    assert not loaded["compact"] & {"numpy", "click", "sqlite3", "noctuary.core.settings"}
    assert not {"noctuary.context.inject"} & loaded["compact"], "it injects nothing"
    assert "noctuary.recall.words" in loaded["prompt"]
    assert not loaded["prompt"] & {"numpy", "click", "dataclasses", "_hashlib", "asyncio"}


def _contents(store: Store) -> list[tuple[str, str | None]]:
    from noctuary.recall.engine import Recaller

    reader = Recaller.open(store.root).reader
    rows = reader.describe(range(reader.count))
    return [(row["content"], row["user"]) for row in rows.values()]
