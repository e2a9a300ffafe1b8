"""Stores that many tests start from: built once by the real command, copied by who changes them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.e2e.driver import DONE, Ran, end_forks, run_night
from tests.e2e.stores import Bench, build_full_source, build_small_source, give_encoder
from tests.support.shared import build_once

_TIMEOUT_S = 1200
"""For one test with the nights that its fixtures run: two minutes on a quiet machine at most."""


@dataclass(frozen=True)
class FirstNight:
    """A bench after its first night, and what that night said. Not to be changed: copy it.

    Every worker of a test run has the same one before its eyes.
    """

    bench: Bench
    ran: Ran


@pytest.fixture(autouse=True)
def _no_store_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    """Let recall in this process see only what the test made."""
    for name in [n for n in os.environ if n.startswith(("NOCTUARY_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NOCTUARY_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session", autouse=True)
def _forks_end() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Leave no process behind that nights were forked from."""
    yield
    end_forks()


@pytest.fixture(scope="session")
def full_night(tmp_path_factory: pytest.TempPathFactory, small_night: FirstNight) -> FirstNight:
    """The whole sample after its first night, with the encoder that the small one exported."""

    def build(directory: Path) -> Ran:
        give_encoder(directory / "store", small_night.bench)
        as_shipped = {"NOCTUARY_EVALUATION_EXACT_QUERIES": "60"}
        return run_night(build_full_source(directory), directory / "store", extra=as_shipped)

    return _first_night(tmp_path_factory, "full", build)


@pytest.fixture(scope="session")
def small_night(tmp_path_factory: pytest.TempPathFactory) -> FirstNight:
    """A tenth of the sample after its first night, in a process and a store with nothing in it."""

    def build(directory: Path) -> Ran:
        # Of a user who has nothing yet: what a night leaves there is looked at.
        user = small_user(directory)
        for name in user.values():
            Path(name).mkdir(parents=True)
        source = build_small_source(directory)
        return run_night(source, directory / "store", extra=user, fresh=True)

    return _first_night(tmp_path_factory, "small", build)


def small_user(directory: Path) -> dict[str, str]:
    """Return where the user of the small night has their home and their temporary files."""
    places = {"HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "etc"}
    user = directory.with_name(f"{directory.name}-user")
    return {variable: str(user / name) for variable, name in places.items()}


@pytest.fixture
def small(small_night: FirstNight, tmp_path: Path) -> Bench:
    """A private copy of the small bench after its first night."""
    return small_night.bench.twin(tmp_path / "bench")


def _first_night(
    factory: pytest.TempPathFactory, name: str, run: Callable[[Path], Ran]
) -> FirstNight:
    """Run a first night, or take what another worker of this run has run."""

    def build(directory: Path) -> None:
        ran = run(directory)
        assert ran.code == DONE, ran.says
        (directory / "ran.json").write_text(json.dumps(asdict(ran)), encoding="utf-8")

    directory = build_once(factory, name, build)
    ran = Ran(**json.loads((directory / "ran.json").read_text(encoding="utf-8")))
    return FirstNight(Bench(directory / "memory.db", directory / "store"), ran)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whole nights more time than the default: they run on whatever machine there is."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
