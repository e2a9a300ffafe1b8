"""Stores that many tests start from: built once by the real command, copied by who changes them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.driver import DONE, Ran, run_night
from tests.e2e.stores import Bench, build_full_source, build_small_source

_TIMEOUT_S = 1200
"""For one test with the nights that its fixtures run: two minutes on a quiet machine at most."""


@dataclass(frozen=True)
class FirstNight:
    """A bench after its first night, and what that night said. Not to be changed: copy it."""

    bench: Bench
    ran: Ran


@pytest.fixture(autouse=True)
def _no_store_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let recall in this process see only what the test made."""
    for name in [n for n in os.environ if n.startswith(("MNEMON_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MNEMON_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def full_night(tmp_path_factory: pytest.TempPathFactory) -> FirstNight:
    """The whole sample after its first night."""
    directory = tmp_path_factory.mktemp("full")
    return _first_night(Bench(build_full_source(directory), directory / "store"))


@pytest.fixture(scope="session")
def small_night(tmp_path_factory: pytest.TempPathFactory) -> FirstNight:
    """A tenth of the sample after its first night."""
    directory = tmp_path_factory.mktemp("small")
    return _first_night(Bench(build_small_source(directory), directory / "store"))


@pytest.fixture
def small(small_night: FirstNight, tmp_path: Path) -> Bench:
    """A private copy of the small bench after its first night."""
    return small_night.bench.twin(tmp_path / "bench")


def _first_night(bench: Bench) -> FirstNight:
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says
    return FirstNight(bench, ran)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whole nights more time than the default: they run on whatever machine there is."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
