from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.damage import Bench, good_candidate
from tests.support.store import Store


@pytest.fixture(scope="session")
def _good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    return good_candidate(tmp_path_factory.mktemp("checks") / "house")


@pytest.fixture
def bench(_good: tuple[Store, Path], tmp_path: Path) -> Bench:
    """A copy of a good candidate that a test may damage."""
    store, candidate = _good
    directory = tmp_path / "candidate"
    shutil.copytree(candidate, directory)
    return Bench(directory, store)
