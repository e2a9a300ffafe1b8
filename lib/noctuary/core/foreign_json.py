"""Parse untrusted JSON: from an agent, an exporter or a damaged disk."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # as in `noctuary`: without `typing`
if TYPE_CHECKING:
    from typing import Any

# Deepest accepted nesting: code that walks a value (asdict, json.dumps) recurses, and Python stops
# at some 300 levels.
MOST_LEVELS = 100


def parse_json(text: str | bytes, **how: Any) -> Any:
    """Return the value of a JSON text, or raise ValueError; `how` is passed on to json.loads."""
    too_deep = ValueError(f"nested too deeply: more than {MOST_LEVELS} levels")
    try:
        value: Any = json.loads(text, **how)
    except RecursionError:
        raise too_deep from None
    opening = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    # Count first: nearly always that is enough, and faster than walking.
    if sum(text.count(mark) for mark in opening) > MOST_LEVELS:  # pyright: ignore[reportArgumentType]
        level = [value]
        for _ in range(MOST_LEVELS):
            level = [inner for outer in level for inner in _held_by(outer)]
        if any(isinstance(inner, dict | list) for inner in level):
            raise too_deep
    return value


def _held_by(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
