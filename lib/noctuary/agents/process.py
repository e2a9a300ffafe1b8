"""The process around one hook event: it ends in time, with exit code 0, and prints all or nothing.

What belongs here: stdin, stdout, the clock that kills it, the catch-all. What does not: what the
event means (`handling`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from noctuary.agents.events import AGENTS
from noctuary.foreign_json import parse_json

if TYPE_CHECKING:
    from noctuary.agents.outside import ProcessWorld

MAX_EVENT_BYTES = 8_388_608
"""Longest event that is looked at: a prompt with a large file pasted into it. A longer one is read
to its end, so that the agent's pipe does not break, and answered with nothing."""

LIFETIME_S = 3.0
"""After this long the process ends, whatever it is doing: longer than the cold answer's deadline
and grace, shorter than any agent's own timeout for a prompt."""

_BEYOND_DEADLINE_S = LIFETIME_S - 0.25
"""The same for a longer deadline: what it has beyond it."""

_LAST_WORDS_S = 0.1
"""How long counting may take when the time is up."""

_CHUNK_BYTES = 1_048_576

USAGE = "usage: noctuary hook --agent claude|codex [--store STORE] < event.json"


class Options(NamedTuple):
    """The command line.

    Attributes:
        agent: "claude" or "codex".
        store: As `noctuary.recall` takes it, or None.
    """

    agent: str
    store: str | None


def run_hook(arguments: Sequence[str], started_s: float) -> NoReturn:
    """Answer the event on stdin and end the process, with exit code 0.

    Args:
        arguments: What follows `noctuary hook` on the command line.
        started_s: When the process began, of `time.monotonic`.
    """
    try:
        keep_standard_handles()
        watch = _Watch(started_s)
        options = parse_options(arguments)
        if options is None:
            os.write(2, f"{USAGE}\n".encode())
        else:
            _write(answer(read_event(0), options, started_s, watch))
    except BaseException:
        pass  # also an interrupt: whatever it is, the agent must go on
    # Not `sys.exit`: a recall that was left behind, and SQLite's handlers, would be waited for.
    os._exit(0)


def keep_standard_handles() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed.

    Else the next file that is opened takes the number, and what is meant for the agent is written
    into it.
    """
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


def parse_options(arguments: Sequence[str]) -> Options | None:
    """Return what the command line says; None where it names no agent that noctuary knows.

    Anything else on it is passed over: a hook that was installed for a newer noctuary still works.
    """
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if name in ("--agent", "--store"):
            found[name] = value if has_value else (rest.pop(0) if rest else "")
    agent = found.get("--agent", "")
    return Options(agent, found.get("--store") or None) if agent in AGENTS else None


def read_event(handle: int) -> bytes | None:
    """Return what an agent wrote to a pipe; None where that is more than `MAX_EVENT_BYTES`."""
    parts: list[bytes] = []
    size = 0
    while part := os.read(handle, _CHUNK_BYTES):
        size += len(part)
        if size <= MAX_EVENT_BYTES:
            parts.append(part)
    return b"".join(parts) if size <= MAX_EVENT_BYTES else None


def answer(raw: bytes | None, options: Options, started_s: float, watch: _Watch) -> bytes:
    """Return the line to print for an event, b"" for nothing.

    Args:
        raw: The event as it was sent; None for one that is too long.
        options: The command line.
        started_s: When the process began.
        watch: Ends the process when its time is up; told what it should count then.
    """
    event = _decode(raw)
    if event is None:
        return b""
    from noctuary.agents.handling import handle
    from noctuary.agents.outside import ProcessWorld, environment_home

    home = environment_home()
    world = ProcessWorld(options.agent, options.store, home, started_s, watch.allow)
    watch.last_words = lambda: _count_timeout(event, world)
    found, _ = handle(event, world)
    return json.dumps(found).encode("ascii") + b"\n" if found else b""


def _decode(raw: bytes | None) -> Any:
    """Return the JSON value of an event; None where it is none."""
    try:
        return None if raw is None else parse_json(raw)
    except ValueError:
        return None


def _count_timeout(event: object, world: ProcessWorld) -> None:
    from noctuary.agents.events import parse_event
    from noctuary.agents.recalling import TOO_SLOW

    found = parse_event(event)
    if found.name:
        world.count(found.name, TOO_SLOW)


def _write(line: bytes) -> None:
    """Print a line in one piece, as far as the system lets us."""
    while line:
        line = line[os.write(1, line) :]


class _Watch:
    """Ends the process when its time is up.

    Attributes:
        last_words: Called then, for `_LAST_WORDS_S` at most.
    """

    def __init__(self, started_s: float) -> None:
        self.last_words: Callable[[], None] | None = None
        self._started_s = started_s
        self._until_s = started_s + LIFETIME_S
        threading.Thread(target=self._run, name="noctuary-hook-watch", daemon=True).start()

    def allow(self, deadline_s: float) -> None:
        """Give the process more time, where its deadline is a longer one than usual."""
        until_s = self._started_s + deadline_s + _BEYOND_DEADLINE_S
        self._until_s = max(self._until_s, until_s)

    def _run(self) -> None:
        while (left_s := self._until_s - time.monotonic()) > 0:
            time.sleep(left_s)
        if self.last_words is not None:
            counting = threading.Thread(target=self.last_words, daemon=True)
            counting.start()
            counting.join(_LAST_WORDS_S)
        os._exit(0)
