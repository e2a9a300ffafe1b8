"""Hooks: functions of the caller's that watch a recall or a night and change nothing.

A hook gets a copy of the facts, so that writing to it changes nothing; one that raises is reported
as a warning. Without hooks every call is one look into an empty dictionary.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any

HOOK_NAMES = (
    "post_model_guard",
    "post_cross_wing",
    "post_score_event",
    "post_batch",
    "post_compaction_plan",
)
"""When a hook may run; see RFC 914, phases 10 to 14."""

Hook = Callable[[dict[str, Any]], object]

_hooks: dict[str, tuple[Hook, ...]] = {}
_lock = threading.Lock()


def register_hook(name: str, function: Hook) -> Callable[[], None]:
    """Call a function with a dictionary of facts whenever something happened, in this process.

    Args:
        name: One of `HOOK_NAMES`.
        function: Takes one dictionary. What it returns is ignored, what it raises becomes a
            warning of the recall ("hook_failed").

    Returns:
        A function that takes the hook away again; calling it twice is harmless.

    Raises:
        ValueError: If there is no such hook.
    """
    if name not in HOOK_NAMES:
        raise ValueError(f"hook must be one of {', '.join(HOOK_NAMES)}, found {name!r}")
    # Wrapped, so that the same function registered twice is two hooks that go one at a time.
    entry: Hook = lambda context: function(context)  # noqa: E731

    def unregister() -> None:
        with _lock:
            _hooks[name] = tuple(h for h in _hooks.get(name, ()) if h is not entry)

    with _lock:
        _hooks[name] = (*_hooks.get(name, ()), entry)
    return unregister


def has_hooks(name: str) -> bool:
    """Tell whether anybody listens, so that a context need not be made for nobody."""
    return bool(_hooks.get(name))


def fire(name: str, context: Mapping[str, Any]) -> list[str]:
    """Call every hook of a name with its own copy of the facts; return what went wrong."""
    faults: list[str] = []
    for hook in _hooks.get(name, ()):
        try:
            hook(copy.deepcopy(dict(context)))
        except Exception as error:
            faults.append(f"a {name} hook raised {type(error).__name__}: {error}")
    return faults
