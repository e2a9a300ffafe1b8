"""What the hooks keep between events: counters, journal, sessions, in small files.

Below noctuary's home and in no store, as a hook has to count its failures where the store itself is
missing. Standard library only. Nothing here raises, blocks, or holds a text of a prompt or memory.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from noctuary.core import formats
from noctuary.core.foreign_json import parse_json
from noctuary.core.locks import read_at, take_lock

_FORMAT = formats.HOOK_COUNTS.version

# A pipe in a file's place must not stop a prompt, a link lead elsewhere, a child keep it open.
_SAFELY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

_BEYOND = 2**63  # no number of ours is larger; somebody else's may have hundreds of digits

Row = TypeVar("Row", bound=tuple[Any, ...])

HOOKS = "hooks"  # the directory below noctuary's home with all of these files, for its user only

JOURNAL = f"{HOOKS}/journal.jsonl"
COUNTERS = f"{HOOKS}/counters.json"
SESSIONS = f"{HOOKS}/sessions"


def make_private(directory: Path) -> bool:
    """Make a private directory; return whether it exists now."""
    try:
        if not directory.is_dir():
            # Once per home: importing it takes longer than a hook may.
            from noctuary.core.files import make_directory

            make_directory(directory)
    except (OSError, ValueError):
        return False
    return True


def read_json(path: Path, max_bytes: int) -> tuple[Any, str | None]:
    """Return the value of a JSON file (None if missing), and the fault if it is unreadable."""
    try:
        handle = os.open(path, os.O_RDONLY | _SAFELY)
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
    """Replace a private JSON file; return whether that worked."""
    # A server's threads may write the same file at the same moment.
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.{os.getpid()}.tmp")
    try:
        raw = json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _SAFELY | _NO_LINK
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(raw)
        temporary.replace(path)
    except (OSError, ValueError, RecursionError):
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        return False
    return True


def read_rows(kind: type[Row], found: Any, name: str, version: int) -> list[Row]:
    """Return the sound rows of a list in an object of this version; [] for anything else."""
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    rows: Any = fields.get(name) if fields.get("version") == version else None
    if not isinstance(rows, list):
        return []
    return [row for raw in cast("list[Any]", rows) if (row := read_row(kind, raw)) is not None]


def read_row(kind: type[Row], raw: Any) -> Row | None:
    """Return an object or list as a NamedTuple; None for a wrong type or a negative number."""
    types = _types_of(kind)
    if isinstance(raw, list) and len(cast("list[Any]", raw)) == len(types):
        raw = dict(zip(types, cast("list[Any]", raw), strict=True))
    found = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    known = {name: value for name, value in found.items() if name in types}
    if not all(_holds(value, *types[name]) for name, value in known.items()):
        return None
    try:
        return kind(**{n: tuple(v) if types[n][1] else v for n, v in known.items()})
    except TypeError:  # a field without a default is missing
        return None


def _holds(value: Any, exact: tuple[Any, ...], is_list: bool) -> bool:
    if is_list and type(value) is not list:
        return False
    items: Any = value if is_list else (value,)
    return all(
        type(i) in exact and (type(i) not in (int, float) or 0 <= i < _BEYOND) for i in items
    )


@cache
def _types_of(kind: type[Any]) -> dict[str, tuple[tuple[Any, ...], bool]]:
    """Return the exact types of each field's JSON value, or of the items of its list."""
    found: dict[str, tuple[tuple[Any, ...], bool]] = {}
    for name, hint in get_type_hints(kind).items():
        exact = get_args(hint) or (hint,)
        found[name] = ((*exact, int) if float in exact else exact, get_origin(hint) is tuple)
    return found


# How the hooks fared: calls, failures and times of every agent and event, in one small file.

# Upper bounds of the histogram's buckets; one more takes slower calls.
BUCKETS_MS = (
    10, 20, 30, 50, 75, 100, 125, 150, 175, 200, 225, 250, 275, 300, 350, 400, 500, 750, 1_000,
    1_500, 2_000, 3_000, 5_000,
)  # fmt: skip

RECENT_CALLS = 1_000  # before every bucket is halved: fewer let percentiles follow a change sooner
TIMEOUT = "timeout"  # one busy moment can cause it; other failures stay until somebody mends them
TOLD_AFTER_TIMEOUTS = 3  # in a row before the user is told; fewer complain about a busy minute

_MAX_BYTES = 1_000_000
_WAIT_S = 0.01
_PAUSE_S = 0.002


class EventCounters(NamedTuple):
    """One event of one agent; moments are seconds since the epoch."""

    agent: str
    event: str
    calls: int = 0
    failures: int = 0  # timeouts included
    timeouts: int = 0
    cut_short: int = 0  # calls whose answer the deadline cut short: they worked, with less
    last_call_at_s: float | None = None
    last_error_code: str | None = None
    last_error_at_s: float | None = None
    outage_code: str | None = None  # the last failure, None once a call has worked
    outage_since_s: float | None = None
    outage_calls: int = 0  # failures one after the other, up to now
    told: tuple[str, ...] = ()  # codes that the user was told of in this outage
    max_ms: float = 0.0
    histogram: tuple[int, ...] = (0,) * (len(BUCKETS_MS) + 1)  # the last `RECENT_CALLS` or so

    def percentile_ms(self, share: float) -> float | None:
        """Return an upper bound of a percentile, in (0, 1], of the recent calls; None without."""
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
    """Every agent and event that a hook ran for, sorted, and why the file could not be read."""

    events: tuple[EventCounters, ...] = ()
    fault: str | None = None


def read_counters(path: Path) -> Counters:
    """Read the counters; a missing file is no fault."""
    found, fault = read_json(path, _MAX_BYTES)
    if fault is not None or found is None:
        return Counters(fault=fault)
    if not isinstance(found, dict):
        return Counters(fault=f"{path.name} holds no object")
    version = cast("dict[str, Any]", found).get("version")
    if version != _FORMAT:
        return Counters(fault=f"{path.name} has format {version!r}, expected {_FORMAT}")
    rows = read_rows(EventCounters, cast("Any", found), "events", _FORMAT)
    kept = {e[:2]: e for e in rows if len(e.histogram) == len(BUCKETS_MS) + 1}
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
    is_cut: bool = False,
) -> bool:
    """Count one call; return whether to tell the user of an outage now."""
    # Once per outage and code, if an event's answer can hold a message (`may_tell`); never if
    # the file cannot be written, so that the user sees it only once.
    lock = _lock(path.with_suffix(".lock"))
    if lock is None:
        return False
    try:
        known = {e[:2]: e for e in read_counters(path).events}
        before = known.get((agent, event), EventCounters(agent, event))
        after = _counted(before, code, took_ms, now_s, may_tell)
        after = known[agent, event] = after._replace(cut_short=before.cut_short + is_cut)
        rows = [known[key]._asdict() for key in sorted(known)]
        written = replace_json(path, {"version": _FORMAT, "events": rows})
        return written and code in after.told and code not in before.told
    finally:
        os.close(lock)


def _counted(
    e: EventCounters, code: str | None, took_ms: float, now_s: float, may_tell: bool
) -> EventCounters:
    took_ms = took_ms if math.isfinite(took_ms) and took_ms > 0 else 0.0
    slowest, times = max(e.max_ms, took_ms), _with_time(e.histogram, took_ms)
    e = e._replace(calls=e.calls + 1, last_call_at_s=now_s, max_ms=slowest, histogram=times)
    if code is None:
        return e._replace(outage_code=None, outage_since_s=None, outage_calls=0, told=())
    calls = e.outage_calls + 1
    is_worth = may_tell and code not in e.told and (code != TIMEOUT or calls >= TOLD_AFTER_TIMEOUTS)
    return e._replace(
        failures=e.failures + 1,
        timeouts=e.timeouts + (code == TIMEOUT),
        last_error_code=code,
        last_error_at_s=now_s,
        outage_code=code,
        outage_since_s=now_s if e.outage_since_s is None else e.outage_since_s,
        outage_calls=calls,
        told=(*e.told, code) if is_worth else e.told,
    )


def _with_time(histogram: tuple[int, ...], took_ms: float) -> tuple[int, ...]:
    counts = list(histogram)
    if sum(counts) >= RECENT_CALLS:
        counts = [count // 2 for count in counts]
    counts[next((i for i, b in enumerate(BUCKETS_MS) if took_ms <= b), len(BUCKETS_MS))] += 1
    return tuple(counts)


def _lock(path: Path) -> int | None:
    """Return a handle with the lock; a hook that does not get it soon goes on without counting."""
    until = time.monotonic() + _WAIT_S
    with suppress(OSError, ValueError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
        while True:
            try:
                take_lock(handle)
            except OSError:
                if time.monotonic() >= until:
                    os.close(handle)
                    return None
                time.sleep(_PAUSE_S)
            else:
                return handle
    return None


# The journal: one JSON line per compaction, stop and end of a session. A PreCompact hook can do no
# more in time: the transcript up to that byte is read later.

MAX_BYTES = 4_000_000  # then the journal is put aside (`journal.1.jsonl`): some 15,000 lines

_MAX_READ_BYTES = 4 * MAX_BYTES


class JournalEntry(NamedTuple):
    """One line; "" for unknown fields."""

    at_us: int  # microseconds since the epoch
    agent: str
    event: str
    session_id: str = ""
    transcript_path: str = ""
    offset_bytes: int | None = None  # how long the transcript was; None if it could not be read
    cwd: str = ""
    detail: str = ""  # trigger of a compaction or reason of an end
    store: str = ""  # the store directory that the hook was for


def append_entry(path: Path, entry: JournalEntry) -> str | None:
    """Append one line in an existing directory; return the fault, or None."""
    line = json.dumps(entry._asdict(), separators=(",", ":")).encode("ascii") + b"\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _SAFELY | _NO_LINK
    try:
        handle = os.open(path, flags, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size > MAX_BYTES and _put_aside(path, handle):
                return append_entry(path, entry)
            if size and read_at(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # behind a line that a full disk cut off
            if os.write(handle, line) != len(line):
                return "the journal's disk is full"
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return f"the journal cannot be written: {type(error).__name__}"
    return None


def read_journal(path: Path) -> tuple[JournalEntry, ...]:
    """Return every entry, oldest first; lines that are damaged are left out."""
    lines: list[bytes] = []
    for part in (_aside(path), path):
        with suppress(OSError), part.open("rb") as file:
            lines += file.read(_MAX_READ_BYTES).splitlines()
    entries: list[JournalEntry] = []
    for line in lines:
        with suppress(ValueError):
            entry = read_row(JournalEntry, parse_json(line))
            entries += [] if entry is None else [entry]
    return tuple(entries)


def transcripts_in(path: Path, store: Path) -> tuple[str, ...]:
    """Return the transcripts that the journal names for a store, by their last entry."""
    own = str(store.absolute())
    named = [e.transcript_path for e in read_journal(path) if e.transcript_path and e.store == own]
    return tuple(reversed(dict.fromkeys(reversed(named))))


def _put_aside(path: Path, handle: int) -> bool:
    """Rename a full journal; return whether another one took its place."""
    try:
        take_lock(handle)
        if not os.path.samestat(path.stat(), os.fstat(handle)):
            return True  # another hook did
        path.replace(_aside(path))
    except OSError:
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


# What was injected into a session: ids, hashes, scores and tokens, in one small file each. Of two
# hooks that end at the same moment the later one wins; the other's memories are injected again.

MAX_INJECTED = 500  # remembered per session, first out first; every prompt reads some 60 bytes each
KEPT_DAYS = 30  # after a session's last injection; agents keep transcripts as long
MAX_FILES = 2_000  # sessions kept at most; the ones that were quiet for longest go first
_HASH_CHARS = 16
_NAME_CHARS = 32
_DAY_S = 86_400


class Injected(NamedTuple):
    """One memory that was injected."""

    memory_id: str
    text_hash: str  # an edited memory is another one
    score: float  # in [0, 1]
    in_context: bool = True  # a compaction takes it away from the model


class Spent(NamedTuple):
    """The tokens (estimated) that hooks added to a session on one day."""

    day: str  # UTC
    tokens: int


class SessionState(NamedTuple):
    """A session: at most `MAX_INJECTED` memories in order of injection, compactions, and tokens."""

    injected: tuple[Injected, ...] = ()
    compactions: int = 0
    spent: tuple[Spent, ...] = ()  # a row per day, at most `KEPT_DAYS`

    def knows(self, memory: Mapping[str, Any]) -> bool:
        """Tell whether a memory of an answer is before the model already."""
        key = key_of(memory)
        return any(i.in_context and i[:2] == key for i in self.injected)

    def with_injected(
        self, memories: Sequence[Mapping[str, Any]], tokens: int = 0
    ) -> "SessionState":
        """Return the state after some memories of an answer were injected, as so many tokens."""
        best = {i[:2]: i.score for i in self.injected}
        new = [_injected(memory, best) for memory in memories]
        keys = {i[:2] for i in new}
        kept = [i for i in self.injected if i[:2] not in keys]
        days = dict(self.spent)
        if tokens:
            today = time.strftime("%Y-%m-%d", time.gmtime())
            days[today] = days.get(today, 0) + tokens
        spent = tuple(Spent(*row) for row in sorted(days.items())[-KEPT_DAYS:])
        return self._replace(injected=(*kept, *new)[-MAX_INJECTED:], spent=spent)

    def compacted(self) -> "SessionState":
        """Return the state after a compaction: nothing injected is before the agent any more."""
        # PreCompact and SessionStart both report a compaction; SessionStart counts it.
        gone = tuple(i._replace(in_context=False) for i in self.injected)
        return self._replace(injected=gone, compactions=self.compactions + 1)

    def best_first(self) -> tuple[Injected, ...]:
        """Return injected memories by falling score; of equal ones the later first."""
        return tuple(sorted(reversed(self.injected), key=lambda i: -i.score))


def _injected(memory: Mapping[str, Any], best: Mapping[tuple[str, str], float]) -> Injected:
    """Return a memory as injected now, with its best score so far."""
    key, score = key_of(memory), memory.get("final_score")
    known = score if isinstance(score, int | float) and math.isfinite(score) else 0.0
    return Injected(*key, max(round(float(known), 6), best.get(key, 0.0)))


def key_of(memory: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id of a memory of an answer and a hash of its content."""
    return str(memory.get("id")), _hash(str(memory.get("content", "")))[:_HASH_CHARS]


def session_file(directory: Path, agent: str, session_id: str) -> Path:
    """Return the file of a session; its name is a hash."""
    name = _hash(f"{agent}\0{session_id}")[:_NAME_CHARS]
    return directory / f"{name}.json"


def _hash(text: str) -> str:
    from noctuary.core.files import sha256  # most events hash nothing

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_session(path: Path) -> SessionState:
    """Read the state of a session; an empty one if the file is missing or damaged."""
    found, _ = read_json(path, _MAX_BYTES)
    injected = read_rows(Injected, found, "injected", _FORMAT)[-MAX_INJECTED:]
    compactions = found.get("compactions") if isinstance(found, dict) else 0
    count = compactions if isinstance(compactions, int) and compactions >= 0 else 0
    return SessionState(tuple(injected), count, tuple(read_rows(Spent, found, "spent", _FORMAT)))


def read_spending(home: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the tokens that hooks added per day and per session, newest first."""
    # Only the journal names a session, once its agent has stopped.
    names: dict[Path, dict[str, Any]] = {
        session_file(home / SESSIONS, e.agent, e.session_id): e._asdict()
        for e in read_journal(home / JOURNAL)
    }
    days: dict[str, list[int]] = {}
    sessions: list[dict[str, Any]] = []
    for path in (home / SESSIONS).glob("*.json"):
        spent = read_rows(Spent, read_json(path, _MAX_BYTES)[0], "spent", _FORMAT)
        for day, tokens in spent:
            days.setdefault(day, []).append(tokens)
        if spent:
            told = {"last_day": max(spent).day, "tokens": sum(one.tokens for one in spent)}
            named = {n: names.get(path, {}).get(n) for n in ("agent", "session_id", "cwd")}
            sessions.append(told | named)
    sessions.sort(key=lambda one: (one["last_day"], one["tokens"]), reverse=True)
    newest = sorted(days.items(), reverse=True)
    per_day = [{"day": day, "tokens": sum(n), "sessions": len(n)} for day, n in newest]
    return {"days": per_day, "sessions": sessions}


# Which session a fork comes from: its context holds the parent's injected memories.

_RESUMED = "resumed.json"
_RESUMED_FOR_S = 86_400.0  # how long after a session was resumed a fork of it may ask first
_NEAR_S = 30.0  # how far the last answer's time and that of its file may differ
_MOST_SESSIONS = 1_000  # of a folder that are looked at


def note_resumed(directory: Path, agent: str, transcript_path: str, session_id: str) -> None:
    """Remember which session was resumed last, by the folder of its transcript."""
    folder = os.path.dirname(transcript_path)  # noqa: PTH120 (a hook loads no paths for it)
    value = {"version": _FORMAT, "agent": agent, "folder": folder, "session": session_id}
    if make_private(directory):
        replace_json(directory / _RESUMED, {**value, "at_s": time.time()})


def find_parent(
    directory: Path, agent: str, transcript_path: str, idle_s: float | None
) -> str | None:
    """Return the id of the session that a new one was forked from, or None.

    `idle_s` is how long ago the parent answered, where the agent says so; else it is the session
    that was resumed last in the same folder. A transcript that is there belongs to no new session.
    """
    folder = os.path.dirname(transcript_path)  # noqa: PTH120
    if not folder or os.path.exists(transcript_path):  # noqa: PTH110
        return None
    now_s = time.time()
    if idle_s is not None:
        near: list[tuple[float, str]] = []
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in [e for e in entries if e.name.endswith(".jsonl")][:_MOST_SESSIONS]:
                with suppress(OSError):
                    near.append((abs(now_s - idle_s - entry.stat().st_mtime), entry.name))
        best = min(near, default=(math.inf, ""))
        return best[1].removesuffix(".jsonl") if best[0] <= _NEAR_S else None
    found, _ = read_json(directory / _RESUMED, _MAX_BYTES)
    said = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    at_s = said.get("at_s")
    is_same = said.get("agent") == agent and said.get("folder") == folder
    is_recent = isinstance(at_s, float) and 0 <= now_s - at_s <= _RESUMED_FOR_S
    session = said.get("session")
    return session if is_same and is_recent and isinstance(session, str) else None


def write_session(path: Path, state: SessionState) -> bool:
    """Write the file of a session; return whether that worked."""
    value = {"version": _FORMAT, **state._asdict()}
    return make_private(path.parent) and replace_json(path, value)


def prune_sessions(directory: Path, *, now_s: float | None = None) -> int:
    """Delete files of sessions that were quiet for long; return how many."""
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
