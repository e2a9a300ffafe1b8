"""What a request means: its fields checked, the recall made, its result as plain values."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from noctuary import __version__
from noctuary.errors import EncoderError, StoreError
from noctuary.recall.api import recall
from noctuary.recall.query_encoder import lean_reason
from noctuary.recall.query_encoder import warm_up as load_onnx
from noctuary.recall.serving import find_serving
from noctuary.serve.protocol import REQUEST_DEADLINE_S, Refusal, settings_in_force

_TEXTS = ("wing", "room", "category", "user", "session_id")
_SWITCHES = ("explain", "candidate_trace", "dry_run")


def warm_up(store: Path) -> None:
    """Open snapshot and encoder before the first client asks; what fails, a recall will say."""
    recall("warm up", 1, store=store, dry_run=True)
    with suppress(StoreError, EncoderError, OSError):
        recaller = find_serving(store)[0].recaller
        # Why the runtime is not used changes with time: a ping asks for it (`describe_encoder`).
        load_onnx(recaller.paths, recaller.reader.manifest)


def describe_encoder(store: Path) -> dict[str, Any]:
    """Return why queries are encoded without ONNX Runtime; an empty text if it does."""
    try:
        recaller = find_serving(store)[0].recaller
        return {"lean_reason": lean_reason(recaller.paths, recaller.reader.manifest)}
    except (StoreError, EncoderError, OSError) as error:
        return {"lean_reason": str(error)}


def release_after_swaps(
    answer: Callable[[Path, Mapping[str, Any]], dict[str, Any] | Refusal],
) -> Callable[[Path, Mapping[str, Any]], dict[str, Any] | Refusal]:
    """Return the same answers, with the files of a replaced snapshot closed at once.

    A sqlite3 connection is part of a reference cycle: in a process that allocates little, the
    collector may come by only after many nights, and removed snapshots would keep their space.
    """
    seen: str | None = None

    def answer_and_release(store: Path, request: Mapping[str, Any]) -> dict[str, Any] | Refusal:
        nonlocal seen
        found = answer(store, request)
        if not isinstance(found, Refusal) and found.get("snapshot_id") != seen:
            seen = found.get("snapshot_id")
            gc.collect()
        return found

    return answer_and_release


def answer_recall(store: Path, request: Mapping[str, Any]) -> dict[str, Any] | Refusal:
    """Return the recall's result, or why this server must not or cannot answer the request.

    Args:
        store: The store that this server is for.
        request: A decoded message.
    """
    refusal = _not_for_us(store, request)
    if refusal is not None:
        return refusal
    left_ms = _left_ms(request)
    if left_ms <= 0:
        return Refusal("expired", "the client has given up: the server was too busy or stopped")
    try:
        arguments = _arguments(request, left_ms)
        result = recall(request.get("query", ""), store=store, **arguments)
    except (ValueError, TypeError) as error:
        return Refusal("invalid", f"{type(error).__name__}: the recall refuses its arguments")
    return result.to_json()


def _not_for_us(store: Path, request: Mapping[str, Any]) -> Refusal | None:
    """Refuse what would be answered differently by the client's own process."""
    if request.get("version") != __version__:
        return Refusal(
            "version",
            f"the server runs noctuary {__version__}, the client another one: restart the server",
        )
    if request.get("store") != str(store.resolve()):
        return Refusal("store", f"this server is for {store}")
    theirs, ours = request.get("settings"), settings_in_force()
    if theirs != ours:
        found: Mapping[str, Any] = theirs if isinstance(theirs, dict) else {}
        names = sorted(n for n in {*found, *ours} if found.get(n) != ours.get(n))
        return Refusal(
            "settings",
            f"client and server differ in {', '.join(names) or 'their settings'}: start the server "
            "with the client's environment",
        )
    return None


def _left_ms(request: Mapping[str, Any]) -> float:
    """Return how long the client still waits; the monotonic clock is one for all processes."""
    until = request.get("give_up_at")
    if not isinstance(until, int | float):
        return REQUEST_DEADLINE_S * 1000
    return min((until - time.monotonic()) * 1000, REQUEST_DEADLINE_S * 1000)


def _arguments(request: Mapping[str, Any], left_ms: float) -> dict[str, Any]:
    """Return the keyword arguments of `recall`.

    Raises:
        ValueError: If a field is of the wrong type or out of range.
    """
    k, deadline, as_of = request.get("k", 10), request.get("deadline_ms"), request.get("as_of")
    sort_by = request.get("sort_by", "relevance")
    wrong = [
        name
        for name, value, kind in (
            ("query", request.get("query"), str),
            ("k", k, int),
            ("sort_by", sort_by, str),
            ("as_of", as_of, str | None),
            ("deadline_ms", deadline, int | float | None),
            *((name, request.get(name, False), bool) for name in _SWITCHES),
            *((name, request.get(name), str | None) for name in _TEXTS),
        )
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
    ]
    profile: Any = request.get("profile")
    if not isinstance(profile, dict) and not isinstance(profile, str | None):
        wrong.append("profile")
    if wrong:
        raise ValueError(f"wrong type: {', '.join(wrong)}")
    return {
        "k": k,
        "sort_by": sort_by,
        "profile": profile,
        "as_of": None if as_of is None else datetime.fromisoformat(as_of),
        "deadline_ms": left_ms if deadline is None else min(deadline, left_ms),
        **{name: request.get(name, False) for name in _SWITCHES},
        **{name: request.get(name) for name in _TEXTS},
    }
