from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents import server as server_module
from noctuary.agents.client import (
    MAX_REQUEST_BYTES,
    Refusal,
    decode,
    directory_fault,
    encode,
    exchange,
    ping,
)
from noctuary.agents.server import Server, find_place, give_back
from noctuary.core.errors import StoreError, StoreLockedError
from noctuary.core.store import ARRAYS_FILE, VECTORS_FILE
from tests.rooms.agents.conftest import wait_until
from tests.support.descriptors import mapped_kb
from tests.support.store import Store

StartServer = Callable[..., Server]


def echo(_: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer with what was asked: these tests are about connections."""
    return {"echo": request.get("query")}


def send_raw(store: Path, sent: bytes, *, close: bool = True) -> dict[str, Any]:
    """Send bytes as they are and return the message that comes back."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(find_place(store).socket))
        try:
            connection.sendall(sent)
            if close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has been refused already
        received = b""
        while part := connection.recv(65536):
            received += part
    message = decode(received)
    assert isinstance(message, dict)
    return message


def ask_echo(store: Path, text: str) -> Any:
    return exchange(store, {"op": "recall", "query": text}, wait_s=10)


def refused(answer: Any) -> str:
    """The code of a refusal."""
    assert isinstance(answer, Refusal), answer
    return answer.code


def test_socket_and_directory_are_the_owner_s_alone(tmp_path: Path, start: StartServer) -> None:
    directory = find_place(tmp_path).directory
    directory.mkdir()
    directory.chmod(0o777)  # a lax directory of one's own is closed
    place = start(tmp_path, echo).place
    assert stat.S_IMODE(place.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(place.socket.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused_by_both_sides(tmp_path: Path) -> None:
    place = find_place(tmp_path)
    place.directory.mkdir(mode=0o700)
    place.socket.touch()
    os.chown(place.directory, 65534, 65534)
    with pytest.raises(StoreError, match="belongs to user 65534"):
        Server(tmp_path, echo).run()
    assert refused(ask_echo(tmp_path, "x")) == "foreign_directory"


def test_a_process_of_another_user_gets_no_answer(tmp_path: Path, start: StartServer) -> None:
    start(tmp_path, echo, owner=os.geteuid() + 1)
    assert refused(ask_echo(tmp_path, "x")) == "foreign_client"


def test_a_second_server_says_which_process_answers(tmp_path: Path, start: StartServer) -> None:
    start(tmp_path, echo)
    with pytest.raises(StoreLockedError, match=rf"process {os.getpid()}\) already answers"):
        Server(tmp_path, echo).run()
    assert ask_echo(tmp_path, "still there") == {"echo": "still there"}


def test_the_socket_of_a_dead_server_is_replaced(tmp_path: Path, start: StartServer) -> None:
    place = find_place(tmp_path)
    place.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket))
    assert refused(ask_echo(tmp_path, "x")) == "dead"
    start(tmp_path, echo)
    assert ask_echo(tmp_path, "x") == {"echo": "x"}


BAD_REQUESTS = [
    (b"", "half"), (b'{"noctuary": 2, "op": "recall"', "half"), (b"\n", "malformed"),
    (b"GET / HTTP/1.1\r\n\r\n", "malformed"), (b"\x00\xff\n", "malformed"),
    (b"[" * 50_000 + b"\n", "malformed"), (b'{"noctuary": 7, "op": "recall"}\n', "protocol"),
    (b'{"noctuary": 2}\n', "malformed"), (b'{"noctuary": 2, "op": ["recall"]}\n', "malformed"),
    (b'"' + b"x" * MAX_REQUEST_BYTES + b'"\n', "too_large"),
]  # fmt: skip


def test_a_bad_request_is_an_error_and_harms_nobody(tmp_path: Path, start: StartServer) -> None:
    start(tmp_path, echo)
    for sent, code in BAD_REQUESTS:
        error = send_raw(tmp_path, sent)["error"]
        assert error["code"] == code
        assert error["message"]
        assert ask_echo(tmp_path, "next") == {"echo": "next"}
    silent = send_raw(tmp_path, b'{"noctuary"', close=False)
    assert silent["error"]["code"] == "timeout", "a client that sends nothing is let go"


def test_clients_that_leave_early_harm_nobody(tmp_path: Path, start: StartServer) -> None:
    def answer_at_length(*_: Any) -> dict[str, Any]:
        return {"big": "x" * 10_000_000}

    start(tmp_path, answer_at_length)
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(find_place(tmp_path).socket))
            connection.sendall(encode({"op": "recall"}))
    assert isinstance(ping(tmp_path, wait_s=10), dict)


def test_who_does_not_read_its_answer_holds_no_turn(tmp_path: Path, start: StartServer) -> None:
    def answer_at_length(*_: Any) -> dict[str, Any]:
        return {"big": "x" * 10_000_000}

    start(tmp_path, answer_at_length, clients=1)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(find_place(tmp_path).socket))
        slow.sendall(encode({"op": "recall"}))
        assert slow.recv(1) == b"{", "the rest is never read"
        assert isinstance(ping(tmp_path), dict)


def test_a_defect_is_an_error_without_its_text(tmp_path: Path, start: StartServer) -> None:
    def defect(_: Path, request: Mapping[str, Any]) -> dict[str, Any]:
        raise RuntimeError(request["query"])

    start(tmp_path, defect)
    answer = ask_echo(tmp_path, "a secret")
    assert refused(answer) == "internal"
    assert "secret" not in answer.message
    assert isinstance(ping(tmp_path), dict)


def test_clients_beyond_the_bound_are_refused_and_the_others_answered(
    tmp_path: Path, start: StartServer
) -> None:
    gate = threading.Event()

    def slow(_: Path, request: Mapping[str, Any]) -> dict[str, Any]:
        assert gate.wait(10)
        return {"echo": request["query"]}

    start(tmp_path, slow, clients=2)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(ask_echo, tmp_path, text) for text in ("0", "1")]
        assert refused(_ask_until_busy(tmp_path)) == "busy"
        gate.set()
    assert [answer.result()["echo"] for answer in answers] == ["0", "1"]
    assert ask_echo(tmp_path, "after") == {"echo": "after"}


def _ask_until_busy(store: Path) -> Any:
    """Ping until both threads are taken: a ping needs one as well, and gives it back."""
    until = time.monotonic() + 10
    while isinstance(answer := ping(store), dict) and time.monotonic() < until:
        time.sleep(0.01)
    return answer


def test_stopping_finishes_what_runs(tmp_path: Path, start: StartServer) -> None:
    entered, gate = threading.Event(), threading.Event()

    def slow(*_: Any) -> dict[str, Any]:
        entered.set()
        assert gate.wait(10)
        return {"done": True}

    server = start(tmp_path, slow)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask_echo, tmp_path, "x")
        assert entered.wait(10)
        server.stop()
        while server.place.socket.exists():
            time.sleep(0.01)
        assert refused(ask_echo(tmp_path, "too late")) == "absent"
        gate.set()
    assert answer.result() == {"done": True}


def test_nobody_asking_ends_it_and_requests_keep_it(tmp_path: Path) -> None:
    server = Server(tmp_path, echo, idle_s=0.6)
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(server.run)
        for _ in range(12):
            time.sleep(0.1)
            ping(tmp_path)
        assert not end.done()
        assert end.result(10) == "idle"
    assert not server.place.socket.exists()


def test_it_rests_once_after_each_request_that_was_the_last(
    tmp_path: Path, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_REST_S", 0.05)
    monkeypatch.setattr(server_module, "_TICK_S", 0.02)
    rested: list[Path] = []
    start(tmp_path, echo, rest=rested.append)
    for times in (1, 2):
        assert wait_until(lambda: len(rested) == times)  # noqa: B023 (asked at once)
        time.sleep(0.2)
        assert rested == [tmp_path] * times
        ping(tmp_path)


def test_a_resting_server_gives_its_files_back_and_answers_as_before(
    dense_store: Store, start: StartServer
) -> None:
    start(dense_store.root)
    question = {"op": "recall", "query": "spare key", "k": 3, "dry_run": True}
    before = exchange(dense_store.root, question, wait_s=10)
    (directory,) = dense_store.paths.snapshots.iterdir()
    files = [directory / name for name in (ARRAYS_FILE, VECTORS_FILE)]
    assert all(map(mapped_kb, files))
    give_back(dense_store.root)
    assert not any(map(mapped_kb, files))
    after = exchange(dense_store.root, question, wait_s=10)
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert after["memories"] == before["memories"] != []


def test_a_server_whose_socket_was_removed_makes_room(tmp_path: Path) -> None:
    ready, server = threading.Event(), Server(tmp_path, echo)
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(server.run, ready.set)
        assert ready.wait(10)
        server.place.socket.unlink()
        assert end.result(10) == "socket_gone"


def pinged(store: Path) -> dict[str, Any]:
    found = ping(store)
    assert isinstance(found, dict)
    return found


def test_a_ping_says_who_answers_and_counts_recalls(tmp_path: Path, start: StartServer) -> None:
    start(tmp_path, echo)
    ask_echo(tmp_path, "x")
    ping(tmp_path)
    found = pinged(tmp_path)
    assert (found["pid"], found["store"], found["answered"]) == (os.getpid(), str(tmp_path), 1)


SUN_PATH_BYTES = 104  # the shorter of Linux's 108 and macOS's 104, the closing NUL included


def test_two_spellings_of_a_store_have_one_place_and_two_stores_have_two(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert find_place(tmp_path / "store") == find_place(tmp_path / "link")
    assert find_place(tmp_path / "store") == find_place(str(tmp_path / "x" / ".." / "store"))
    assert find_place(tmp_path / "store") != find_place(tmp_path / "other")


def test_the_user_s_runtime_directory_comes_first_then_a_temporary_one() -> None:
    uid = os.geteuid()
    assert find_place("/s", {"XDG_RUNTIME_DIR": "/run/me"}).directory == Path("/run/me/noctuary")
    assert find_place("/s", {"TMPDIR": "/var/tmp"}).directory == Path(f"/var/tmp/noctuary-{uid}")
    for ignored in ("", "relative/dir", "  "):
        place = find_place("/s", {"XDG_RUNTIME_DIR": ignored})
        assert place.directory == Path(f"/tmp/noctuary-{uid}")


@given(
    runtime=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200),
    temporary=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200),
    store=st.text("abc/é", max_size=300),
)
def test_the_socket_s_path_always_fits(runtime: str, temporary: str, store: str) -> None:
    environ = {"XDG_RUNTIME_DIR": f"/{runtime}", "TMPDIR": f"/{temporary}"}
    assert len(os.fsencode(find_place(f"/{store}", environ).socket)) < SUN_PATH_BYTES


def test_only_a_private_directory_of_one_s_own_has_no_fault(tmp_path: Path) -> None:
    mine, link, file = tmp_path / "mine", tmp_path / "link", tmp_path / "file"
    mine.mkdir(mode=0o700)
    assert directory_fault(mine) is None
    link.symlink_to(mine)
    file.touch()
    for other in (link, file):
        assert "not a directory" in str(directory_fault(other))
    with pytest.raises(FileNotFoundError):
        directory_fault(tmp_path / "nothing")
    for mode in (0o770, 0o707, 0o755, 0o701):
        mine.chmod(mode)
        assert f"{mode:04o}" in str(directory_fault(mine))
    mine.chmod(0o700)
    foreign = mine if os.geteuid() == 0 else Path("/")
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
    assert "belongs to user" in str(directory_fault(foreign))
