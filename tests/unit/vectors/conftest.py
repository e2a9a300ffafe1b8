from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tier_store import ROWS, TierStore, clustered


@pytest.fixture
def store(tmp_path: Path) -> TierStore:
    return TierStore(tmp_path / "lance", clustered(ROWS))
