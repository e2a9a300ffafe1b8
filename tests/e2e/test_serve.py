"""The warm server as it is run: processes that start, ask, swap, kill and are told apart."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents.client import LIFETIME_S, MAX_REQUEST_BYTES, Refusal, ask, ping
from noctuary.agents.server import MAX_CONNECTIONS, MAX_HELD_BYTES, find_place, read_fallback
from tests.support.hook_runner import Case, run_cases
from tests.support.store import Store, household, memory, renumber

NOBODY = 65534
PROMPT = "where is the spare key?"
_NOCTUARY = [sys.executable, "-m", "noctuary.cli.main"]
_CLIENT = """
import json, sys
from noctuary.agents.client import ask
for _ in range(int(sys.argv[3])):
    print(json.dumps(ask(sys.argv[2], 3, store=sys.argv[1])))
"""

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of the test's own; pytest's is too deep for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="mn-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start `noctuary serve` and wait until it answers; whatever still runs is ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(store: Store, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*_NOCTUARY, "serve", "--store", str(store.root), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert "answers for" in process.stdout.readline()
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def noctuary(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_NOCTUARY, *arguments], capture_output=True, text=True, check=False)


def recall_json(store: Store, query: str, *options: str) -> dict[str, Any]:
    """What `noctuary recall --json` prints, without its times."""
    done = noctuary("recall", query, "--store", str(store.root), "--json", *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result = json.loads(done.stdout)
    result["phase_timing_ms"] = sorted(result["phase_timing_ms"])
    return result


def start_client(store: Store, query: str, times: int = 1) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(store.root), query, str(times)],
        stdout=subprocess.PIPE,
        text=True,
    )


def answers_of(client: subprocess.Popen[str]) -> list[Any]:
    printed, _ = client.communicate(timeout=60)
    assert client.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


def doctor_says(store: Store) -> dict[str, str]:
    findings = json.loads(noctuary("doctor", "--store", str(store.root), "--json").stdout)[
        "findings"
    ]
    return next(f for f in findings if f["name"] == "server")


def logged(store: Store) -> int:
    if not store.paths.access_log.exists():
        return 0
    with closing(sqlite3.connect(store.paths.access_log)) as log:
        return log.execute("SELECT COUNT(*) FROM retrievals").fetchone()[0]


def end(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    return process.wait(20)


@pytest.mark.parametrize(
    "options", [(), ("-k", "2", "--wing", "home"), ("--fusion", "rrf"), ("--sort-by", "recency")]
)
def test_the_command_answers_the_same_with_and_without_a_server(
    dense_store: Store, serve: Serve, options: tuple[str, ...]
) -> None:
    serve(dense_store)
    warm = recall_json(dense_store, "spare key", "--user", "ana", *options)
    assert logged(dense_store) == len(warm["memories"]), "logged once"
    cold = recall_json(dense_store, "spare key", "--user", "ana", "--no-server", *options)
    assert (warm.pop("served_by"), cold.pop("served_by")) == ("server", "process")
    assert warm == cold
    assert warm["memories"]


def test_what_is_printed_for_people_is_the_same_too(dense_store: Store, serve: Serve) -> None:
    serve(dense_store)
    asked = ("recall", "spare key", "--store", str(dense_store.root))
    warm, cold = noctuary(*asked), noctuary(*asked, "--no-server")
    assert warm.stdout == cold.stdout
    assert warm.stderr == cold.stderr
    said = doctor_says(dense_store)["message"]
    assert "answered 1 recalls" in said


def test_many_processes_at_once_get_their_own_answers(dense_store: Store, serve: Serve) -> None:
    queries = ["spare key", "feline", "Atlas migration", "boiler valve", "flight Lisbon", "door"]
    expected = {q: recall_json(dense_store, q, "-k", "3", "--no-server") for q in queries}
    before = logged(dense_store)
    serve(dense_store)
    clients = {q: start_client(dense_store, q, times=10) for q in queries}
    returned = 0
    for query, client in clients.items():
        for answer in answers_of(client):
            assert answer is not None
            assert answer["memories"] == expected[query]["memories"]
            returned += len(answer["memories"])
    assert returned == logged(dense_store) - before


def test_a_swap_under_load_is_followed_without_a_lost_answer(
    plain_store: Store, serve: Serve
) -> None:
    process = serve(plain_store)
    clients = [start_client(plain_store, "spare key", times=100) for _ in range(3)]
    published: list[str] = []
    for night in range(4):
        extra = memory(f"The spare key was moved to shelf {night}.")
        published.append(plain_store.publish(renumber([*household(), extra])))
        answer = recall_json(plain_store, "spare key moved to shelf")
        assert answer["served_by"] == "server"
        assert answer["snapshot_id"] == published[-1]
        assert any(f"shelf {night}." in m["content"] for m in answer["memories"])
    for client in clients:
        answers = answers_of(client)
        assert len(answers) == 100
        assert all(answer and answer["memories"] for answer in answers)
    assert process.poll() is None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_swaps_leave_no_open_files_behind(plain_store: Store, serve: Serve) -> None:
    process = serve(plain_store)
    counts: list[int] = []
    for night in range(6):
        plain_store.publish(renumber([*household(), memory(f"Night {night}.")]))
        assert recall_json(plain_store, "night")["served_by"] == "server"
        counts.append(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))
    assert counts[-1] <= counts[0] + 1, counts


def test_a_killed_server_is_missed_by_the_doctor_only(dense_store: Store, serve: Serve) -> None:
    before = recall_json(dense_store, "spare key", "--no-server")
    process = serve(dense_store)
    assert end(process, signal.SIGKILL) == -signal.SIGKILL
    assert find_place(dense_store.root).socket.exists(), "nobody could remove it"
    assert answers_of(start_client(dense_store, "spare key")) == [None]
    assert recall_json(dense_store, "spare key") == before
    found = doctor_says(dense_store)
    assert found["level"] == "warn"
    assert "dead" in found["message"]
    serve(dense_store)
    assert recall_json(dense_store, "spare key")["served_by"] == "server"
    assert doctor_says(dense_store)["level"] == "ok"


def test_a_stopped_server_does_not_hold_a_client_up_and_does_not_log_what_nobody_waits_for(
    dense_store: Store, serve: Serve
) -> None:
    process = serve(dense_store)
    process.send_signal(signal.SIGSTOP)
    answer = recall_json(dense_store, "spare key", "--deadline-ms", "2000")
    assert answer["served_by"] == "process"
    rows = logged(dense_store)
    process.send_signal(signal.SIGCONT)
    assert recall_json(dense_store, "spare key", "--dry-run")["served_by"] == "server"
    assert logged(dense_store) == rows
    assert "(timeout)" in doctor_says(dense_store)["message"]


def test_a_hook_is_not_held_up_by_a_stopped_server(
    dense_store: Store, home: Path, serve: Serve
) -> None:
    process = serve(dense_store)
    process.send_signal(signal.SIGSTOP)
    event = {"hook_event_name": "UserPromptSubmit", "cwd": "/p", "transcript_path": None}
    environ = {"NOCTUARY_HOME": str(home), "NOCTUARY_STORE": str(dense_store.root)}
    cases = [
        Case(
            "claude",
            json.dumps({**event, "session_id": f"s{n}", "prompt": PROMPT}).encode(),
            environ,
        )
        for n in range(3)
    ]
    answers = list(run_cases(cases))
    for done in answers:
        assert done.code == 0
        assert done.took_ms < LIFETIME_S * 1000, "it did not wait for the server to the end"
    assert any(b"blue door" in done.stdout for done in answers), "its own process answers"
    noted = read_fallback(find_place(dense_store.root))
    assert noted is not None
    assert noted.code == "timeout"


@contextmanager
def connections(store: Store, sent: Sequence[bytes]) -> Generator[None]:
    """Connect once for each of some beginnings of a request, and leave it at that."""
    with ExitStack() as stack:
        for part in sent:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(2)
            with suppress(OSError):  # refused: before it has sent all, or at the door
                connection.connect(str(find_place(store.root).socket))
                connection.sendall(part)
        yield


def test_silent_clients_hold_nobody_up(dense_store: Store, serve: Serve) -> None:
    serve(dense_store, "--clients", "1")
    with connections(dense_store, [b"", b'{"noctuary": 2, "op": "rec'] * 60):
        for _ in range(3):
            found = ask("spare key", 3, store=dense_store.root)
            assert found is not None, "answered by the server, before the silent ones are ended"
            assert found["memories"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory in /proc")
def test_connections_and_what_they_hold_are_bounded(dense_store: Store, serve: Serve) -> None:
    process = serve(dense_store)
    ask("spare key", store=dense_store.root)
    before = peak_bytes(process.pid)
    with connections(dense_store, [b"x" * (MAX_REQUEST_BYTES - 1)] * 200):
        pass
    until, code = time.monotonic() + 20, ""
    while code != "busy":  # they last a second: less than a busy machine may need to make them
        assert time.monotonic() < until
        with connections(dense_store, [b""] * (MAX_CONNECTIONS + 1)):
            answer = ping(dense_store.root)
            code = answer.code if isinstance(answer, Refusal) else ""
    assert peak_bytes(process.pid) - before < 2 * MAX_HELD_BYTES
    until = time.monotonic() + 10
    while (found := recall_json(dense_store, "spare key"))["served_by"] != "server":
        assert time.monotonic() < until
    assert found["memories"]


def peak_bytes(pid: int) -> int:
    """The most memory that a process has ever had."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_on_a_signal(plain_store: Store, serve: Serve, number: int) -> None:
    process = serve(plain_store)
    assert recall_json(plain_store, "key")["served_by"] == "server"
    assert end(process, number) == 0
    assert not find_place(plain_store.root).socket.exists()
    assert recall_json(plain_store, "key")["served_by"] == "process"
    assert doctor_says(plain_store)["message"].startswith("none runs: ")


def test_it_ends_when_nobody_asks(plain_store: Store, serve: Serve) -> None:
    process = serve(plain_store, "--idle-minutes", "0.01")
    assert process.wait(20) == 0
    assert not find_place(plain_store.root).socket.exists()


def test_a_second_server_has_an_exit_code_of_its_own(plain_store: Store, serve: Serve) -> None:
    process = serve(plain_store)
    second = noctuary("serve", "--store", str(plain_store.root))
    assert second.returncode == 4
    assert f"another server (process {process.pid}) already answers" in second.stderr
    third = noctuary("serve", "--store", str(plain_store.root), "--json")
    assert third.returncode == 4
    assert json.loads(third.stdout)["error"] == "StoreLockedError"
    assert recall_json(plain_store, "key")["served_by"] == "server"


def test_with_json_it_says_in_one_object_where_it_listens(plain_store: Store) -> None:
    process = subprocess.Popen(
        [*_NOCTUARY, "serve", "--json", "--idle-minutes", "0.02", "--store", str(plain_store.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(printed) == {
        "store": str(plain_store.root),
        "pid": process.pid,
        "socket": str(find_place(plain_store.root).socket),
    }


def test_no_text_of_a_query_or_a_memory_is_written_or_said(
    plain_store: Store, serve: Serve, runtime: Path
) -> None:
    process = serve(plain_store)
    answers_of(start_client(plain_store, "spare key canary-7731", times=3))
    with socket.socket(socket.AF_UNIX) as bad:
        bad.connect(str(find_place(plain_store.root).socket))
        bad.sendall(b'{"canary-7731": \n')
        assert b"canary" not in bad.recv(65536)
    end(process, signal.SIGKILL)
    answers_of(start_client(plain_store, "spare key canary-7731"))
    said = "".join(process.communicate())
    files = [p.read_bytes() for p in runtime.rglob("*") if p.is_file()]
    assert files
    for word in ("canary", "blue door"):
        assert word not in said
        assert not any(word.encode() in content for content in files)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_is_kept_out_and_answered_nothing_even_if_let_in(
    plain_store: Store, serve: Serve, runtime: Path
) -> None:
    serve(plain_store)
    place = find_place(plain_store.root)
    assert _as_nobody(place.socket) == "PermissionError"
    for path, mode in ((runtime, 0o755), (place.directory, 0o755), (place.socket, 0o666)):
        path.chmod(mode)
    assert "foreign_client" in _as_nobody(place.socket)
    assert recall_json(plain_store, "key")["served_by"] == "process", "its directory is open"


def _as_nobody(path: Path) -> str:
    """Connect in a process of another user; what came back, or the name of the error."""
    code = (
        "import os, socket, sys\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "c = socket.socket(socket.AF_UNIX)\n"
        "try:\n"
        "    c.connect(sys.argv[1])\n"
        # The server may have refused and hung up before anything is sent; its answer is there.
        "    try:\n"
        '        c.sendall(b\'{"noctuary": 2, "op": "ping"}\\n\')\n'
        "    except BrokenPipeError:\n"
        "        pass\n"
        "    print(c.recv(65536).decode())\n"
        "except OSError as error:\n"
        "    print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(plain_store: Store) -> None:
    place = find_place(plain_store.root)
    place.directory.mkdir(mode=0o700)
    os.chown(place.directory, NOBODY, NOBODY)
    done = noctuary("serve", "--store", str(plain_store.root))
    assert done.returncode == 1
    assert f"belongs to user {NOBODY}" in done.stderr
    assert recall_json(plain_store, "key")["served_by"] == "process"
    assert doctor_says(plain_store)["level"] == "warn"


def test_a_store_that_has_not_published_yet_is_served_once_it_has(
    empty_store: Store, serve: Serve
) -> None:
    serve(empty_store)
    missing = noctuary("recall", "key", "--store", str(empty_store.root))
    assert missing.returncode == 1
    assert "no_snapshot" in missing.stderr
    empty_store.publish(household())
    until = time.monotonic() + 10
    while (found := recall_json(empty_store, "spare key"))["served_by"] != "server":
        assert time.monotonic() < until
    assert found["memories"]
