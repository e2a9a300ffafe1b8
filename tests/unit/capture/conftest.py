from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.feed_store import HOUR_US, FeedStore


@pytest.fixture
def store(tmp_path: Path) -> FeedStore:
    """A store of four rows, the clock two hours after they were written."""
    made = FeedStore(tmp_path / "store.db")
    for number in range(4):
        made.insert(f"The lamp number {number} stands on the shelf.")
    made.wait(2 * HOUR_US)
    return made


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """Where the replica goes."""
    return tmp_path / "home" / "replica.sqlite"
