"""How the hooks fared: calls, failures and times of every agent and event, in one small file.

What belongs here: the file, reading it and counting one more call. What does not: what is said
about it (`noctuary doctor`, `noctuary hooks status`). Standard library only; nothing here raises or
waits for a lock longer than `_WAIT_S`. No text of a prompt or of a memory has a place in it.
"""

from __future__ import annotations

import fcntl
import math
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.agents.small_files import read_json, replace_json

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
