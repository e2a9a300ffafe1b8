"""What `noctuary doctor` says about the warm server: whether it runs, what kept clients from it.

What belongs here: judging. Asking the server and reading the note are noctuary.serve's.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.serve.client import ping
from noctuary.serve.fallback import Fallback, read_fallback
from noctuary.serve.place import directory_fault, find_place
from noctuary.serve.protocol import Refusal

_RECENT_S = 24 * 3600.0
"""An older fallback says little about now; a shorter time would hide it from a daily look."""


class ServerState(NamedTuple):
    """How it is with the server of a store: the fields of a finding."""

    level: str
    message: str
    remedy: str


def look_at_server(store: Path) -> ServerState:
    """Return how the store's server is, and whether a client had a reason not to use it.

    Args:
        store: The store directory.

    Raises:
        OSError: If the socket's directory cannot be looked at.
    """
    place = find_place(store)
    try:
        fault = directory_fault(place.directory)
    except FileNotFoundError:
        return ServerState("ok", "none runs: recall answers in its own process", "")
    if fault is not None:
        return ServerState("warn", f"no server can be used: {fault}", "recall answers without one")
    answer = ping(store)
    fallback = read_fallback(place)
    if fallback is not None and time.time() - fallback.at_s > _RECENT_S:
        fallback = None
    if isinstance(answer, Refusal):
        return _without(answer, fallback)
    return _with(answer, fallback)


def _without(refusal: Refusal, fallback: Fallback | None) -> ServerState:
    if refusal.code != "absent":
        return ServerState(
            "warn", f"{refusal.code}: {refusal.message}", "start `noctuary serve` again"
        )
    if fallback is not None:
        return ServerState("ok", f"none runs; {_told(fallback)}", "")
    return ServerState("ok", "none runs: recall answers in its own process", "")


def _with(answer: dict[str, Any], fallback: Fallback | None) -> ServerState:
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(answer["started_s"]))
    runs = f"process {answer['pid']} answers since {since}, {answer['answered']:,} recalls"
    reason = answer.get("lean_reason")
    if reason is not None:  # servers of before did not say
        runs += f"; encodes with {f'the lean encoder: {reason}' if reason else 'ONNX Runtime'}"
    if fallback is not None and fallback.at_s >= answer["started_s"]:
        return ServerState("warn", f"{runs}; {_told(fallback)}", "see docs/serve.md, Falling back")
    return ServerState("ok", runs, "")


def _told(fallback: Fallback) -> str:
    minutes = max(time.time() - fallback.at_s, 0.0) / 60
    return f"{minutes:.0f} min ago a client fell back ({fallback.code}): {fallback.message}"
