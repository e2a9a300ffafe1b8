from __future__ import annotations

from collections.abc import Callable

import pytest

from noctuary.core.types import MemoryRecord

RecordFactory = Callable[..., MemoryRecord]


@pytest.fixture
def record() -> RecordFactory:
    """Make a memory from a position, a content and whatever else matters to the test."""

    def make(position: int, content: str, **fields: object) -> MemoryRecord:
        values: dict[str, object] = {
            "position": position,
            "memory_id": f"m{position}",
            "content": content,
            "category": "facts",
            "tags": "",
            "expanded_keywords": "",
            "importance": 0.5,
            "created_at_us": 1_000 * (position + 1),
            "updated_at_us": 1_000 * (position + 1) + 1,
            "session_id": None,
            "wing": None,
            "room": None,
            "user": None,
            "is_turn": False,
            "content_hash": f"hash{position}",
        }
        return MemoryRecord(**{**values, **fields})  # pyright: ignore[reportArgumentType]

    return make
