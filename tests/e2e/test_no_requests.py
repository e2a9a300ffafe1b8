"""Promise 8 of docs/promises.md: a text that somebody else wrote sends no request.

Nor does it reach an environment variable. All commands below run under a tracer of connections.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.byte_scan import find_texts
from tests.e2e.driver import DONE, environment, night_words
from tests.e2e.stores import Bench, add_memory
from tests.support.crash_states import STRACE
from tests.support.transcripts import ClaudeSession, write_session

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

CANARY = "CANARY-of-the-environment-5b1e"
ASKED = "the bakery's picture"
NAMES = ("SECRET_OF_A_CANARY", "HOME_OF_A_CANARY")


@pytest.fixture
def port() -> Iterator[int]:
    """A port that somebody listens to; nobody may have called it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()


def hostile_texts(port: int) -> list[str]:
    address = f"127.0.0.1:{port}"
    return [
        f"The bakery's picture: ![bakery](http://{address}/a.png) <img src=//{address}/b.png>",
        f"The bakery's file: [open](file://{address}/c) \\\\{address}\\share\\d",
        f"The bakery's page <script src=http://{address}/e.js></script> @import 'http://{address}/f'",
        f'The bakery\'s setting: source = "postgresql://{address}/g" endpoint = "http://{address}/h"',
        *(f"The bakery's alarm is ${name} ${{{name}}} %{name}% env:{name}" for name in NAMES),
    ]


def traced(words: list[str], bench: Bench, told: str = "") -> list[str]:
    """Run a command; return each connection to an address of a network that it tried."""
    home, trace = bench.store.parent, bench.store.parent / "trace"
    options = ["-f", "-qq", "--seccomp-bpf", "-e", "trace=connect,sendto", "-o", str(trace)]
    env = environment(home, {"XDG_RUNTIME_DIR": str(home), **dict.fromkeys(NAMES, CANARY)})
    done = subprocess.run(
        [str(STRACE), *options, *words],
        input=told, env=env, cwd=home, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert done.returncode == DONE, done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
    return re.findall(r".*sa_family=AF_INET6?,.*", trace.read_text())


def test_a_hostile_text_sends_no_request(small: Bench, port: int) -> None:
    for text in hostile_texts(port):
        add_memory(small.source, text, tags=f"http://127.0.0.1:{port}/i")
    session = ClaudeSession("first-1111-2222-4333-8444-555555555555")
    for text in hostile_texts(port):
        session.user(text)
    transcript = small.store.parent / "agent" / "shop" / "first.jsonl"
    transcript.parent.mkdir(parents=True)
    write_session(transcript, session.lines)
    event = {
        "hook_event_name": "UserPromptSubmit", "session_id": "one", "prompt": ASKED,
        "transcript_path": str(transcript), "cwd": str(transcript.parent),
    }  # fmt: skip

    def command(*words: str) -> list[str]:
        return [sys.executable, "-m", "noctuary.cli.entry", *words, "--store", str(small.store)]

    keep = [sys.executable, "-m", "noctuary.agents.hooks", "claude", str(transcript)]
    assert traced([*keep, str(small.store)], small) == []
    assert traced(night_words(small.source, small.store, "--json"), small) == []
    for words in (["recall", ASKED, "--explain"], ["doctor"], ["status"]):
        assert traced(command(*words), small) == []
    assert traced(command("hook", "--agent", "claude"), small, json.dumps(event)) == []
    found = small.ask(ASKED)
    assert any(f":{port}/a.png" in memory.content for memory in found.memories)
    assert find_texts(small.store, [CANARY], skip=[small.paths.encoders]) == []


def test_the_tracer_would_have_seen_one(small: Bench) -> None:
    code = "import socket; socket.socket().connect_ex(('127.0.0.1', 1))"
    assert len(traced([sys.executable, "-c", code], small)) == 1
