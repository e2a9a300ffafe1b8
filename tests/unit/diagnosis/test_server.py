from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents import client
from noctuary.agents.client import Refusal
from noctuary.agents.server import Place, Server, answer_request, find_place
from noctuary.cli.store import Finding, look_at_server
from tests.support.store import Store

DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of the test's own; pytest's is too deep for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="mn-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def place(plain_store: Store) -> Place:
    """The store's place, as a server would have left it."""
    found = find_place(plain_store.root)
    found.directory.mkdir(mode=0o700)
    return found


@pytest.fixture
def running(plain_store: Store) -> Iterator[Server]:
    """A server that answers."""
    server, ready = Server(plain_store.root, answer_request), threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(10)
    yield server
    server.stop()
    thread.join(10)


def write_note(place: Place, at_s: float) -> None:
    note = Refusal("busy", "every thread is taken")._asdict()
    place.fallback.write_text(json.dumps({**note, "at_s": at_s}))


def test_no_server_is_the_ordinary_case(plain_store: Store) -> None:
    state = look_at_server(plain_store.root)
    assert state == Finding("server", "ok", "none runs: recall answers in its own process")


def test_a_server_that_runs_is_named(plain_store: Store, running: Server) -> None:
    state = look_at_server(plain_store.root)
    assert state.level == "ok"
    assert state.message.startswith(f"process {os.getpid()} answers since ")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("", "; encodes with ONNX Runtime"),
        ("no export", "; encodes with the lean encoder: no export"),
        (None, " recalls"),
    ],
)
def test_a_server_tells_why_it_encodes_as_it_does(
    plain_store: Store, monkeypatch: pytest.MonkeyPatch, reason: str | None, told: str
) -> None:
    said = {} if reason is None else {"lean_reason": reason}

    def directory_fault(_: Path) -> None:
        return None

    def ping(_: Path) -> dict[str, Any]:
        return {"pid": 1, "started_s": 0.0, "answered": 0, **said}

    monkeypatch.setattr(client, "directory_fault", directory_fault)
    monkeypatch.setattr(client, "ping", ping)
    state = look_at_server(plain_store.root)
    assert state.level == "ok"
    assert state.message.endswith(told)


def test_a_fallback_from_the_running_server_is_a_warning(
    plain_store: Store, running: Server
) -> None:
    write_note(running.place, time.time())
    state = look_at_server(plain_store.root)
    assert state.level == "warn"
    assert "(busy): every thread is taken" in state.message
    assert state.remedy


def test_a_fallback_before_the_server_s_start_is_over(plain_store: Store, running: Server) -> None:
    write_note(running.place, time.time() - 60)
    assert look_at_server(plain_store.root).level == "ok"


def test_a_recent_fallback_is_told_even_without_a_server(plain_store: Store, place: Place) -> None:
    write_note(place, time.time() - 120)
    assert "2 min ago a client fell back (busy)" in look_at_server(plain_store.root).message
    write_note(place, time.time() - 2 * DAY_S)
    assert look_at_server(plain_store.root).message.startswith("none runs: ")


def test_a_killed_server_s_socket_is_a_warning(plain_store: Store, place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket))
    state = look_at_server(plain_store.root)
    assert (state.level, state.remedy) == ("warn", "start `noctuary serve` again")
    assert state.message.startswith("dead: ")


def test_a_directory_that_is_open_to_others_is_a_warning(plain_store: Store, place: Place) -> None:
    place.directory.chmod(0o755)
    state = look_at_server(plain_store.root)
    assert state.level == "warn"
    assert "open to others" in state.message
