from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.archive import copy_archive_store, new_archive_store
from tests.support.lean import write_encoder
from tests.support.store import Store


@pytest.fixture(scope="session")
def archive_template(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store that serves `versions`; built once, to be copied."""
    root = tmp_path_factory.mktemp("archive") / "house"
    return new_archive_store(root, write_encoder(root / "encoders"))


@pytest.fixture
def store(archive_template: Store, tmp_path: Path) -> Store:
    """A private copy of that store."""
    return copy_archive_store(archive_template, tmp_path / "house")
