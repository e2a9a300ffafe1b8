"""What the hooks keep between events: counters, journal, sessions, in small files."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.core.foreign_json import parse_json

# Where the hooks keep their state: below noctuary's home and in no store.
#
# A hook has to count its failures where the store itself is missing.


DIRECTORY = "hooks"
"""Name of the directory below noctuary's home."""


class HookPlaces(NamedTuple):
    """The files of the hooks of one home.

    Attributes:
        home: Noctuary's home (`noctuary.core.store.find_home`); need not exist.
    """

    home: Path

    @property
    def directory(self) -> Path:
        """Where all of them are; made by the first hook, for its user only."""
        return self.home / DIRECTORY

    @property
    def journal(self) -> Path:
        """One JSON object per line: compactions, stops and ends of sessions (`journal`)."""
        return self.directory / "journal.jsonl"

    @property
    def counters(self) -> Path:
        """Calls, failures and times of every agent and event (`counters`)."""
        return self.directory / "counters.json"

    @property
    def sessions(self) -> Path:
        """One small file per session: ids of what was injected into it (`sessions`)."""
        return self.directory / "sessions"


# Small JSON files that a hook reads and replaces in well under a millisecond. Never raises.


def make_private(directory: Path) -> bool:
    """Make a directory that only this user may enter; tell whether there is one now."""
    try:
        if not directory.is_dir():
            # Once per home: importing it takes longer than a hook may.
            from noctuary.core.files import make_directory

            make_directory(directory)
    except (OSError, ValueError):
        return False
    return True


def read_json(path: Path, max_bytes: int) -> tuple[Any, str | None]:
    """Return what a file holds and why it could not be read.

    Args:
        path: The file.
        max_bytes: A larger file is a fault.

    Returns:
        The value and None; (None, None) for a missing file; (None, fault) for one that is damaged,
        too large or not readable.
    """
    try:
        # Not blocking: a pipe that somebody put there must not stop a prompt.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            raw = file.read(max_bytes + 1) or b""
        if len(raw) > max_bytes:
            return None, f"{path.name} has more than {max_bytes:,} bytes"
        return parse_json(raw), None
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"{path.name} cannot be read: {type(error).__name__}"


def replace_json(path: Path, value: Any) -> bool:
    """Replace a file by a value, readable by this user only; tell whether that worked."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        raw = json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(raw)
        temporary.replace(path)
    except (OSError, ValueError, RecursionError):
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        return False
    return True


# How the hooks fared: calls, failures and times of every agent and event, in one small file.
#
# Standard library only; nothing here raises or waits for a lock longer than `_WAIT_S`. No text of
# a prompt or of a memory has a place in it.


VERSION = 1

BUCKETS_MS = (
    10, 20, 30, 50, 75, 100, 125, 150, 175, 200, 225, 250, 275, 300, 350, 400, 500, 750, 1_000,
    1_500, 2_000, 3_000, 5_000,
)  # fmt: skip
"""Upper bounds of the histogram's buckets; one more takes what is slower. Narrow around the 300 ms
that a prompt may take, so that a percentile there says something."""

RECENT_CALLS = 1_000
"""Calls in the histogram before every bucket is halved: a larger number remembers longer, a smaller
one lets the percentiles follow a change sooner."""

TIMEOUT = "timeout"
"""The failure that one busy moment can cause; all others stay until somebody mends them."""

TOLD_AFTER_TIMEOUTS = 3
"""Timeouts one after the other before the user is told; fewer complain about a busy minute."""

_MAX_BYTES = 1_000_000
_WAIT_S = 0.01
_PAUSE_S = 0.002


class EventCounters(NamedTuple):
    """One event of one agent.

    Attributes:
        agent: "claude" or "codex".
        event: The event's name, for example "UserPromptSubmit".
        calls: How often the hook ran for it, >= 0.
        failures: How often it could not do what it is for (timeouts included).
        timeouts: How often time ran out.
        last_call_at_s: Seconds since the epoch, or None.
        last_error_code: The last failure, for example "no_snapshot"; None if there never was one.
        last_error_at_s: When, seconds since the epoch.
        outage_code: The failure that every call since `outage_since_s` ended in, None while it
            works.
        outage_since_s: When the outage began, seconds since the epoch.
        outage_calls: Failures one after the other, up to now.
        told: Codes that the user was told of in this outage.
        max_ms: The slowest call ever.
        histogram: Calls by `BUCKETS_MS` (one more for slower ones); the last `RECENT_CALLS` or so.
    """

    agent: str
    event: str
    calls: int = 0
    failures: int = 0
    timeouts: int = 0
    last_call_at_s: float | None = None
    last_error_code: str | None = None
    last_error_at_s: float | None = None
    outage_code: str | None = None
    outage_since_s: float | None = None
    outage_calls: int = 0
    told: tuple[str, ...] = ()
    max_ms: float = 0.0
    histogram: tuple[int, ...] = (0,) * (len(BUCKETS_MS) + 1)

    def percentile_ms(self, share: float) -> float | None:
        """Return an upper bound of a percentile of the recent calls, None without any.

        Args:
            share: In (0, 1], for example 0.95.
        """
        total = sum(self.histogram)
        if not total:
            return None
        wanted, seen = max(1, math.ceil(share * total)), 0
        for count, bound in zip(self.histogram, BUCKETS_MS, strict=False):
            seen += count
            if seen >= wanted:
                return float(min(bound, self.max_ms))
        return self.max_ms


class Counters(NamedTuple):
    """What the file says.

    Attributes:
        events: Every agent and event that a hook ran for, sorted.
        fault: Why the file could not be read, or None; a missing file is no fault.
    """

    events: tuple[EventCounters, ...] = ()
    fault: str | None = None


def read_counters(path: Path) -> Counters:
    """Return what the hooks counted. Never raises.

    Args:
        path: `HookPlaces.counters`.
    """
    found, fault = read_json(path, _MAX_BYTES)
    if fault is not None:
        return Counters(fault=fault)
    if found is None:
        return Counters()
    if not isinstance(found, dict):
        return Counters(fault=f"{path.name} holds no object")
    raw = cast("dict[str, Any]", found)
    if raw.get("version") != VERSION:
        return Counters(fault=f"{path.name} has format {raw.get('version')!r}, expected {VERSION}")
    rows: Any = raw.get("events")
    events = [_event(row) for row in cast("list[Any]", rows)] if isinstance(rows, list) else []
    kept = {(e.agent, e.event): e for e in events if e is not None}
    return Counters(tuple(kept[key] for key in sorted(kept)))


def note_call(
    path: Path,
    agent: str,
    event: str,
    *,
    code: str | None,
    took_ms: float,
    now_s: float,
    may_tell: bool = True,
) -> bool:
    """Count one call and say whether the user should be told of an outage now.

    Args:
        path: `HookPlaces.counters`; its directory exists.
        agent: "claude" or "codex".
        event: The event's name.
        code: What failed, or None for a success.
        took_ms: How long it took, >= 0.
        now_s: Seconds since the epoch.
        may_tell: Whether the event's answer can hold a message at all.

    Returns:
        True once per outage and code: it is on record that the user was told. False as well where
        the file is locked or cannot be written, so that nobody is told twice.
    """
    with _locked(path.with_suffix(".lock")) as is_mine:
        if not is_mine:
            return False
        counters = read_counters(path)
        known = {(e.agent, e.event): e for e in counters.events}
        before = known.get((agent, event), EventCounters(agent, event))
        after = _counted(before, code, took_ms, now_s, may_tell)
        known[agent, event] = after
        rows = [known[key]._asdict() for key in sorted(known)]
        written = replace_json(path, {"version": VERSION, "events": rows})
        return written and code in after.told and code not in before.told


def _counted(
    e: EventCounters, code: str | None, took_ms: float, now_s: float, may_tell: bool
) -> EventCounters:
    """Return the counters after one more call."""
    took_ms = took_ms if math.isfinite(took_ms) and took_ms > 0 else 0.0
    e = e._replace(
        calls=e.calls + 1,
        last_call_at_s=now_s,
        max_ms=max(e.max_ms, took_ms),
        histogram=_with_time(e.histogram, took_ms),
    )
    if code is None:
        return e._replace(outage_code=None, outage_since_s=None, outage_calls=0, told=())
    since = e.outage_since_s
    calls = e.outage_calls + 1
    is_worth = may_tell and code not in e.told and (code != TIMEOUT or calls >= TOLD_AFTER_TIMEOUTS)
    return e._replace(
        failures=e.failures + 1,
        timeouts=e.timeouts + (code == TIMEOUT),
        last_error_code=code,
        last_error_at_s=now_s,
        outage_code=code,
        outage_since_s=now_s if since is None else since,
        outage_calls=calls,
        told=(*e.told, code) if is_worth else e.told,
    )


def _with_time(histogram: tuple[int, ...], took_ms: float) -> tuple[int, ...]:
    counts = list(histogram)
    if sum(counts) >= RECENT_CALLS:
        counts = [count // 2 for count in counts]
    counts[next((i for i, b in enumerate(BUCKETS_MS) if took_ms <= b), len(BUCKETS_MS))] += 1
    return tuple(counts)


def _event(row: Any) -> EventCounters | None:
    """Return one row of the file, None for one that is damaged: it starts anew."""
    if not isinstance(row, dict):
        return None
    found: Mapping[str, Any] = cast("dict[str, Any]", row)
    made = EventCounters(str(found.get("agent")), str(found.get("event")))
    counts: dict[str, Any] = {
        name: found.get(name) for name in ("calls", "failures", "timeouts", "outage_calls")
    }
    times = {n: found.get(n) for n in ("last_call_at_s", "last_error_at_s", "outage_since_s")}
    texts = {n: found.get(n) for n in ("last_error_code", "outage_code")}
    told, histogram, max_ms = found.get("told"), found.get("histogram"), found.get("max_ms")
    if not all(_is_count(value) for value in counts.values()):
        return None
    if not all(value is None or _is_time(value) for value in times.values()):
        return None
    if not all(isinstance(value, str | None) for value in texts.values()):
        return None
    if not _is_time(max_ms) or not isinstance(told, list) or not isinstance(histogram, list):
        return None
    buckets = cast("list[Any]", histogram)
    if len(buckets) != len(made.histogram) or not all(_is_count(value) for value in buckets):
        return None
    codes = tuple(str(code) for code in cast("list[Any]", told))
    more = {"told": codes, "max_ms": float(cast("float", max_ms)), "histogram": tuple(buckets)}
    return made._replace(**counts, **times, **texts, **more)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


@contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Yield whether the lock is ours; a hook that does not get it soon goes on without counting."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError):
        yield False
        return
    try:
        yield _take(handle, time.monotonic() + _WAIT_S)
    finally:
        with suppress(OSError):
            os.close(handle)


def _take(handle: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True


# The journal of the hooks: one JSON line per compaction, stop and end of a session.
#
# Appending waits for nobody and never raises. No text of a conversation has a place in it; paths
# and ids of sessions have, so the file is its user's alone.
#
# A PreCompact hook can do no more than this in time: what the conversation held up to that byte is
# compacted out of band, from the transcript.


MAX_BYTES = 4_000_000
"""Size from which on the journal is put aside (`journal.1.jsonl`, replacing the one before): some
15,000 lines. More keeps a longer past, less a smaller file."""

_MAX_READ_BYTES = 4 * MAX_BYTES


class JournalEntry(NamedTuple):
    """One line.

    Attributes:
        at_us: When, microseconds since the epoch.
        agent: "claude" or "codex".
        event: The event's name.
        session_id: The agent's name of the conversation, or "".
        transcript_path: Its transcript, or "".
        offset_bytes: How long the transcript was, or None where it could not be looked at.
        cwd: The folder that the agent worked in, or "".
        detail: Trigger of a compaction or reason of an end, or "".
        store: The store directory that the hook was for, or "" where there was none.
    """

    at_us: int
    agent: str
    event: str
    session_id: str = ""
    transcript_path: str = ""
    offset_bytes: int | None = None
    cwd: str = ""
    detail: str = ""
    store: str = ""


def append_entry(path: Path, entry: JournalEntry) -> str | None:
    """Append one line; return what went wrong, or None.

    Args:
        path: `HookPlaces.journal`, in a directory that exists.
        entry: What happened.
    """
    line = json.dumps(entry._asdict(), separators=(",", ":")).encode("ascii") + b"\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size > MAX_BYTES and _put_aside(path, handle):
                return append_entry(path, entry)
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # behind a line that a full disk cut off
            if os.write(handle, line) != len(line):
                return "the journal's disk is full"
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return f"the journal cannot be written: {type(error).__name__}"
    return None


def read_journal(path: Path) -> tuple[JournalEntry, ...]:
    """Return every entry, oldest first; lines that are damaged are left out. Never raises."""
    return tuple(
        entry for part in (_aside(path), path) for line in _lines(part) if (entry := _parse(line))
    )


def transcripts_in(path: Path, store: Path) -> tuple[str, ...]:
    """Return the transcripts that the journal names for a store, in order of their last entry.

    Args:
        path: `HookPlaces.journal`.
        store: A store directory: the sessions of another one are none of its business.
    """
    found: dict[str, None] = {}
    own = str(store.absolute())
    for entry in read_journal(path):
        if entry.transcript_path and entry.store == own:
            found.pop(entry.transcript_path, None)
            found[entry.transcript_path] = None
    return tuple(found)


def _put_aside(path: Path, handle: int) -> bool:
    """Rename a journal that is full; tell whether another one is in its place now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(path.stat(), os.fstat(handle)):
            return True  # another hook did
        path.replace(_aside(path))
    except OSError:
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


def _lines(path: Path) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as file:
        yield from file.read(_MAX_READ_BYTES).splitlines()


def _parse(line: bytes) -> JournalEntry | None:
    try:
        value: Any = parse_json(line)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    raw = cast("dict[str, Any]", value)
    at_us, offset = raw.get("at_us"), raw.get("offset_bytes")
    texts = {
        name: raw.get(name, "")
        for name in ("agent", "event", "session_id", "transcript_path", "cwd", "detail", "store")
    }
    if type(at_us) is not int or type(offset) not in (int, type(None)):
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    return JournalEntry(at_us=at_us, offset_bytes=offset, **texts)


# What was injected into a session: ids, hashes and scores, in one small file per session.
#
# No text of a memory or of a prompt has a place in it. Two hooks of one session that end at the
# same moment keep the state of the later one; what that loses is injected once more.


MAX_INJECTED = 500
"""Memories remembered per session; what was injected first is forgotten first, and may then be
injected again. More makes the file that every prompt reads longer (some 60 bytes each)."""

KEPT_DAYS = 30
"""How long a session's file is kept after its last injection; agents keep transcripts as long."""

MAX_FILES = 2_000
"""Sessions kept at most; the ones that were quiet for longest go first."""
_HASH_CHARS = 16
_NAME_CHARS = 32
_DAY_S = 86_400


class Injected(NamedTuple):
    """One memory that was injected.

    Attributes:
        memory_id: As text.
        text_hash: Of its content: an edited memory is another one.
        score: Its final score when it was injected, in [0, 1].
        in_context: Whether the model still has it before it; a compaction takes it away.
    """

    memory_id: str
    text_hash: str
    score: float
    in_context: bool = True


class SessionState(NamedTuple):
    """A session, as far as hooks remember it.

    Attributes:
        injected: In order of injection, at most `MAX_INJECTED`.
        compactions: How often the agent has compacted its context.
    """

    injected: tuple[Injected, ...] = ()
    compactions: int = 0

    def knows(self, memory: Mapping[str, Any]) -> bool:
        """Tell whether a memory of an answer is before the model already."""
        key = (str(memory.get("id")), hash_content(memory))
        return any(i.in_context and (i.memory_id, i.text_hash) == key for i in self.injected)

    def with_injected(self, memories: Sequence[Mapping[str, Any]]) -> SessionState:
        """Return the state after some memories of an answer were injected."""
        new = [_injected(memory) for memory in memories]
        best = {(i.memory_id, i.text_hash): i.score for i in self.injected}
        keys = {(i.memory_id, i.text_hash) for i in new}
        kept = [i for i in self.injected if (i.memory_id, i.text_hash) not in keys]
        added = [
            i._replace(score=max(i.score, best.get((i.memory_id, i.text_hash), 0.0))) for i in new
        ]
        return self._replace(injected=(*kept, *added)[-MAX_INJECTED:])

    def compacted(self) -> SessionState:
        """Return the state after the agent has compacted: nothing injected is before it any more.

        What PreCompact and SessionStart both tell of is counted once, by SessionStart.
        """
        gone = tuple(i._replace(in_context=False) for i in self.injected)
        return SessionState(gone, self.compactions + 1)

    def best_first(self) -> tuple[Injected, ...]:
        """Return what was injected, by falling score; of equal ones the later first."""
        return tuple(sorted(reversed(self.injected), key=lambda i: -i.score))


def hash_content(memory: Mapping[str, Any]) -> str:
    """Return a hash of the content of a memory of an answer."""
    raw = str(memory.get("content", "")).encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest()[:_HASH_CHARS]


def session_file(directory: Path, agent: str, session_id: str) -> Path:
    """Return the file of a session; its name tells nothing about it."""
    raw = f"{agent}\0{session_id}".encode("utf-8", "surrogatepass")
    return directory / f"{hashlib.sha256(raw).hexdigest()[:_NAME_CHARS]}.json"


def read_session(path: Path) -> SessionState:
    """Return what is remembered of a session; nothing where the file is missing or damaged."""
    found, fault = read_json(path, _MAX_BYTES)
    if fault is not None or not isinstance(found, dict):
        return SessionState()
    raw = cast("dict[str, Any]", found)
    rows, compactions = raw.get("injected"), raw.get("compactions")
    if raw.get("version") != VERSION or not isinstance(rows, list):
        return SessionState()
    parsed = (_parse_session(row) for row in cast("list[Any]", rows)[-MAX_INJECTED:])
    count = compactions if isinstance(compactions, int) and compactions >= 0 else 0
    return SessionState(tuple(i for i in parsed if i is not None), count)


def write_session(path: Path, state: SessionState) -> bool:
    """Replace the file of a session; tell whether that worked."""
    rows = [[i.memory_id, i.text_hash, i.score, i.in_context] for i in state.injected]
    value = {"version": VERSION, "compactions": state.compactions, "injected": rows}
    return make_private(path.parent) and replace_json(path, value)


def prune_sessions(directory: Path, *, now_s: float | None = None) -> int:
    """Delete files of sessions that were quiet for long; return how many. Never raises."""
    now_s = time.time() if now_s is None else now_s
    deleted = 0
    with suppress(OSError):
        found: list[tuple[float, Path]] = []
        for path in directory.iterdir():
            with suppress(OSError):
                found.append((path.lstat().st_mtime, path))
        found.sort(reverse=True)
        for place, (changed_s, path) in enumerate(found):
            if place >= MAX_FILES or changed_s < now_s - KEPT_DAYS * _DAY_S:
                with suppress(OSError):
                    path.unlink()
                    deleted += 1
    return deleted


def _injected(memory: Mapping[str, Any]) -> Injected:
    score = memory.get("final_score")
    is_number = isinstance(score, int | float) and math.isfinite(score)
    return Injected(
        str(memory.get("id")),
        hash_content(memory),
        round(float(cast("float", score)), 6) if is_number else 0.0,
    )


def _parse_session(row: Any) -> Injected | None:
    if not isinstance(row, list) or len(cast("list[Any]", row)) != 4:
        return None
    memory_id, text_hash, score, in_context = cast("list[Any]", row)
    if not isinstance(memory_id, str) or not isinstance(text_hash, str):
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return None
    return Injected(memory_id, text_hash, float(score), in_context is True)
