"""The client: ask the store's server, or say that the caller has to recall itself.

What belongs here: one exchange and what became of it. Standard library only, without dataclasses
and (where the store is named) without noctuary.locate: each costs a fresh process as much as the
exchange itself.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noctuary import __version__
from noctuary.serve.fallback import note_fallback
from noctuary.serve.place import directory_fault, find_place
from noctuary.serve.protocol import (
    CLIENT_WAIT_S,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    Refusal,
    decode,
    encode,
    peer_uid,
    read_line,
    settings_in_force,
)

if TYPE_CHECKING:
    from datetime import datetime

_CONNECT_TIMEOUT_S = 0.1
"""Connecting to a unix socket takes microseconds; only a full queue of a stuck server waits."""
_GRACE_S = 0.25
"""Beyond the caller's own deadline: the way there and back and what no step can interrupt."""


def ask(
    query: str,
    k: int = 10,
    *,
    profile: str | Mapping[str, Any] | None = None,
    wing: str | None = None,
    room: str | None = None,
    category: str | None = None,
    user: str | None = None,
    sort_by: str = "relevance",
    as_of: datetime | None = None,
    explain: bool = False,
    candidate_trace: bool = False,
    dry_run: bool = False,
    deadline_ms: float | None = None,
    session_id: str | None = None,
    store: str | Path | None = None,
) -> dict[str, Any] | None:
    """Recall through the store's warm server.

    Args:
        query: Any text.
        k: How many memories at most.
        profile: The name of a profile, or flags of the configured one to replace, e.g.
            {"fusion": "rrf"}.
        wing: As in `noctuary.recall`, and so are the others below.
        room: Only memories of this room.
        category: Only memories of this category.
        user: Whose memories.
        sort_by: "relevance", "importance" or "recency".
        as_of: Only what existed at this moment.
        explain: Say what every step added to each memory's score.
        candidate_trace: Say which candidates were dropped, where and why.
        dry_run: Write nothing.
        deadline_ms: Answer with what there is after this much wall time.
        session_id: The conversation that asks.
        store: As in `noctuary.recall`; a store directory is the cheapest to look up.

    Returns:
        `RecallResult.to_json()` as `noctuary.recall` would give it, or None if no server answered:
        then call `noctuary.recall`. Never raises for a server that is absent, stuck or foreign.
    """
    try:
        found = _find_store(store)
        if found is None:
            return None
        directory, guessed = found
        place = find_place(directory)
    except (OSError, ValueError, RuntimeError):
        return None  # a path that is none, or a circle of links: the recall itself says so
    wait_s = CLIENT_WAIT_S
    if isinstance(deadline_ms, int | float) and deadline_ms >= 0:
        wait_s = min(wait_s, deadline_ms / 1000 + _GRACE_S)
    request = {
        "op": "recall", "query": query, "k": k, "profile": profile, "wing": wing, "room": room,
        "category": category, "user": user, "sort_by": sort_by,
        "as_of": as_of.isoformat() if as_of is not None else None,
        "explain": explain, "candidate_trace": candidate_trace, "dry_run": dry_run,
        "deadline_ms": deadline_ms, "session_id": session_id,
        "give_up_at": time.monotonic() + wait_s,
    }  # fmt: skip
    answer = exchange(directory, request, wait_s=wait_s)
    if isinstance(answer, Refusal):
        note_fallback(place, answer)
        return None
    return _as_in_process(answer, directory, guessed)


def ping(store: str | Path, *, wait_s: float = 1.0) -> dict[str, Any] | Refusal:
    """Ask the server of a store directory how it is: the fields are in docs/serve.md."""
    return exchange(Path(store), {"op": "ping"}, wait_s=wait_s)


def exchange(directory: Path, request: Mapping[str, Any], *, wait_s: float) -> Any | Refusal:
    """Send one request to the server of a store and return its result, or why there is none.

    Args:
        directory: The store directory.
        request: Its fields; version, settings and store are added.
        wait_s: Seconds until the whole answer must be here.
    """
    until = time.monotonic() + wait_s
    place = find_place(directory)
    try:
        if not place.socket.exists():
            return Refusal("absent", "no server runs for this store")
        fault = directory_fault(place.directory)
        if fault is not None:
            return Refusal("foreign_directory", fault)
        line = encode(
            {
                **request,
                "version": __version__,
                "settings": settings_in_force(),
                "store": str(directory.resolve()),
            }
        )
        if len(line) > MAX_REQUEST_BYTES:
            return Refusal("too_large", f"the request has {len(line):,} bytes")
        answer = _send(place.socket, line, until)
    except FileNotFoundError:
        return Refusal("absent", "no server runs for this store")
    except ConnectionRefusedError:
        return Refusal("dead", "the server was killed and left its socket: start it again")
    except (TimeoutError, BlockingIOError):
        return Refusal("timeout", f"the server did not answer within {wait_s:.2f} s")
    except (OSError, ValueError, TypeError) as error:
        return Refusal("broken", f"the exchange broke off: {type(error).__name__}")
    return answer


def _send(path: Path, line: bytes, until: float) -> Any | Refusal:
    """Exchange one line over a connection.

    Raises:
        OSError: If the connection cannot be made or breaks.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(str(path))
        if peer_uid(connection) not in (None, os.geteuid()):
            return Refusal("foreign_server", "the server belongs to another user")
        connection.settimeout(max(until - time.monotonic(), _CONNECT_TIMEOUT_S))
        # A server that is full answers before it has read: its answer says so.
        with suppress(BrokenPipeError):
            connection.sendall(line)
        received = read_line(connection, MAX_RESPONSE_BYTES, until)
    if isinstance(received, Refusal):
        return received
    message = decode(received)
    return message if isinstance(message, Refusal) else _result(message)


def _result(message: Mapping[str, Any]) -> Any | Refusal:
    error = message.get("error")
    if isinstance(error, dict):
        fields: Mapping[str, Any] = error
        return Refusal(str(fields.get("code")), str(fields.get("message")))
    result = message.get("result")
    if not isinstance(result, dict):
        return Refusal("malformed", "the answer holds neither a result nor an error")
    return result


def _find_store(store: str | Path | None) -> tuple[Path, bool] | None:
    """Return the store directory that is meant and whether it was a guess; None without one."""
    named = str(store) if store is not None else os.environ.get("NOCTUARY_STORE", "").strip()
    if named and not named.startswith("~"):
        # What noctuary.locate would answer, without its imports.
        path = Path(named)
        if (path / "CURRENT").is_file():
            return path.absolute(), False
    from noctuary.errors import NoctuaryError
    from noctuary.locate import find_home, find_store

    try:
        return find_store(store, home=find_home())
    except NoctuaryError:
        return None


def _as_in_process(result: dict[str, Any], directory: Path, guessed: bool) -> dict[str, Any]:
    """Put into the result what only the client knows: how it came to the store."""
    if result.get("store") is not None:
        result["store"] = str(directory)
    if guessed:
        warnings = result["warnings"]
        after_settings = sum(w["code"] == "bad_settings" for w in warnings)
        message = (
            f"several stores exist; {directory.name} published last. Pass store= or set "
            "NOCTUARY_STORE"
        )
        warnings.insert(after_settings, {"code": "store_guessed", "message": message})
    return result
