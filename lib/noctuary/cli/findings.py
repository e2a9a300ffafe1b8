"""What the doctor looks at around a store: inputs, hooks, rows, the schedule, the server."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any

from noctuary.agents.client import (
    Fallback,
    Refusal,
    directory_fault,
    find_place,
    ping,
    read_fallback,
)
from noctuary.agents.hooks import AGENTS, PROMPT
from noctuary.agents.install import (
    ABSENT,
    BROKEN,
    RUNNING,
    UNREADABLE,
    PlaceState,
    enabled_plugin,
    is_used,
    look_at_places,
)
from noctuary.agents.state import COUNTERS, TIMEOUT, EventCounters, read_counters
from noctuary.core import store as layout
from noctuary.core.errors import StoreError
from noctuary.core.manifest import Manifest
from noctuary.core.sqlite import open_foreign
from noctuary.core.store import StorePaths, expand_user
from noctuary.embed.tables import connect, list_tables
from noctuary.sources.ingest import is_transcripts

# Whether the SDK of the protocol is installed, in a version that this server runs on.
#
# Standard library only: it is asked where the SDK may be missing.


WANTED = "mcp>=2.1,<3"
"""As the extra `mcp` has it (pyproject.toml)."""

_LEAST = (2, 1)
_BELOW_MAJOR = 3
_REMEDY = f"pip install 'noctuary[mcp]' installs {WANTED}"


def find_sdk_fault() -> str | None:
    """Return why the MCP server cannot run in this environment and what to do; None where it can.

    Nothing is imported: it takes about a millisecond.
    """
    try:
        missing = util.find_spec("mcp") is None
    except ValueError:  # a placeholder stands in sys.modules
        missing = True
    if missing:
        return f"the MCP server needs the package mcp, which is not installed: {_REMEDY}"
    try:
        found = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return None  # importable without being installed: it may well run
    if not is_supported(found):
        return f"the MCP server needs {WANTED}, found mcp {found}: {_REMEDY}"
    return None


def is_supported(version: str) -> bool:
    """Say whether the server runs on this version of the SDK, e.g. "2.3.0"."""
    parts = version.split(".")
    try:
        major, minor = int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return True  # no release number: whoever installed it knows
    return _LEAST <= (major, minor) < (_BELOW_MAJOR, 0)


# One thing that was looked at.


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: str  # "ok", "warn" or "fail"
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)


# What `noctuary doctor` says about what a night reads: the source, and the agents' transcripts.


def look_at_source(manifest: Manifest) -> Finding:
    """Return whether the source that a snapshot was made from can be read."""
    location = Path(str(manifest.source.get("location", "")))
    fault = _reading_fault(location)
    if fault is None:
        return Finding("source", "ok", f"{location} can be read")
    return Finding(
        "source", "warn", f"{location} {fault}",
        "the next night cannot run; recall still answers. Put it back, or set source.path",
    )  # fmt: skip


def look_at_transcripts(path: str) -> Finding:
    """Return whether the agents' transcripts can be read."""
    if not path:
        return Finding(
            "transcripts", "ok", "no folder is set: only what the Stop hook keeps is remembered"
        )
    remedy = "correct transcripts.path: agents delete old transcripts, unread or not"
    try:
        place = expand_user(path)
    except StoreError as error:
        return Finding("transcripts", "warn", str(error), remedy)
    fault = _reading_fault(place)
    if fault is not None:
        return Finding("transcripts", "warn", f"{place} {fault}", remedy)
    if not is_transcripts(place):
        return Finding("transcripts", "warn", f"{place} holds no transcript of an agent", remedy)
    return Finding("transcripts", "ok", f"{place} can be read")


def _reading_fault(path: Path) -> str | None:
    """Return why a file or folder cannot be read, None if it can; nothing in it is kept open."""
    try:
        if path.is_dir():
            os.scandir(path).close()
        elif path.is_file():
            path.open("rb").close()
        else:
            return "is no file and no folder" if path.exists() else "is gone"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


# What `noctuary doctor` says about the hooks: installed or not, and how they fare.
#
# Looking at settings files is `noctuary.agents.install`'s, counting is `noctuary.agents.state`'.


_REMEDIES = {
    TIMEOUT: "keep `noctuary serve` running, or allow more: hook.deadline_ms",
    "no_snapshot": "run `noctuary nightly`; or install the hooks with --store",
    "store_unreadable": "see the findings above",
    "snapshot_damaged": "run `noctuary rollback`, then `noctuary nightly`",
    "bad_settings": "correct noctuary.toml or the variable: see settings",
    "journal": "make room, and make the directory writable for you",
    "capture": "make room for another process; `noctuary nightly` reads the transcripts as well",
}
_HOUR_S = 3600.0


def look_at_hooks(home: Path, folder: Path) -> Iterator[Finding]:
    """Yield how it is with the hooks of every agent that is used here."""
    states = look_at_places(home, folder)
    counters = read_counters(home / COUNTERS)
    if counters.fault is not None:
        yield Finding(
            "hooks", "warn", f"{counters.fault}: how the hooks fared cannot be told",
            f"remove {home / COUNTERS}; the next hook begins it anew",
        )  # fmt: skip
    known = 0
    for agent in AGENTS:
        plugin = enabled_plugin(agent, folder)
        own = [state for state in states if state.agent == agent and state.state != ABSENT]
        called = [event for event in counters.events if event.agent == agent]
        if own or plugin or called or is_used(agent):
            known += 1
            yield _judge(agent, own, plugin, called)
    if not known:
        yield Finding("hooks", "ok", "no agent keeps settings here: nothing to install them into")


def are_hooked(home: Path, folder: Path) -> bool:
    """Tell whether some agent runs noctuary's hooks."""
    if any(state.state in RUNNING for state in look_at_places(home, folder)):
        return True
    return any(enabled_plugin(agent, folder) for agent in AGENTS)


def _judge(
    agent: str, states: Sequence[PlaceState], plugin: Path | None, called: Sequence[EventCounters]
) -> Finding:
    install = f"noctuary hooks install --agent {agent}"
    faulty = next((state for state in states if state.state in {BROKEN, UNREADABLE}), None)
    if faulty is not None:
        return _unusable(agent, faulty)
    where = [state.path for state in states if state.state in RUNNING]
    where += [f"the plugin in {plugin}"] if plugin else []
    if not where:
        off = next((state for state in states if state.message), None)
        if off is not None:
            return Finding("hooks", "warn", f"{agent} runs none: {off.message}", "remove that line")
        message = f"not installed: prompts of {agent} get no memories"
        return Finding("hooks", "warn", message, f"`{install}`")
    failing = [event for event in called if event.outage_code is not None]
    if failing:
        return _failing(agent, failing)
    if plugin and len(where) > 1:
        message = f"installed twice, so every prompt of {agent} runs both: {', '.join(where)}"
        return Finding("hooks", "warn", message, f"`noctuary hooks uninstall --agent {agent}`")
    odd = next((state for state in states if state.message), None)
    if odd is not None:
        renew = f"`{install} --{odd.scope}` renews them"
        return Finding("hooks", "warn", f"{odd.path}: {odd.message}", renew)
    return Finding("hooks", "ok", f"{agent}: {', '.join(where)}: {_times(agent, called)}")


def _unusable(agent: str, state: PlaceState) -> Finding:
    again = f"`noctuary hooks install --agent {agent} --{state.scope}`"
    if state.state == BROKEN:
        return Finding("hooks", "fail", f"{state.path}: {state.message}", again)
    return Finding("hooks", "warn", f"{state.path}: {state.message}", f"mend it, then {again}")


def _failing(agent: str, failing: Sequence[EventCounters]) -> Finding:
    worst = max(failing, key=lambda event: (event.outage_code != TIMEOUT, event.outage_calls))
    code = str(worst.outage_code)
    since_s = max(time.time() - (worst.outage_since_s or time.time()), 0.0)
    message = f"{worst.event} of {agent} fails since {since_s / _HOUR_S:.1f} h ago"
    message += f", {worst.outage_calls:,} time(s) one after the other: {code}"
    more = len(failing) - 1
    message += f"; {more} more event(s) fail" if more else ""
    remedy = _REMEDIES.get(code, "`noctuary hooks status` shows every event")
    return Finding("hooks", "warn" if code == TIMEOUT else "fail", message, remedy)


def _times(agent: str, called: Sequence[EventCounters]) -> str:
    calls = sum(event.calls for event in called)
    if not calls:
        hint = " (trust them with /hooks)" if agent == "codex" else ""
        return f"installed, never called yet{hint}"
    failures = sum(event.failures for event in called)
    prompt = next((event for event in called if event.event == PROMPT), None)
    p95 = prompt.percentile_ms(0.95) if prompt else None
    told = "" if p95 is None else f", a prompt takes {p95:.0f} ms (p95)"
    failed = f", {failures:,} failed at times, none now" if failures else ""
    return f"{calls:,} calls{failed}{told}"


# What `noctuary doctor` says about rows: vectors that are missing, rows that no index covers.
#
# LanceDB belongs to the build side and takes a second to import, so it is asked only where a table
# has an index.


def look_at_vectors(snapshot: Path, manifest: Manifest) -> Iterator[Finding]:
    """Yield whether every memory of a snapshot has a vector; nothing where it has no encoder."""
    if manifest.encoder is None:
        return
    # Here and not above: numpy must not be loaded before the command has limited its threads.
    import numpy as np

    memories = int(manifest.counts.get("memories", 0))
    vectors = np.load(snapshot / layout.VECTORS_FILE, mmap_mode="r", allow_pickle=False)
    missing = memories - len(vectors)
    if missing:
        yield Finding(
            "vectors", "fail", f"{memories:,} memories have {len(vectors):,} vectors",
            "run `noctuary rollback`, then `noctuary nightly`",
        )  # fmt: skip
    else:
        yield Finding("vectors", "ok", f"each of {memories:,} memories has one")


def look_at_index(paths: StorePaths) -> Finding:
    """Return how many rows of the LanceDB tables their indexes leave out."""
    tables = list_tables(paths.lance, "")
    indexed = [name for name in tables if _has_index(paths.lance / f"{name}.lance")]
    if not tables:
        return Finding("index", "ok", "there are no LanceDB tables; recall needs none")
    if not indexed:
        return Finding(
            "index", "ok", f"{len(tables)} LanceDB tables without an index: scans are exact"
        )
    if importlib.util.find_spec("lancedb") is None:
        return Finding("index", "ok", "LanceDB is not installed here: its indexes cannot be read")
    left_out = {name: count for name in indexed if (count := _unindexed(paths.lance, name))}
    if left_out:
        told = ", ".join(f"{count:,} rows of {name}" for name, count in left_out.items())
        return Finding(
            "index", "warn", f"{told} are in no index: searches scan them one by one",
            "run `noctuary nightly`: it takes them in; recall reads the snapshot and misses none",
        )  # fmt: skip
    return Finding("index", "ok", f"the indexes of {len(indexed)} LanceDB tables cover every row")


def _has_index(table: Path) -> bool:
    indices = table / "_indices"
    return indices.is_dir() and any(indices.iterdir())


def _unindexed(lance_dir: Path, name: str) -> int:
    table = connect(lance_dir).open_table(name)
    return sum(int(index.num_unindexed_rows) for index in table.list_indices())


# What `noctuary doctor` says about the schedule: whether a next night will run by itself.
#
# Where Dagster keeps its state elsewhere, or there is none, only that age can tell.


JOB = "nightly"
"""Name of the job whose runs are nights (noctuary_pipelines.jobs)."""

_HEARTBEAT_S = 300.0
"""Dagster's daemon says every 30 s that it lives, and counts as dead after this."""

_DAYS = 3
_LEAST_DAYS = 2
"""Nights on two of the last three days are somebody else's schedule: cron, or a habit."""

_DAY_S = 86_400.0
_WAIT_S = 0.5


def look_at_schedule(paths: StorePaths, now_s: float | None = None) -> Finding:
    """Return whether nights run by themselves."""
    now_s = time.time() if now_s is None else now_s
    schedules = paths.dagster_home / "schedules" / "schedules.db"
    runs = paths.dagster_home / "history" / "runs.db"
    if not schedules.is_file():
        return Finding("schedule", "ok", "there is no Dagster instance to look into: age tells")
    try:
        running = _is_running(schedules)
        heartbeat_s = _heartbeat_s(runs)
        days = _night_days(runs, now_s)
    except sqlite3.Error as error:
        return Finding(
            "schedule", "warn", f"the Dagster instance cannot be read: {error}",
            f"see age; move {paths.dagster_home} away and the next night makes a new one",
        )  # fmt: skip
    if running:
        return _judge_daemon(heartbeat_s, now_s)
    if days >= _LEAST_DAYS:
        return Finding(
            "schedule", "ok",
            f"off in Dagster, and nights ran on {days} of the last {_DAYS} days all the same",
        )  # fmt: skip
    return Finding(
        "schedule", "warn", "off in Dagster, so no night will run by itself",
        "switch nightly_schedule on in `noctuary ui` under Automation, or let cron run "
        "`noctuary nightly`",
    )  # fmt: skip


def _judge_daemon(heartbeat_s: float | None, now_s: float) -> Finding:
    if heartbeat_s is not None and now_s - heartbeat_s <= _HEARTBEAT_S:
        return Finding("schedule", "ok", "on, and Dagster's daemon is alive")
    since = "never" if heartbeat_s is None else f"{(now_s - heartbeat_s) / 3600:.1f} h ago"
    return Finding(
        "schedule", "warn", f"on, but Dagster's daemon was last alive {since}: nothing ticks",
        "keep `noctuary ui` running, or let cron run `noctuary nightly`",
    )  # fmt: skip


def _is_running(database: Path) -> bool:
    query = "SELECT COUNT(*) FROM instigators WHERE instigator_type='SCHEDULE' AND status='RUNNING'"
    return bool(_ask(database, query))


def _heartbeat_s(database: Path) -> float | None:
    if not database.is_file():
        return None
    # Dagster writes naive UTC.
    query = (
        "SELECT MAX(CAST(strftime('%s', timestamp) AS INTEGER)) FROM daemon_heartbeats "
        "WHERE daemon_type='SCHEDULER'"
    )
    found = _ask(database, query)
    return None if found is None else float(found)


def _night_days(database: Path, now_s: float) -> int:
    """Return on how many of the last days, 24 h each and counted back from now, a night ran."""
    if not database.is_file():
        return 0
    query = (
        "SELECT COUNT(DISTINCT CAST((? - end_time) / ? AS INTEGER)) FROM runs WHERE "
        "pipeline_name=? AND status='SUCCESS' AND end_time > ? AND end_time <= ?"
    )
    arguments = (now_s, _DAY_S, JOB, now_s - _DAYS * _DAY_S, now_s)
    return int(_ask(database, query, arguments) or 0)


def _ask(database: Path, query: str, arguments: tuple[object, ...] = ()) -> float | None:
    with closing(open_foreign(database, _WAIT_S)[0]) as connection:
        (found,) = connection.execute(query, arguments).fetchone()
    return found


# What `noctuary doctor` says about the warm server: whether it runs, what kept clients from it.
#
# Asking the server and reading the note are noctuary.agents's.


_RECENT_S = 24 * 3600.0
"""An older fallback says little about now; a shorter time would hide it from a daily look."""


_server = partial(Finding, "server")


def look_at_server(store: Path) -> Finding:
    """Return how the store's server is, and whether a client had a reason not to use it."""
    place = find_place(store)
    try:
        fault = directory_fault(place.directory)
    except FileNotFoundError:
        return _server("ok", "none runs: recall answers in its own process")
    if fault is not None:
        return _server("warn", f"no server can be used: {fault}", "recall answers without one")
    answer = ping(store)
    fallback = read_fallback(place)
    if fallback is not None and time.time() - fallback.at_s > _RECENT_S:
        fallback = None
    if isinstance(answer, Refusal):
        return _without(answer, fallback)
    return _with(answer, fallback)


def _without(refusal: Refusal, fallback: Fallback | None) -> Finding:
    if refusal.code != "absent":
        return _server("warn", f"{refusal.code}: {refusal.message}", "start `noctuary serve` again")
    if fallback is not None:
        return _server("ok", f"none runs; {_told(fallback)}")
    return _server("ok", "none runs: recall answers in its own process")


def _with(answer: dict[str, Any], fallback: Fallback | None) -> Finding:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(answer["started_s"]))
    runs = f"process {answer['pid']} answers since {since}, {answer['answered']:,} recalls"
    reason = answer.get("lean_reason")
    if reason is not None:  # servers of before did not say
        runs += f"; encodes with {f'the lean encoder: {reason}' if reason else 'ONNX Runtime'}"
    if fallback is not None and fallback.at_s >= answer["started_s"]:
        return _server("warn", f"{runs}; {_told(fallback)}", "see docs/serve.md, Falling back")
    return _server("ok", runs)


def _told(fallback: Fallback) -> str:
    minutes = max(time.time() - fallback.at_s, 0.0) / 60
    return f"{minutes:.0f} min ago a client fell back ({fallback.code}): {fallback.message}"
