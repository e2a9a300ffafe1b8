from __future__ import annotations

import gc
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from noctuary.core.store import StorePaths
from noctuary.embed.lean import LeanEncoder
from tests.support.claude_memory import Row, fill_database
from tests.support.lean import write_encoder
from tests.support.postgres import Cluster, cluster
from tests.support.store import Store, household, new_store

# An example that is slow on a busy machine is no failure; a hanging one meets pytest's timeout.
# `make test-all` asks for "thorough"; tests that say themselves how many they need are not changed.
settings.register_profile("noctuary", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("noctuary")

MakeDatabase = Callable[..., str]

_KEPT_VARIABLES = frozenset({"NOCTUARY_SHARED"})
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def pytest_configure(config: pytest.Config) -> None:
    """Give the workers of this run, and every process that a test starts, one thread each.

    Two workers of two threads wait for each other on two cores. A worker inherits it from the
    process that starts it, before it imports numpy or torch.
    """
    for variable in _THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    os.umask(0o077)  # as every process of ours: stores that tests build are no older ones


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case after its text without spaces, so that its id can be pasted into a shell."""
    text = val.decode("ascii", "replace") if isinstance(val, bytes) else val
    if not isinstance(text, str) or not re.search(r"\s", text):
        return None
    return re.sub(r"\W+", "-", text).strip("-") or "blank"


def pytest_collection_finish() -> None:
    """Spare the garbage collector thousands of tests, which live as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let this process's umask take no access from others, and stay so: files have to."""
    before = os.umask(0)
    yield
    assert os.umask(before) == 0


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Leave files to the page cache in this process: fsync is most of the time of a tiny build.

    Nothing here tests a power cut. Real nights run in processes of their own and are not affected.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", lambda fd: None)  # pyright: ignore[reportUnknownLambdaType]
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Let the processes that tests start share compiled modules, also where writing them is off.

    A hundred nights and commands would each compile the whole library, a second of CPU. Where they
    always lie: in a place of their own torch and Dagster would have to be compiled anew as well.
    """
    patch = pytest.MonkeyPatch()
    patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    yield
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def _nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Keep tests that name no home of their own out of the developer's."""
    patch = pytest.MonkeyPatch()
    patch.setenv("NOCTUARY_HOME", str(tmp_path_factory.mktemp("nobody")))
    yield
    patch.undo()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty noctuary home that is the configured one, and no other variable of ours."""
    for name in list(os.environ):
        if name.startswith("NOCTUARY_") and name not in _KEPT_VARIABLES:
            monkeypatch.delenv(name)
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("NOCTUARY_HOME", str(directory))
    # Nobody's own agents: a test must neither see nor change their settings.
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # nor their timers
    return directory


@pytest.fixture(scope="session")
def server() -> Iterator[Cluster]:
    """A real PostgreSQL server, one for all tests of this process; without one they skip."""
    running = cluster()
    try:
        started = running.__enter__()
    except RuntimeError as error:
        pytest.skip(f"needs a PostgreSQL server: {error}; python -m tests.support.postgres")
    yield started
    running.__exit__(None, None, None)


@pytest.fixture
def database(server: Cluster) -> MakeDatabase:
    """Make a claude-memory database from rows; return its address over the server's socket."""

    def make(rows: Iterable[Row] = (), *, schema: str | None = None) -> str:
        return fill_database(server.dsn("postgres"), rows, schema=schema)

    return make


@pytest.fixture
def empty_store(home: Path) -> Store:
    """A store that has not published, without an encoder."""
    return new_store(home / "house")


@pytest.fixture(scope="session")
def _plain_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = new_store(tmp_path_factory.mktemp("plain") / "house")
    store.publish(household())
    return store.root


@pytest.fixture(scope="session")
def _dense_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("dense") / "house"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(household())
    return store.root


@pytest.fixture
def plain_store(home: Path, _plain_template: Path) -> Store:
    """The household, published without an encoder: lexical and graph legs only."""
    root = home / "house"
    shutil.copytree(_plain_template, root)
    return Store(StorePaths(root))


@pytest.fixture
def dense_store(home: Path, _dense_template: Path) -> Store:
    """The household, published with the word-axes encoder: every leg, and one summary."""
    root = home / "house"
    shutil.copytree(_dense_template, root)
    (directory,) = (root / "encoders").iterdir()
    return Store(StorePaths(root), LeanEncoder.open(directory))
