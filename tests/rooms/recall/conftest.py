"""One store and its two snapshots for all tests: publishing takes a second, copying does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.lean import write_encoder
from tests.support.live import Cache, age, make_cache, publish_from
from tests.support.store import Store, new_store

PATIENT_MS = "20000"  # a look on a busy machine takes longer than a prompt would wait


@pytest.fixture(scope="session")
def _cache_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cache, bytes]:
    cache = make_cache(tmp_path_factory.mktemp("live") / "memory.db")
    return cache, cache.path.read_bytes()


def _as_it_was(cache: Cache, content: bytes) -> Cache:
    for file in cache.path.parent.iterdir():
        file.unlink()
    cache.path.write_bytes(content)
    age(cache.path)
    return cache


@pytest.fixture(scope="session")
def _templates(
    tmp_path_factory: pytest.TempPathFactory, _cache_template: tuple[Cache, bytes]
) -> dict[str, Store]:
    root = tmp_path_factory.mktemp("live-stores")
    dense = root / "dense" / "house"
    stores = {
        "words": new_store(root / "words" / "house"),
        "dense": new_store(dense, encoder=write_encoder(dense / "encoders")),
    }
    for store in stores.values():
        publish_from(_as_it_was(*_cache_template), store)
    return stores


@pytest.fixture
def cache(_cache_template: tuple[Cache, bytes]) -> Cache:
    """A store of eight memories that nobody has written to for an hour."""
    return _as_it_was(*_cache_template)


def _copied(template: Store, home: Path) -> Store:
    shutil.copytree(template.root, home / "house")
    return Store(type(template.paths)(home / "house"), template.encoder, template.keep)


@pytest.fixture
def served(
    cache: Cache, home: Path, _templates: dict[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Store:
    """The store's snapshot, which serves; without an encoder."""
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", PATIENT_MS)
    return _copied(_templates["words"], home)


@pytest.fixture
def served_dense(
    cache: Cache, home: Path, _templates: dict[str, Store], monkeypatch: pytest.MonkeyPatch
) -> Store:
    """The same with an encoder."""
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", PATIENT_MS)
    return _copied(_templates["dense"], home)
