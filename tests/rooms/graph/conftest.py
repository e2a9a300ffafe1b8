"""Records of a test, and an office whose graph is published once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from noctuary.core.types import MemoryRecord
from tests.support.graph_look import Look, Publish, looks_into
from tests.support.graph_snapshot import GraphSpec, office, publish_graph
from tests.support.store import new_store

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


@pytest.fixture(scope="session")
def _office_snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = new_store(tmp_path_factory.mktemp("office") / "house")
    return store.snapshot(publish_graph(store, office()))


@pytest.fixture
def look(_office_snapshot: Path) -> Generator[Look]:
    """Look into the office's graph."""
    with ExitStack() as stack:
        yield looks_into(_office_snapshot, stack)


@pytest.fixture
def publish(tmp_path_factory: pytest.TempPathFactory) -> Generator[Publish]:
    """Publish a graph of the test's own and look into it."""
    with ExitStack() as stack:

        def made(spec: GraphSpec) -> Look:
            store = new_store(tmp_path_factory.mktemp("own") / "house")
            return looks_into(store.snapshot(publish_graph(store, spec)), stack)

        yield made
