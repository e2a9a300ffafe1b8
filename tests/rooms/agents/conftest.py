from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents.client import Refusal
from noctuary.agents.server import Server, answer_request
from noctuary.core.store import StorePaths
from noctuary.embed.lean import LeanEncoder
from tests.support.lean import write_encoder
from tests.support.mcp import publish_owned
from tests.support.store import Store, new_store

Answer = Callable[[Path, Mapping[str, Any]], dict[str, Any] | Refusal]
StartServer = Callable[..., Server]


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of the test's own; pytest's is too deep for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="mn-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def start() -> Iterator[StartServer]:
    """Start real servers in threads of this process; all are stopped and joined at the end."""
    started: list[tuple[Server, threading.Thread]] = []

    def begin(store: Path, answer: Answer = answer_request, **options: Any) -> Server:
        server = Server(store, answer, **options)
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=(ready.set,))
        thread.start()
        started.append((server, thread))
        assert ready.wait(10)
        return server

    yield begin
    for server, thread in started:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for something that another thread or process brings about."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


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
