"""What each event of an agent does, and the process of an event that no server answers.

UserPromptSubmit   memories that answer the prompt and are not before the model yet
SessionStart       after a compaction: what was injected before it, best first; else nothing
PreCompact         one line in the journal, nothing else
PostCompact        the same
Stop               a line in the journal, and the transcript's new turns are kept
SessionEnd         the same: some agents end without a Stop

Everything beyond the standard library is imported where it is used: most events need none of it.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import json
import math
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from noctuary.agents.client import (
    HAS_SERVERS,
    LIFETIME_S,
    PROMPT,
    SESSION_START,
    TELLING,
    find_store,
    plain_home,
)
from noctuary.agents.state import (
    COUNTERS,
    HOOKS,
    JOURNAL,
    SESSIONS,
    JournalEntry,
    SessionState,
    append_entry,
    find_parent,
    key_of,
    make_private,
    note_call,
    note_resumed,
    prune_sessions,
    read_session,
    session_file,
    transcripts_in,
    write_session,
)
from noctuary.core.foreign_json import parse_json

if TYPE_CHECKING:
    from noctuary.core.settings import HookSettings, Settings, TranscriptSettings
    from noctuary.recall.query import Mask
    from noctuary.recall.reader import SnapshotReader
    from noctuary.recall.words import WordRecaller

# The event as an agent sends it, read without trusting any of it.
#
# Shapes: Claude's `BaseHookInput` and its events (npm @anthropic-ai/claude-agent-sdk 0.3,
# sdk.d.ts); Codex's `*.command.input.schema.json` (openai/codex, codex-rs/hooks/schema/generated).
# The fields used here have the same names in both.

RESUME, FORK = "resume", "fork"  # sources of a session's start
PRE_COMPACT = "PreCompact"
POST_COMPACT = "PostCompact"
STOP = "Stop"
SESSION_END = "SessionEnd"

_BEYOND_S = 10**9  # no session is idle for longer
MAX_FIELD_CHARS = 4_096  # of a field besides the prompt; a longer one is no path and no id


class HookEvent(NamedTuple):
    """The fields of an event that noctuary uses; "" if missing or of another type."""

    name: str = ""
    session_id: str = ""
    transcript_path: str = ""  # Codex may have none
    cwd: str = ""
    prompt: str = ""
    source: str = ""  # who wrote a prompt; how a session starts ("compact", "resume", ...)
    trigger: str = ""  # of a compaction: manual or auto
    reason: str = ""  # of an end of session
    is_subagent: bool = False
    idle_s: float | None = None  # of a session that goes on: since its agent's last answer


def parse_event(value: object) -> HookEvent:
    """Return the event that a JSON value describes; one without a name where it describes none."""
    raw = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    name = raw.get("hook_event_name")
    if not isinstance(name, str) or name not in _HANDLERS:
        return HookEvent()
    texts = {field: raw.get(field) for field in HookEvent._fields[1:-2]}
    return HookEvent(
        name,
        **{
            # Without lone surrogates: JSON can write them, no file or database takes them.
            field: text.encode("utf-8", "replace").decode("utf-8")
            for field, text in texts.items()
            if isinstance(text, str)
            if field == "prompt" or (len(text) <= MAX_FIELD_CHARS and "\0" not in text)
        },
        is_subagent=raw.get("agent_id") not in (None, ""),
        idle_s=_read_seconds(raw.get("seconds_since_last_response")),
    )


def _read_seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _BEYOND_S:
        return None
    return float(value)


MIN_SIGNS = 4  # letters and digits of a prompt that is looked up, wide ones twice: not "ok", "yes"
MAX_QUERY_CHARS = 4_000  # of a longer prompt its two ends, where people put their question
MAX_PROMPT_CHARS = 200_000  # of a prompt that are looked at at all
# Claude's names of prompts that no person wrote; those of /loop and of schedules, one did.
MACHINE_SOURCES = frozenset({"system", "poll_event"})

_COMMAND = r"/[\w:.-]+(?:\s|\Z)"
_FIRST_WIDE = "\u2e80"


def query_of(prompt: str, source: str = "") -> str | None:
    """Return the query for a prompt, or None if it is not worth a recall."""
    # Not worth it: a machine's message, a slash command, fewer than `MIN_SIGNS` signs. Blocks that
    # noctuary injected earlier are cut out.
    if source in MACHINE_SOURCES:
        return None
    from noctuary.sources.injected import cut_blocks, is_machine_made

    if is_machine_made(prompt):
        return None
    text = cut_blocks(prompt[:MAX_PROMPT_CHARS]).text.strip()
    signs = islice(filter(str.isalnum, text), MIN_SIGNS)
    if re.match(_COMMAND, text) or sum(1 + (sign >= _FIRST_WIDE) for sign in signs) < MIN_SIGNS:
        return None
    if len(text) <= MAX_QUERY_CHARS:
        return text
    half = (MAX_QUERY_CHARS - 1) // 2
    return f"{text[:half]}\n{text[-half:]}"


# What every event does. The outside is `HookProcess`, which tests replace by one in memory.


class Failure(NamedTuple):
    """A failed step: a stable code, and a sentence with the remedy."""

    code: str
    message: str


class Reply(NamedTuple):
    """What handling an event came to."""

    context: str = ""
    failure: Failure | None = None
    is_counted: bool = True  # a skipped prompt is no success that would end an outage


SKIPPED = Reply(is_counted=False)

Answer = Mapping[str, Any]  # as `RecallResult.to_json` returns it
Memory = Mapping[str, Any]  # one of its memories

# Asked for where some of the first say the same: some tools keep forty observations of one prompt.
MAX_CANDIDATES = 64

# Warnings of a recall after which there was nothing to answer from.
BLOCKING_WARNINGS = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
MAX_MESSAGE_CHARS = 400  # of a message for the user; paths in it may be long
# What an agent takes whole, at most: Codex cuts above some 2,500 tokens, Claude above 10,000
# characters, which the block's own limit keeps.
CONTEXT_TOKENS = {"claude": 10_000, "codex": 2_400}


def handle(value: object, process: "HookProcess") -> dict[str, Any]:
    """Return the JSON to print for an event, {} for nothing; never raises an `Exception`."""
    # One form serves both agents and cannot block either: only fields of both schemas
    # (Claude's `SyncHookJSONOutput`; Codex's `*.command.output.schema.json`).
    event = parse_event(value)
    if not event.name:
        return {}
    process.event_name = event.name
    try:
        reply = _HANDLERS[event.name](event, process)
    except Exception as error:
        # The agent must go on; the counters and `noctuary doctor` name the error.
        reply = Reply(failure=Failure("internal", f"{type(error).__name__} in the hook"))
    message = ""
    with suppress(Exception):
        if reply.is_counted and process.count(event.name, reply.failure) and reply.failure:
            said = " ".join(reply.failure.message.split())[:MAX_MESSAGE_CHARS]
            message = f"noctuary could not recall: {said}. This is said once; `noctuary doctor` "
            message += "says more."
    if event.name not in TELLING or not (reply.context or message):
        return {}
    from noctuary.text.marks import visible

    answer: dict[str, Any] = {}
    if reply.context:
        told = {"hookEventName": event.name, "additionalContext": visible(reply.context)}
        answer["hookSpecificOutput"] = told
    if message:
        answer["systemMessage"] = visible(message)
    return answer


def _on_prompt(event: HookEvent, process: "HookProcess") -> Reply:
    """Return the memories that answer a prompt and that the model has not before it."""
    query = query_of(event.prompt, event.source)
    if query is None:
        return SKIPPED
    settings = process.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)  # whose memories, and of which project, is not known
    wing, person = None, settings.scope == "person"
    if settings.scope != "store":
        wing = process.wing_of(event.cwd) if event.cwd else ""  # of no project: the person's alone
    is_nothing = (wing == "" and not person) or settings.memories == 0
    if is_nothing or (event.is_subagent and not settings.in_subagents):
        return SKIPPED
    asked: dict[str, Any] = {"user": settings.user or None, "wing": wing}
    asked |= {"person": True} if person else {}
    asked["session_id"] = event.session_id or None
    result = process.recall(query, k=settings.memories, **asked)
    if isinstance(result, Failure):
        return Reply(failure=result)
    for warning in result.get("warnings") or ():
        if warning.get("code") in BLOCKING_WARNINGS:
            return Reply(failure=Failure(str(warning["code"]), str(warning.get("message", ""))))
        process.is_cut |= str(warning.get("code")).startswith("deadline_")

    return Reply(_inject_new(event, settings, process, query, asked, result))


def _inject_new(
    event: HookEvent,
    settings: "HookSettings",
    process: "HookProcess",
    query: str,
    asked: Mapping[str, Any],
    result: Answer,
) -> str:
    """Return the block of memories that are new to the session, and remember them."""
    from noctuary.context.inject import distinct
    from noctuary.context.render import held_back, worth_injecting

    state = process.continue_session(event)

    def is_known(memory: Mapping[str, Any]) -> bool:
        # Turns of this session are in the model's context until a compaction.
        is_said = bool(event.session_id) and memory.get("session_id") == event.session_id
        return state.knows(memory) or (is_said and not state.compactions)

    def worth(answer: Answer) -> list[Mapping[str, Any]]:
        # Without a judgement none is below a bar.
        judged = answer if settings.abstain else {**answer, "answerability": None}
        return [m for m in worth_injecting(judged) if held_back(m, settings.origins) is None]

    found = worth(result)
    kept = distinct(found, is_known=is_known)
    if len(kept) < len(found) and process.has_time():
        # Some are repeats, so lower ranks move up. This is no further question of the
        # user, so its results do not count as used.
        wider = process.recall(query, k=MAX_CANDIDATES, **asked, dry_run=True)
        more = [] if isinstance(wider, Failure) else worth(wider)
        ids = {memory.get("id") for memory in found}
        found += [memory for memory in more if memory.get("id") not in ids]
        kept = distinct(found, settings.memories, is_known)
    new = [memory for memory in kept if not is_known(memory)]
    store, prompt = result.get("store"), event.prompt[:MAX_PROMPT_CHARS]
    text, shown, tokens = _make_block(process, new, settings.budget_tokens, store, prompt)
    if shown:
        process.write_session(event.session_id, state.with_injected(shown, tokens))
    return text


def _make_block(
    process: "HookProcess", memories: Sequence[Memory], budget: int, store: Any, query: str = ""
) -> tuple[str, Sequence[Memory], int]:
    """Return a block, its memories and its tokens; it goes on record once the agent has it."""
    from noctuary.context.inject import make_block
    from noctuary.text.marks import estimate_tokens

    block = make_block(memories, max_tokens=min(budget, CONTEXT_TOKENS[process.agent]))
    shown = memories[: block.memories]
    process.unrecorded = (store, shown, query)
    return block.text, shown, estimate_tokens(block.text)


def _on_session_start(event: HookEvent, process: "HookProcess") -> Reply:
    """Restore the memories that a compaction removed; otherwise only prepare."""
    if event.is_subagent:
        return SKIPPED
    if event.source != "compact":
        process.prepare()
        process.begin_session(event)
        # A session that is resumed still has what was injected into it; one that begins has asked
        # nothing yet, and memories that answer nothing only fill its context.
        return Reply()
    state = process.read_session(event.session_id).compacted()
    if not state.injected:
        process.write_session(event.session_id, state)
        return Reply()
    settings = process.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)
    from noctuary.context.inject import distinct
    from noctuary.context.render import held_back

    best = state.best_first()
    result = process.fetch([i.memory_id for i in best], user=settings.user or None)
    if isinstance(result, Failure):
        process.write_session(event.session_id, state)
        return Reply(failure=result)
    found = {key_of(m): m for m in result.get("memories") or ()}
    known = ({**found[key], "final_score": i.score} for i in best if (key := i[:2]) in found)
    restored = distinct([m for m in known if held_back(m, settings.origins) is None])
    budget = settings.restore_tokens
    text, shown, tokens = _make_block(process, restored, budget, result.get("store"))
    process.write_session(event.session_id, state.with_injected(shown, tokens))
    return Reply(text)


def _on_note(event: HookEvent, process: "HookProcess") -> Reply:
    return Reply(failure=process.journal(event))


def _on_stop(event: HookEvent, process: "HookProcess") -> Reply:
    failure = process.journal(event)
    settings = process.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)
    if settings.capture and event.transcript_path:
        failure = process.capture(event.transcript_path) or failure
    return Reply(failure=failure)


_HANDLERS: "Mapping[str, Callable[[HookEvent, HookProcess], Reply]]" = {
    PROMPT: _on_prompt,
    SESSION_START: _on_session_start,
    PRE_COMPACT: _on_note,
    POST_COMPACT: _on_note,
    STOP: _on_stop,
    SESSION_END: _on_stop,
}

# The outside of an event, for a real process.

MAX_DEADLINE_S = 20.0  # upper limit for the setting: Claude drops a prompt hook's output after 30
_BEYOND_DEADLINE_S = LIFETIME_S - 0.25  # its life beyond a longer deadline
_LAST_WORDS_S = 0.1  # how long counting may take when the time is up
COLD_GRACE_S = 1.5  # for a cold process, which imports numpy: longer keeps a prompt waiting

TOO_SLOW = Failure("timeout", "there was no answer in time; `noctuary serve` keeps a store warm")
_LOOK_S = 0.02  # for a writer of the turns, whose projects are looked up
RETRY_S = 60.0  # between two starts: a server that cannot run is not tried with every prompt
STAMP = f"{HOOKS}/server_started"


class HookProcess:
    """The process of one event. Returns failures; whatever it raises, `handle` catches."""

    def __init__(self, agent: str, store: str | None, home: Path | None, started_s: float) -> None:
        """Look at nothing yet."""
        # A store is as `noctuary.recall` takes it; a home of None leads nowhere: then nothing is
        # counted. `started_s` is of `time.monotonic`.
        self.give_up_s = math.inf  # after it nothing is kept: another process answers by then
        self.agent = agent
        self.event_name = ""
        self.is_cut = False  # whether the deadline cut the answer short
        self.lacks_server = False  # whether one would have answered this event, or will the next
        self.unrecorded: tuple[Any, Sequence[Memory], str] | None = None  # store, memories, query
        self.lifetime_s = LIFETIME_S
        self._store = store
        self._home = home
        self._started_s = started_s
        self._settings: HookSettings | Failure | None = None
        self._loaded: Settings | None = None  # of which those are a part
        self._words: WordRecaller | None = None  # opened with the first question
        self.wings: tuple[str, ...] = ()  # known with the settings

    def settings(self) -> "HookSettings | Failure":
        """Return the settings in force, or a failure that names their faults."""
        if self._settings is None:
            from noctuary.core.errors import ConfigError
            from noctuary.core.settings import Settings

            try:
                loaded = Settings.load(home=self._home)
                self._loaded = loaded
                found, self.wings = loaded.hook, loaded.transcripts.wings
                beyond_s = min(found.deadline_ms / 1000, MAX_DEADLINE_S) + _BEYOND_DEADLINE_S
                self.lifetime_s = max(self.lifetime_s, beyond_s)
                self._settings = found
            except (ConfigError, OSError) as error:
                self._settings = Failure("bad_settings", str(error))
        return self._settings

    def wing_of(self, folder: str) -> str:
        """Return the wing of a folder: from the settings, otherwise from its turns."""
        from noctuary.core.store import StorePaths
        from noctuary.sources.projects import wing_in_settings, wing_of

        turns = StorePaths(Path(self._store_directory() or os.devnull)).turns
        return wing_in_settings(folder, self.wings) or wing_of(folder, turns, _LOOK_S)

    def until_s(self) -> float:
        """Return the deadline of an answer, of `time.monotonic`."""
        settings = self.settings()
        deadline_ms = 0.0 if isinstance(settings, Failure) else settings.deadline_ms
        return self._started_s + min(deadline_ms / 1000, MAX_DEADLINE_S)

    def has_time(self) -> bool:
        """Say whether an answer may still be asked for."""
        return time.monotonic() < self.until_s()

    def recall(self, query: str, **asked: Any) -> Answer | Failure:
        """Return an answer from here: no server gave one."""
        # By words, which takes a third of the time. Where only the whole recall may answer, it
        # returns at the deadline what it has; `COLD_GRACE_S` later it is a failure.
        until_s = self.until_s()

        def recall_here() -> Answer:
            if (by_words := self._recall_by_words(query, asked)) is not None:
                return by_words
            from noctuary.recall.api import recall

            left_ms = max(0.0, (until_s - time.monotonic()) * 1000)
            return recall(query, **asked, store=self._store, deadline_ms=left_ms).to_json()

        self.lacks_server = True
        return _in_time(recall_here, until_s + COLD_GRACE_S)

    def _recall_by_words(self, query: str, asked: Mapping[str, Any]) -> Answer | None:
        """Return an answer by words alone; None where something asks for more than words."""
        from noctuary.recall.words import WordRecaller

        directory, settings = self._store_directory(), self._loaded
        if not directory or settings is None:
            return None
        try:
            if self._words is None:
                self._words = WordRecaller(Path(directory), settings)
            found = self._words.recall(query, **asked)
        except Exception:
            return None  # the whole recall says what is wrong
        return None if found is None else found.to_json()

    def fetch(self, memory_ids: Sequence[str], *, user: str | None) -> Answer | Failure:
        """Return memories by id, without those that are gone or another user's, as an answer."""

        def fetch_here() -> Answer | Failure:
            from noctuary.core.errors import SnapshotMissingError, StoreError
            from noctuary.recall.api import find_serving

            try:
                recaller = find_serving(self._store)[0]
            except (StoreError, OSError, ValueError) as error:
                is_missing = isinstance(error, SnapshotMissingError)
                return Failure("no_snapshot" if is_missing else "store_unreadable", str(error))
            try:
                memories = fetch_memories(recaller.reader, memory_ids, user)
            except Exception as error:
                # Damage below the reach of the quick check raises anything.
                what = f"{type(error).__name__} in {recaller.snapshot_id}"
                return Failure("snapshot_damaged", what)
            return {"store": str(recaller.paths.root), "memories": memories, "warnings": []}

        return _in_time(fetch_here, self.until_s() + COLD_GRACE_S)

    def record_injection(self) -> None:
        """Record hashes of the injected memories in the store."""
        if self.unrecorded is None:
            return
        from noctuary.context.inject import record_block

        with suppress(Exception):
            record_block(*self.unrecorded)

    def read_session(self, session_id: str) -> SessionState:
        """Return the memories injected into a session."""
        if self._home is None or not session_id:
            return SessionState()
        return read_session(session_file(self._home / SESSIONS, self.agent, session_id))

    def begin_session(self, event: HookEvent) -> None:
        """Note that a session begins or is resumed; a fork starts with its parent's memories."""
        if event.session_id and not self.is_known(event.session_id):
            state = self._read_parent(event) if event.source == FORK else SessionState()
            self.write_session(event.session_id, state)
        if event.source == RESUME and (home := self._made_home()):
            note_resumed(home / SESSIONS, self.agent, event.transcript_path, event.session_id)

    def continue_session(self, event: HookEvent) -> SessionState:
        """Return the memories injected into a session, for a new fork those of its parent."""
        # Claude Code 2.1.197 reports a fork's start under its parent's id.
        if self._home is None or not event.session_id or self.is_known(event.session_id):
            return self.read_session(event.session_id)
        return self._read_parent(event)

    def is_known(self, session_id: str) -> bool:
        """Say whether a session began, or asked, before."""
        home = self._home
        return home is not None and session_file(home / SESSIONS, self.agent, session_id).exists()

    def _read_parent(self, event: HookEvent) -> SessionState:
        home = self._home
        parent = home and find_parent(
            home / SESSIONS, self.agent, event.transcript_path, event.idle_s
        )
        # Its context was paid for in the parent; what is asked anew counts here.
        return self.read_session(parent)._replace(spent=()) if parent else SessionState()

    def write_session(self, session_id: str, state: SessionState) -> None:
        """Write the state of a session, if that is possible."""
        if session_id and self._is_awaited() and (home := self._made_home()):
            write_session(session_file(home / SESSIONS, self.agent, session_id), state)

    def journal(self, event: HookEvent) -> Failure | None:
        """Append an event to the journal, with the store and how long the transcript is now."""
        home = self._made_home()
        if home is None:
            return Failure("journal", "there is no directory for the journal")
        size: int | None = None
        with suppress(OSError, ValueError):
            size = os.stat(event.transcript_path).st_size  # noqa: PTH116 ("" is no path, not ".")
        entry = JournalEntry(
            at_us=time.time_ns() // 1000,
            agent=self.agent,
            event=event.name,
            session_id=event.session_id,
            transcript_path=event.transcript_path,
            offset_bytes=size,
            cwd=event.cwd,
            detail=event.trigger or event.reason,
            store=self._store_directory(),
        )
        fault = append_entry(home / JOURNAL, entry)
        return None if fault is None else Failure("journal", fault)

    def capture(self, transcript_path: str) -> Failure | None:
        """Copy a transcript's new turns in a background process."""
        try:
            if not stat.S_ISREG(Path(transcript_path).stat().st_mode):
                return None
        except (OSError, ValueError):
            return None
        store = [self._store] if self._store else []
        path = str(Path(transcript_path).absolute())
        if start_detached("noctuary.agents.hooks", [self.agent, path, *store]):
            return None
        return Failure("capture", "no process could be started to keep the session's turns")

    def prepare(self) -> None:
        """Prune the state of old sessions; the first prompt is to meet a server."""
        if self._home is not None:
            prune_sessions(self._home / SESSIONS)
        self.lacks_server = True

    def count(self, event: str, failure: Failure | None) -> bool:
        """Count a call; return whether to tell the user of the failure now."""
        home = self._made_home() if self._is_awaited() else None
        code = None if failure is None else failure.code
        took_ms = (time.monotonic() - self._started_s) * 1000
        tells = event in TELLING
        return home is not None and note_call(
            home / COUNTERS, self.agent, event,
            code=code, took_ms=took_ms, now_s=time.time(), may_tell=tells, is_cut=self.is_cut,
        )  # fmt: skip

    def end_in_time(self) -> None:
        """End the process when its time is up, and count that."""
        while (left_s := self._started_s + self.lifetime_s - time.monotonic()) > 0:
            time.sleep(left_s)
        if self.event_name:
            counting = threading.Thread(target=self.count, args=(self.event_name, TOO_SLOW))
            counting.daemon = True
            counting.start()
            counting.join(_LAST_WORDS_S)
        os._exit(0)

    def start_server(self) -> None:
        """Start `noctuary serve` in the background, unless that was tried a moment ago."""
        settings = self.settings() if self.lacks_server and HAS_SERVERS else None
        if settings is None or isinstance(settings, Failure) or not settings.start_server:
            return
        home = self._made_home()
        if home is None or not self._store_directory():
            return
        stamp = home / STAMP
        try:
            if stamp.exists() and abs(time.time() - stamp.stat().st_mtime) < RETRY_S:
                return
            stamp.touch(mode=0o600)
        except OSError:
            return  # without it every prompt would start one
        store = ["--store", self._store] if self._store else []
        start_detached("noctuary.cli.main", ["serve", *store])

    def _made_home(self) -> Path | None:
        """Return the home for the hooks' files, or None if it cannot be created."""
        home = self._home
        return home if home is not None and make_private(home / HOOKS) else None

    def _is_awaited(self) -> bool:
        return time.monotonic() < self.give_up_s

    def _store_directory(self) -> str:
        """Return the store directory that the event is for, without opening it."""
        try:
            found = find_store(self._store)
        except (OSError, ValueError, RuntimeError):
            return ""
        return found[0] if found else ""


def environment_home() -> Path | None:
    """Return noctuary's home, None where it leads nowhere."""
    if (plain := plain_home()) is not None:
        return Path(plain).absolute()
    from noctuary.core.errors import StoreError
    from noctuary.core.store import find_home

    try:
        return find_home()
    except (StoreError, OSError, ValueError):
        return None


def fetch_memories(
    reader: "SnapshotReader", memory_ids: Sequence[str], user: str | None
) -> list[dict[str, Any]]:
    """Return memories and summaries that a user may see, as `to_json` names their fields."""
    from noctuary.recall.query import Scope, build_mask
    from noctuary.text.marks import iso

    mask, _ = build_mask(Scope(user=user), reader.facets, reader.created_at_us)
    positions = visible_positions(reader, mask, memory_ids)
    rows, ids = reader.describe(positions), reader.public_ids(positions)
    fields = ("content", "category", "wing", "room", "session_id", "user", "origin")
    return [
        {
            "id": ids[p],
            "created_at": iso(rows[p]["created_at_us"]),
            **{n: rows[p][n] for n in fields},
        }
        for p in positions
    ]


def visible_positions(
    reader: "SnapshotReader", mask: "Mask | None", memory_ids: Sequence[str]
) -> list[int]:
    """Return positions of visible memories, and of summaries whose sources are all visible."""
    known = reader.positions_of(memory_ids)
    summaries = (reader.summaries.position_of(i) for i in memory_ids if i not in known)
    found = [p for p in (*known.values(), *summaries) if p is not None]
    if mask is None:
        return found
    stand_for = ([p] if p < reader.count else list(reader.summaries.at(p).sources) for p in found)
    return [p for p, held in zip(found, stand_for, strict=True) if mask[held].all()]


def _in_time(work: Callable[[], Answer | Failure], until_s: float) -> Answer | Failure:
    """Run some work in a thread; return its result, or a failure at the deadline."""
    # One query is too little work for numpy's threads to share: docs/decisions/0005.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    found: list[Answer | Failure] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(Failure("internal", f"{type(error).__name__}: {error}"))

    worker = threading.Thread(target=run, name="noctuary-hook-recall", daemon=True)
    worker.start()
    worker.join(max(0.0, until_s - time.monotonic()))
    return found[0] if found else TOO_SLOW


# What a hook starts and leaves behind: the store's warm server, and keeping a session's turns.


def start_detached(module: str, arguments: Sequence[str]) -> bool:
    """Start a module of noctuary in the background; return whether it was started."""
    # Without the hook's pipes, so that the agent does not wait for it. A file `json.py` in the
    # agent's folder must not be imported (`-P`); a store may be named relative to it.
    import subprocess  # a prompt with a warm server starts nothing

    nothing = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            # Windows has this in place of sessions.
            creationflags=getattr(subprocess, "DETACHED_PROCESS", 0),
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    process.returncode = 0  # otherwise its `__del__` warns of a process that is still running
    return True


CAPTURE = "Capture"  # counted like an event: it ends long after its Stop hook


def capture(agent: str, transcript_path: str, store: str | None = None) -> str | None:
    """Copy a transcript's new turns; return the fault, or None. Never raises."""
    from noctuary.core.errors import SnapshotMissingError
    from noctuary.core.settings import Settings
    from noctuary.core.store import StorePaths, find_store
    from noctuary.sources.ingest import capture_session

    started_s, fault = time.monotonic(), None
    home = environment_home()
    if home is None:
        return "noctuary's home leads nowhere"
    try:
        kept = Settings.load(home=home).transcripts
        directory, _ = find_store(store, home=home)
        if directory.is_dir():
            report = capture_session(transcript_path, StorePaths(directory).turns, kept)
            fault = "; ".join(report.faults) or None
    except SnapshotMissingError:
        pass  # a store that is not there yet: the night finds the transcript in the journal
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    failure = None if fault is None else Failure("capture", fault)
    HookProcess(agent, store, home, started_s).count(CAPTURE, failure)
    return fault


def capture_journalled(home: Path, store: Path, settings: "TranscriptSettings") -> dict[str, int]:
    """Copy new turns of the transcripts in a store's journal; return counts."""
    # Build side: for the night. It copies what a Stop hook could not: sessions that never stopped,
    # or whose store was locked. A transcript that was already read costs one stat.
    from noctuary.core.store import StorePaths
    from noctuary.sources.ingest import capture_session

    notes = {"transcripts": 0, "turns": 0, "faults": 0}
    for name in transcripts_in(home / JOURNAL, store):
        if Path(name).is_file():
            report = capture_session(name, StorePaths(store).turns, settings)
            notes["transcripts"] += 1
            notes["turns"] += report.turns
            notes["faults"] += bool(report.faults)
    return notes


def answer_in_time(
    agent: str, store: str | None, raw: bytes, started_s: float, tell: Callable[[bytes], None]
) -> None:
    """Tell the line to print for an event that no server answers; the process ends in time."""
    process = HookProcess(agent, store, environment_home(), started_s)
    threading.Thread(target=process.end_in_time, daemon=True).start()
    tell(answer(raw, process))
    process.event_name = ""  # answered: the rest is no timeout
    process.record_injection()
    process.start_server()


def answer(raw: bytes, process: HookProcess) -> bytes:
    """Return the line to print for an event as it was sent, b"" for nothing."""
    try:
        value: Any = parse_json(raw)
    except ValueError:
        return b""
    said = handle(value, process)
    return json.dumps(said, separators=(",", ":")).encode("ascii") + b"\n" if said else b""


if __name__ == "__main__":
    capture(*sys.argv[1:])
