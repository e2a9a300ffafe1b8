"""Injecting and judging in tests: an answer by hand, rows of a source, the guard of a record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noctuary.context.inject import Injection, inject, wordings_of
from noctuary.core.types import MemoryRecord
from noctuary.sources.echo import EchoGuard, read_injections
from noctuary.sources.injected import append_injection

DAY_US = 86_400_000_000
INJECTED_US = 1_790_000_000_000_000
LATER_US = INJECTED_US + DAY_US


def memory(memory_id: int | str, content: str, **fields: Any) -> dict[str, Any]:
    """One memory of an answer, as `to_json` gives it."""
    return {
        "id": memory_id,
        "content": content,
        "created_at": "2026-03-01T08:00:00+00:00",
        "user": None,
        "session_id": None,
        **fields,
    }


def answer(store: Path, *memories: Mapping[str, Any], query: str = "") -> dict[str, Any]:
    """An answer, as `to_json` gives it."""
    return {"query": query, "store": str(store), "memories": list(memories), "warnings": []}


def put_in_prompt(store: Path, *memories: Mapping[str, Any], query: str = "") -> Injection:
    """Make the block of some memories and record it as injected at `INJECTED_US`."""
    path = store / "injected.sqlite"
    wordings = wordings_of(memories, query)
    assert append_injection(path, wordings, now_us=INJECTED_US) is None
    return inject(answer(store, *memories, query=query), on_record=False)


def row(content: str, memory_id: str = "900", **fields: Any) -> MemoryRecord:
    """A row that is a memory otherwise, made a day after the injection."""
    known: dict[str, Any] = {
        "position": 0, "category": "", "tags": "", "expanded_keywords": "", "importance": 0.5,
        "created_at_us": LATER_US, "updated_at_us": LATER_US, "session_id": None, "wing": None,
        "room": None, "user": None, "is_turn": False, "content_hash": "",
    }  # fmt: skip
    known |= {"memory_id": memory_id, "content": content, **fields}
    return MemoryRecord(**known)


def guard_of(store: Path, exported: Mapping[str, bytes] | None = None) -> EchoGuard:
    """The guard of what was injected so far."""
    known = read_injections(store / "injected.sqlite")
    assert known.fault is None
    return EchoGuard(known, exported)
