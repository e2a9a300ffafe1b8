"""A record of a test, and an office whose graph is published once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from noctuary.core.types import MemoryRecord
from tests.support.graph_look import Look, Publish, looks_into
from tests.support.graph_snapshot import GraphSpec, office, publish_graph
from tests.support.store import memory, new_store


def record(position: int, content: str, **fields: object) -> MemoryRecord:
    """Make a memory from a position, a content and whatever else matters to the test."""
    created = 1_000 * (position + 1)
    values: dict[str, object] = {
        "position": position,
        "memory_id": f"m{position}",
        "created_at_us": created,
        "updated_at_us": created + 1,
        "content_hash": f"hash{position}",
    }
    return memory(content, **{**values, **fields})


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
