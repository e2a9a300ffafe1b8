from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noctuary.core.store import StorePaths
from noctuary.embed.lean import LeanEncoder
from tests.support.lean import write_encoder
from tests.support.mcp import publish_owned
from tests.support.store import Store, new_store


@pytest.fixture(scope="session")
def _owned_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("owned") / "shared"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    publish_owned(store)
    return store.root


@pytest.fixture
def owned_store(home: Path, _owned_template: Path) -> Store:
    """Memories of ana, of ben and of nobody, alike and in a wing each."""
    root = home / "shared"
    shutil.copytree(_owned_template, root)
    (directory,) = (root / "encoders").iterdir()
    return Store(StorePaths(root), LeanEncoder.open(directory))
