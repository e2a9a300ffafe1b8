"""One event in, one answer and exit code 0 out, whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, cast

from noctuary.agents.events import (
    AGENTS,
    CONTEXT_TOKENS,
    MAX_PROMPT_CHARS,
    POST_COMPACT,
    PRE_COMPACT,
    PROMPT,
    SESSION_END,
    SESSION_START,
    STOP,
    TELLING,
    HookEvent,
    encode,
    parse_event,
    query_of,
)
from noctuary.agents.state import (
    HookPlaces,
    JournalEntry,
    SessionState,
    append_entry,
    hash_content,
    make_private,
    note_call,
    prune_sessions,
    read_session,
    session_file,
    write_session,
)
from noctuary.core.foreign_json import parse_json
from noctuary.sources.injected import worth_injecting

if TYPE_CHECKING:
    from noctuary.core.settings import HookSettings


# What handling an event needs of the outside, as one protocol.
#
# Implementations return failures and need not catch what they did not expect: handling an event
# does.


class Failure(NamedTuple):
    """What could not be done.

    Attributes:
        code: Stable and machine-readable, for example "no_snapshot" or "timeout".
        message: What was found and what to do, in one sentence.
    """

    code: str
    message: str


class Block(NamedTuple):
    """What goes into a prompt.

    Attributes:
        text: The tagged block; "" where nothing fits.
        memories: How many of the memories it holds: the first ones.
    """

    text: str
    memories: int


class HookWorld(Protocol):
    """The outside of one event.

    Attributes:
        agent: Who sent it: "claude" or "codex".
    """

    agent: str

    def settings(self) -> HookSettings | Failure:
        """Return the settings in force, or what is wrong with them."""
        ...

    def now_us(self) -> int:
        """Return the present, microseconds since the epoch."""
        ...

    def project_of(self, cwd: str) -> str:
        """Return the wing of a folder's project; "" for none."""
        ...

    def recall(
        self, query: str, *, k: int, user: str | None, wing: str | None, session_id: str | None
    ) -> Mapping[str, Any] | Failure:
        """Return what `RecallResult.to_json` gives, within the deadline."""
        ...

    def fetch(self, memory_ids: Sequence[str], *, user: str | None) -> Mapping[str, Any] | Failure:
        """Return memories by id in the shape of a recall's answer.

        Without those that are gone or not this user's.
        """
        ...

    def inject(self, result: Mapping[str, Any], *, max_tokens: int) -> Block:
        """Return the block of an answer's memories and put it on record."""
        ...

    def read_session(self, session_id: str) -> SessionState:
        """Return what was injected into a session."""
        ...

    def write_session(self, session_id: str, state: SessionState) -> None:
        """Remember what was injected into a session, if that is possible."""
        ...

    def size_bytes(self, path: str) -> int | None:
        """Return how long a file is; None where it cannot be looked at."""
        ...

    def append(self, entry: JournalEntry) -> Failure | None:
        """Append to the journal."""
        ...

    def capture(self, transcript_path: str) -> Failure | None:
        """Keep a transcript's new turns, without making the agent wait."""
        ...

    def prepare(self) -> None:
        """Do what a beginning session makes worth while: prune, start a server if configured."""
        ...

    def count(self, event: str, failure: Failure | None) -> bool:
        """Count a call; True where the user is to be told of the failure now."""
        ...


# One event in, one answer and exit code 0 out, whatever happens: what every hook event does.
#
#     UserPromptSubmit   memories that answer the prompt and are not before the model yet
#     SessionStart       after a compaction: what was injected before it, best first; else nothing
#     PreCompact         one line in the journal, nothing else
#     PostCompact        the same
#     Stop               a line in the journal, and the transcript's new turns are kept
#     SessionEnd         a line in the journal


BLOCKING_WARNINGS = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
"""Warnings of a recall after which there was nothing to answer from."""

MAX_MESSAGE_CHARS = 400
"""Characters of a message for the user; paths in it may be long."""


class Reply(NamedTuple):
    """What handling an event came to.

    Attributes:
        context: For the model; "" for nothing.
        failure: What could not be done, or None.
        is_counted: Whether there was anything to do: a skipped prompt is no success that would end
            an outage.
    """

    context: str = ""
    failure: Failure | None = None
    is_counted: bool = True


SKIPPED = Reply(is_counted=False)


def handle(event: object, world: HookWorld) -> tuple[dict[str, Any], int]:
    """Return what to print for an event, {} for nothing, and the exit code, which is 0.

    Never raises an `Exception`, whatever the event is and whatever the world does.

    Args:
        event: The JSON value that the agent sent, of any type.
        world: The outside.
    """
    found = parse_event(event)
    handler = _HANDLERS.get(found.name)
    if handler is None:
        return {}, 0
    try:
        reply = handler(found, world)
    except Exception as error:
        # Whatever it is, the agent must go on; the counters and `noctuary doctor` say what it was.
        reply = Reply(failure=Failure("internal", f"{type(error).__name__} in the hook"))
    message = _message(found.name, reply, world)
    return encode(found.name, reply.context, message), 0


def _message(event: str, reply: Reply, world: HookWorld) -> str:
    """Count the call; return what the user is told of its failure, "" for nothing."""
    if not reply.is_counted:
        return ""
    try:
        tell = world.count(event, reply.failure)
    except Exception:
        return ""
    if not tell or reply.failure is None or event not in TELLING:
        return ""
    said = " ".join(reply.failure.message.split())[:MAX_MESSAGE_CHARS]
    return f"noctuary could not recall: {said}. This is said once; `noctuary doctor` says more."


def _on_prompt(event: HookEvent, world: HookWorld) -> Reply:
    """Return the memories that answer a prompt and that the model has not before it."""
    query = query_of(event.prompt, event.source)
    if query is None:
        return SKIPPED
    settings = world.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)  # whose memories, and of which project, is not known
    wing = _wing(event, settings, world)
    if (event.is_subagent and not settings.in_subagents) or wing == "" or settings.memories == 0:
        return SKIPPED
    result = world.recall(
        query,
        k=settings.memories,
        user=settings.user or None,
        wing=wing,
        session_id=event.session_id or None,
    )
    failure = result if isinstance(result, Failure) else _failure_of(result)
    if failure is not None or isinstance(result, Failure):
        return Reply(failure=failure)
    if not settings.abstain:
        result = {**result, "answerability": None}  # without a judgement nothing is left out
    return Reply(_inject_new(event, settings, world, result))


def _inject_new(
    event: HookEvent, settings: HookSettings, world: HookWorld, result: Mapping[str, Any]
) -> str:
    """Return the block of what is new to the session, and remember it."""
    state = world.read_session(event.session_id)
    new = [
        memory
        for memory in worth_injecting(result)
        if not state.knows(memory)
        # What was said in this session is before the model, until it is compacted.
        and (state.compactions or not _is_of(memory, event.session_id))
    ]
    shown = {**result, "memories": new, "query": event.prompt[:MAX_PROMPT_CHARS]}
    block = world.inject(shown, max_tokens=_budget(settings.budget_tokens, world.agent))
    if block.memories:
        world.write_session(event.session_id, state.with_injected(new[: block.memories]))
    return block.text


def _on_session_start(event: HookEvent, world: HookWorld) -> Reply:
    """Return what a compaction took from the model; prepare for the prompts to come."""
    if event.is_subagent:
        return SKIPPED
    if event.source != "compact":
        world.prepare()
        # A session that is resumed still has what was injected into it; one that begins has asked
        # nothing yet, and memories that answer nothing only fill its context.
        return Reply()
    state = world.read_session(event.session_id).compacted()
    if not state.injected:
        world.write_session(event.session_id, state)
        return Reply()
    settings = world.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)
    best = state.best_first()
    result = world.fetch([i.memory_id for i in best], user=settings.user or None)
    if isinstance(result, Failure):
        world.write_session(event.session_id, state)
        return Reply(failure=result)
    scores = {(i.memory_id, i.text_hash): i.score for i in best}
    found = {_key(memory): memory for memory in _memories(result)}
    restored = [
        {**found[key], "final_score": score} for key, score in scores.items() if key in found
    ]
    budget = _budget(settings.restore_tokens, world.agent)
    block = world.inject({**result, "memories": restored, "query": ""}, max_tokens=budget)
    world.write_session(event.session_id, state.with_injected(restored[: block.memories]))
    return Reply(block.text)


def _on_compaction(event: HookEvent, world: HookWorld) -> Reply:
    return Reply(failure=_note(event, world, event.trigger))


def _on_end(event: HookEvent, world: HookWorld) -> Reply:
    return Reply(failure=_note(event, world, event.reason))


def _on_stop(event: HookEvent, world: HookWorld) -> Reply:
    failure = _note(event, world, "")
    settings = world.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)
    if settings.capture and event.transcript_path:
        failure = world.capture(event.transcript_path) or failure
    return Reply(failure=failure)


def _note(event: HookEvent, world: HookWorld, detail: str) -> Failure | None:
    size = world.size_bytes(event.transcript_path) if event.transcript_path else None
    return world.append(
        JournalEntry(
            at_us=world.now_us(),
            agent=world.agent,
            event=event.name,
            session_id=event.session_id,
            transcript_path=event.transcript_path,
            offset_bytes=size,
            cwd=event.cwd,
            detail=detail,
        )
    )


def _wing(event: HookEvent, settings: HookSettings, world: HookWorld) -> str | None:
    """Return the wing to ask, None for all, "" where there is none: then nothing is asked."""
    if settings.scope == "store":
        return None
    return world.project_of(event.cwd) if event.cwd else ""


def _failure_of(result: Mapping[str, Any]) -> Failure | None:
    """Return the warning after which a recall had nothing to answer from, or None."""
    for warning in cast("list[Mapping[str, Any]]", result.get("warnings") or ()):
        if warning.get("code") in BLOCKING_WARNINGS:
            return Failure(str(warning["code"]), str(warning.get("message", "")))
    return None


def _memories(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(cast("list[Mapping[str, Any]]", result.get("memories") or ()))


def _is_of(memory: Mapping[str, Any], session_id: str) -> bool:
    return bool(session_id) and memory.get("session_id") == session_id


def _key(memory: Mapping[str, Any]) -> tuple[str, str]:
    return str(memory.get("id")), hash_content(memory)


def _budget(tokens: int, agent: str) -> int:
    return min(tokens, CONTEXT_TOKENS.get(agent, tokens))


_HANDLERS: Mapping[str, Callable[[HookEvent, HookWorld], Reply]] = {
    PROMPT: _on_prompt,
    SESSION_START: _on_session_start,
    PRE_COMPACT: _on_compaction,
    POST_COMPACT: _on_compaction,
    STOP: _on_stop,
    SESSION_END: _on_end,
}


# Starting a process that a hook leaves behind.


def start_detached(module: str, arguments: Sequence[str]) -> bool:
    """Run a module of noctuary in a session of its own; tell whether it was started.

    It has no terminal and none of the hook's pipes, so that the agent does not wait for it. A file
    `json.py` in the agent's folder must not be imported (`-P`); it stays the working directory, as
    a store may be named relative to it.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    process.returncode = 0  # else its `__del__` complains that nobody waits for it: that is meant
    return True


# Starting the store's warm server from a hook, where `hook.start_server` says so.


RETRY_S = 60.0
"""Least time between two starts: a server that cannot run must not be tried with every prompt, and
one that is starting must not be started again. Shorter has a server back sooner."""

STAMP = "server_started"


def start_server(directory: Path, store: str | None) -> bool:
    """Start `noctuary serve` in the background, unless that was tried a moment ago.

    Args:
        directory: `HookPlaces.directory`; exists.
        store: As the hook was told; None means the configured or only one.

    Returns:
        Whether one was started. A second server of a store ends by itself (exit code 4).
    """
    stamp = directory / STAMP
    try:
        if abs(time.time() - stamp.stat().st_mtime) < RETRY_S:
            return False
    except OSError:
        pass
    try:
        stamp.touch(mode=0o600)
    except OSError:
        return False  # without it every prompt would start one
    return start_detached("noctuary.cli.main", ["serve", *(["--store", store] if store else [])])


# A recall that ends in time: from the store's warm server, else in this process.


COLD_GRACE_S = 1.5
"""How long after the deadline a cold process may still bring the lexical answer: it has to import
numpy and open the snapshot first. Longer keeps a prompt waiting, shorter leaves slow machines
without memories."""

_ENOUGH_S = 0.005
"""Time that is left at least when a server is asked: an answer takes a millisecond or two."""

TOO_SLOW = Failure("timeout", "there was no answer in time; `noctuary serve` keeps a store warm")


def recall_in_time(
    query: str, asked: Mapping[str, Any], *, store: str | None, until_s: float
) -> tuple[Mapping[str, Any] | Failure, bool]:
    """Return the answer to a query and whether a server gave it.

    Args:
        query: What is asked.
        asked: k, user, wing and session_id, as `noctuary.recall` takes them.
        store: Of which store; None means the configured or only one.
        until_s: The deadline, of `time.monotonic`. At it the answer is what there is: lexical, if
            the vectors have not been looked at. `COLD_GRACE_S` later it is a failure.
    """
    left_s = until_s - time.monotonic()
    if left_s > _ENOUGH_S:
        from noctuary.agents.client import ask

        answer = ask(query, **asked, store=store, deadline_ms=left_s * 1000)
        if answer is not None:
            return answer, True

    def recall_here() -> Mapping[str, Any]:
        from noctuary.recall.api import recall

        left_ms = max(0.0, (until_s - time.monotonic()) * 1000)
        return recall(query, **asked, store=store, deadline_ms=left_ms).to_json()

    return _in_time(recall_here, until_s + COLD_GRACE_S), False


def fetch_in_time(
    memory_ids: Sequence[str], user: str | None, *, store: str | None, until_s: float
) -> Mapping[str, Any] | Failure:
    """Return memories by id in the shape of an answer: store and memories.

    Args:
        memory_ids: As text.
        user: Whose recall it is.
        store: Of which store.
        until_s: The deadline, of `time.monotonic`; `COLD_GRACE_S` later it is a failure.
    """

    def fetch_here() -> Mapping[str, Any] | Failure:
        from noctuary.agents.fetching import fetch_memories
        from noctuary.core.errors import SnapshotMissingError, StoreError
        from noctuary.recall.engine import find_serving

        try:
            recaller = find_serving(store)[0].recaller
        except (StoreError, OSError, ValueError) as error:
            is_missing = isinstance(error, SnapshotMissingError)
            return Failure("no_snapshot" if is_missing else "store_unreadable", str(error))
        try:
            memories = fetch_memories(recaller.reader, memory_ids, user)
        except Exception as error:
            # Damage below the reach of the quick check raises whatever the step that meets it does.
            return Failure("snapshot_damaged", f"{type(error).__name__} in {recaller.snapshot_id}")
        return {"store": str(recaller.paths.root), "memories": memories, "warnings": []}

    return _in_time(fetch_here, until_s + COLD_GRACE_S)


def _in_time(
    work: Callable[[], Mapping[str, Any] | Failure], until_s: float
) -> Mapping[str, Any] | Failure:
    """Return what some work gives, or a failure where it takes too long: it is left behind then.

    The process ends without waiting for it (`process`), so nothing it holds outlives the hook.
    """
    # One query is too little work for numpy's threads to share: docs/decisions/0005.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    found: list[Mapping[str, Any] | Failure] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(Failure("internal", f"{type(error).__name__}: {error}"))

    worker = threading.Thread(target=run, name="noctuary-hook-recall", daemon=True)
    worker.start()
    worker.join(max(0.0, until_s - time.monotonic()))
    return found[0] if found else TOO_SLOW


# What handling an event does to the outside, for a real hook process.
#
# Everything beyond the standard library is imported where it is used: most events need none of it.


MAX_DEADLINE_S = 20.0
"""Longest deadline, whatever the settings say: Claude drops what a prompt's hook says at 30."""


class ProcessWorld:
    """The outside of one hook process.

    Attributes:
        agent: "claude" or "codex".
    """

    def __init__(
        self,
        agent: str,
        store: str | None,
        home: Path | None,
        started_s: float,
        give_more_time: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Look at nothing yet.

        Args:
            agent: Who sent the event.
            store: As `noctuary.recall` takes it; None means the configured or only one.
            home: Noctuary's home; None where it leads nowhere: then nothing is counted.
            started_s: When the process began, of `time.monotonic`.
            give_more_time: Told how many seconds after its begin the process may be killed, where
                the settings ask for more than the default.
        """
        self.agent = agent
        self._store = store
        self._home = home
        self._places = None if home is None else HookPlaces(home)
        self._started_s = started_s
        self._give_more_time = give_more_time
        self._settings: HookSettings | Failure | None = None

    def settings(self) -> HookSettings | Failure:
        """Return the settings in force, or what is wrong with them."""
        if self._settings is None:
            self._settings = self._read_settings()
        return self._settings

    def now_us(self) -> int:
        """Return the present, microseconds since the epoch."""
        return time.time_ns() // 1000

    def project_of(self, cwd: str) -> str:
        """Return the wing of a folder's project; "" for none."""
        from noctuary.sources.transcripts import project_of

        return project_of(cwd)

    def recall(
        self, query: str, *, k: int, user: str | None, wing: str | None, session_id: str | None
    ) -> Mapping[str, Any] | Failure:
        """Return the answer of the store's server, else of this process, within the deadline."""
        asked = {"k": k, "user": user, "wing": wing, "session_id": session_id}
        until_s = self._until_s()
        found, was_served = recall_in_time(query, asked, store=self._store, until_s=until_s)
        if not was_served:
            self._start_server()
        return found

    def fetch(self, memory_ids: Sequence[str], *, user: str | None) -> Mapping[str, Any] | Failure:
        """Return memories by id, from this process."""
        return fetch_in_time(memory_ids, user, store=self._store, until_s=self._until_s())

    def inject(self, result: Mapping[str, Any], *, max_tokens: int) -> Block:
        """Return the block of an answer's memories and put it on record."""
        from noctuary.context.inject import inject

        done = inject(result, max_tokens=max_tokens)
        return Block(done.text, done.memories)

    def read_session(self, session_id: str) -> SessionState:
        """Return what was injected into a session."""
        if self._places is None or not session_id:
            return SessionState()
        return read_session(session_file(self._places.sessions, self.agent, session_id))

    def write_session(self, session_id: str, state: SessionState) -> None:
        """Remember what was injected into a session, if that is possible."""
        if self._places is not None and session_id and make_private(self._places.directory):
            write_session(session_file(self._places.sessions, self.agent, session_id), state)

    def size_bytes(self, path: str) -> int | None:
        """Return how long a file is; None where it cannot be looked at."""
        try:
            return Path(path).stat().st_size
        except (OSError, ValueError):
            return None

    def append(self, entry: JournalEntry) -> Failure | None:
        """Append to the journal."""
        if self._places is None or not make_private(self._places.directory):
            return Failure("journal", "there is no directory for the journal")
        fault = append_entry(self._places.journal, entry._replace(store=self._store_directory()))
        return None if fault is None else Failure("journal", fault)

    def capture(self, transcript_path: str) -> Failure | None:
        """Keep a transcript's new turns in a process of its own."""
        from noctuary.agents.capturing import start_capture

        return start_capture(transcript_path, agent=self.agent, store=self._store)

    def prepare(self) -> None:
        """Prune the state of old sessions and start a server where that is configured."""
        if self._places is not None:
            prune_sessions(self._places.sessions)
        self._start_server()

    def count(self, event: str, failure: Failure | None) -> bool:
        """Count a call; True where the user is to be told of the failure now."""
        if self._places is None or not make_private(self._places.directory):
            return False
        return note_call(
            self._places.counters,
            self.agent,
            event,
            code=None if failure is None else failure.code,
            took_ms=(time.monotonic() - self._started_s) * 1000,
            now_s=time.time(),
            may_tell=event in TELLING,
        )

    def _store_directory(self) -> str:
        """Return which store the event is for, as far as that can be said without opening it."""
        from noctuary.core.errors import StoreError
        from noctuary.core.store import find_store

        try:
            return "" if self._home is None else str(find_store(self._store, home=self._home)[0])
        except (StoreError, OSError, ValueError):
            return ""

    def _until_s(self) -> float:
        settings = self.settings()
        deadline_ms = 0.0 if isinstance(settings, Failure) else settings.deadline_ms
        return self._started_s + min(deadline_ms / 1000, MAX_DEADLINE_S)

    def _read_settings(self) -> HookSettings | Failure:
        from noctuary.core.errors import ConfigError
        from noctuary.core.settings import Settings

        try:
            found = Settings.load(home=self._home).hook
        except (ConfigError, OSError) as error:
            return Failure("bad_settings", str(error))
        self._give_more_time(min(found.deadline_ms / 1000, MAX_DEADLINE_S))
        return found

    def _start_server(self) -> None:

        settings = self.settings()
        if self._places is None or isinstance(settings, Failure) or not settings.start_server:
            return
        if make_private(self._places.directory):
            start_server(self._places.directory, self._store)


def environment_home() -> Path | None:
    """Return noctuary's home, None where it leads nowhere."""
    from noctuary.core.errors import StoreError
    from noctuary.core.store import find_home

    try:
        return find_home(os.environ)
    except (StoreError, OSError, ValueError):
        return None


# The process around one hook event: it ends in time, with exit code 0, and prints all or nothing.


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
