"""What `noctuary doctor` says about the hooks: installed or not, and how they fare.

What belongs here: judging. Looking at settings files is `noctuary.agents.install.status`'s,
counting is `noctuary.agents.counters`'.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from noctuary.agents.counters import TIMEOUT, EventCounters, read_counters
from noctuary.agents.events import AGENTS, PROMPT
from noctuary.agents.install.status import (
    ABSENT,
    BROKEN,
    RUNNING,
    UNREADABLE,
    PlaceState,
    enabled_plugin,
    is_used,
    look_at_places,
)
from noctuary.agents.places import HookPlaces
from noctuary.diagnosis.finding import Finding

_REMEDIES = {
    TIMEOUT: "keep `noctuary serve` running, or allow more: hook.deadline_ms",
    "no_snapshot": "run `make nightly`; or install the hooks with --store",
    "store_unreadable": "see the findings above",
    "snapshot_damaged": "run `noctuary rollback`, then `make nightly`",
    "bad_settings": "correct noctuary.toml or the variable: see settings",
    "journal": "make room, and make the directory writable for you",
    "capture": "make room for another process; `make nightly` reads the transcripts as well",
}
_HOUR_S = 3600.0


def look_at_hooks(home: Path, folder: Path) -> Iterator[Finding]:
    """Yield how it is with the hooks of every agent that is used here.

    Args:
        home: Noctuary's home.
        folder: The project's folder, usually the current one.
    """
    states = look_at_places(home, folder)
    counters = read_counters(HookPlaces(home).counters)
    if counters.fault is not None:
        yield Finding(
            "hooks", "warn", f"{counters.fault}: how the hooks fared cannot be told",
            f"remove {HookPlaces(home).counters}; the next hook begins it anew",
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
