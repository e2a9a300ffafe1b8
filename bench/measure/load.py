"""What one client waits while 200 are connected, half of them silent or slow: both servers.

`python -m bench.measure load --store STORE --queries FILE [--before CHECKOUT] [--keep]`

Alone, one client asks at random moments (Poisson), as often as the hundred together. Under load, a
hundred clients ask once in `PACE_S` each, and another hundred misbehave, 25 of each kind: nothing
sent, a byte a second, half a request, an answer that nobody reads. They come back as soon as a
server ends them. Alone and loaded, before and now take turns, so that a busy moment meets all.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from bench.datasets import CHECKOUT
from bench.manifest import describe_run
from bench.measure.oneshot import child_environment
from bench.results import RESULTS_DIR, write_result
from noctuary import __version__
from noctuary.agents.client import CLIENT_WAIT_S, Refusal, encode, exchange, settings_in_force
from noctuary.agents.server import find_place
from noctuary.evaluate.labels import read_queries

CLIENTS, ROUNDS, PHASE_S = 200, 4, 20.0
PACE_S = 20.0
"""Between two questions of one well-behaved client, on average."""
SERVERS = {"serve": ["serve", "--idle-minutes", "0"], "mcp": ["mcp", "--http", "--port", "0"]}

_KINDS = ("silent", "a byte a second", "half a request", "answer unread")
_LONG = "Who went where with whom, and when?"
_UNREAD_S = (5.0, 15.0)  # then an unread answer is asked for anew
_SETTLE_S = 3.0  # from the first connection of a load to the first question that counts


class Target(NamedTuple):
    """A running server: its process, its store, where it listens; over HTTP its token too."""

    pid: int
    store: Path
    place: str | tuple[str, int]
    token: str

    def request(self, query: str, k: int) -> dict[str, Any]:
        """Return a recall as the server takes it."""
        if self.token:
            called = {"name": "recall", "arguments": {"query": query, "k": k}}
            return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}
        until = time.monotonic() + CLIENT_WAIT_S
        return {"op": "recall", "query": query, "k": k, "dry_run": True, "give_up_at": until}

    def headers(self) -> dict[str, str]:
        """Return what a request over HTTP is sent with."""
        kinds = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        return {**kinds, "Host": "127.0.0.1", "Authorization": f"Bearer {self.token}"}

    def ask(self, query: str) -> str:
        """Ask once over a connection of its own; "answered", or what went wrong."""
        if isinstance(self.place, str):
            found = exchange(self.store, self.request(query, 10), wait_s=CLIENT_WAIT_S)
            return found.code if isinstance(found, Refusal) else "answered"
        body = json.dumps(self.request(query, 10))
        try:
            with closing(HTTPConnection(*self.place, timeout=30)) as connection:
                connection.request("POST", "/mcp", body, self.headers())
                reply = connection.getresponse()
                return "answered" if b'"memories"' in reply.read() else str(reply.status)
        except OSError as error:
            return type(error).__name__

    def long_request(self) -> bytes:
        """Return the bytes of a request whose answer is long."""
        if not self.token:
            own = {"version": __version__, "settings": settings_in_force()}
            return encode({**self.request(_LONG, 500), **own, "store": str(self.store.resolve())})
        body = json.dumps(self.request(_LONG, 50))
        headers = {**self.headers(), "Content-Length": len(body)}
        lines = [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", body]).encode()


# Who misbehaves: in a process of its own, so that it takes no time of those that are measured.


class _Rude:
    """One client that holds a connection and never ends what it began."""

    def __init__(self, target: Target, kind: str) -> None:
        self._target, self._kind = target, kind
        self._whole, self._sent, self._since_s, self._hold_s = b"", 0, 0.0, 0.0
        self._socket: socket.socket | None = None

    def go_on(self) -> None:
        """Do the next rude thing; called some times a second."""
        quiet_s = time.monotonic() - self._since_s
        if self._socket is None or self._is_over(self._socket, quiet_s):
            self._begin()
        elif self._kind == "a byte a second" and quiet_s > self._sent:
            self._send(self._socket, 1)

    def _begin(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = socket.socket(socket.AF_INET if self._target.token else socket.AF_UNIX)
        self._socket.settimeout(0.05)
        self._sent, self._since_s = 0, time.monotonic()
        self._hold_s = random.uniform(*_UNREAD_S)  # not all of them at once
        self._whole = self._target.long_request()
        first = {"half a request": len(self._whole) // 2, "answer unread": len(self._whole)}
        with suppress(OSError):  # full: it looks over, and is tried again
            self._socket.connect(self._target.place)
            self._send(self._socket, first.get(self._kind, 0))

    def _send(self, to: socket.socket, size: int) -> None:
        with suppress(OSError):
            to.sendall(self._whole[self._sent : self._sent + size])
        self._sent += size

    def _is_over(self, held: socket.socket, quiet_s: float) -> bool:
        if self._kind == "answer unread":
            return quiet_s > self._hold_s
        (poller := select.poll()).register(held, select.POLLRDHUP)
        return bool(poller.poll(0))


def _misbehave(target: Target, number: int) -> None:
    rude = [_Rude(target, _KINDS[i % len(_KINDS)]) for i in range(number)]
    while True:
        for client in rude:
            client.go_on()
        time.sleep(0.1)


@contextmanager
def _rude_clients(target: Target, number: int, most: dict[str, int]) -> Generator[None]:
    """Let some misbehave while the block runs, and keep the highest values of the server."""
    start, over = multiprocessing.get_context("spawn").Process, threading.Event()
    rude = start(target=_misbehave, args=(target, number), daemon=True)

    def look() -> None:
        while not over.wait(0.25):
            most.update({n: max(most.get(n, 0), now) for n, now in _state_of(target.pid).items()})

    watcher = threading.Thread(target=look)
    watcher.start()
    rude.start()
    try:
        time.sleep(_SETTLE_S)
        yield
    finally:
        rude.kill()
        rude.join()
        over.set()
        watcher.join()


# Who is measured.


def _ask_for_a_while(
    target: Target, prompts: Sequence[str], clients: int, pace_s: float, phase_s: float, seed: int
) -> list[tuple[float, str]]:
    """Return ms and outcome of every question of some clients."""
    until_s = time.monotonic() + phase_s
    asked: list[tuple[float, str]] = []

    def ask_now_and_then(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        while time.monotonic() + (wait_s := chance.expovariate(1 / pace_s)) < until_s:
            time.sleep(wait_s)
            started = time.perf_counter()
            outcome = target.ask(chance.choice(prompts))
            asked.append(((time.perf_counter() - started) * 1000, outcome))

    threads = [threading.Thread(target=ask_now_and_then, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return asked


def _state_of(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    rss_mb, threads = int(found["VmRSS"].split()[0]) >> 10, int(found["Threads"])
    return {"rss_mb": rss_mb, "threads": threads, "descriptors": descriptors}


@contextmanager
def _running(
    checkout: Path, kind: str, store: Path, environ: Mapping[str, str]
) -> Generator[Target]:
    command = [sys.executable, "-m", "noctuary.cli.main", *SERVERS[kind], "--json", "--store"]
    env = {**environ, "PYTHONPATH": str(checkout / "lib")}
    process = subprocess.Popen([*command, str(store)], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        said = json.loads("".join([*takewhile(lambda line: line != "}\n", lines), "}"]))
        url, token = urlsplit(said.get("url", "")), ""
        if kind == "mcp":
            token = Path(said["token_file"]).read_text().strip()
        place = (str(url.hostname), url.port or 0) if token else str(find_place(store).socket)
        yield Target(process.pid, store, place, token)
    finally:
        process.terminate()
        process.communicate()


def measure_load(
    checkouts: Mapping[str, Path], store: Path, prompts: Sequence[str], **how: float
) -> dict[str, Any]:
    """Return by server and checkout: waits alone and loaded, and what the process took."""
    clients, pace_s = int(how["clients"]), how["pace_s"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="nl-") as folder, ExitStack() as stack:
        os.environ |= {"NOCTUARY_HOME": folder, "XDG_RUNTIME_DIR": folder}
        environ = child_environment(os.environ, Path(folder) / "pycache")
        targets: dict[tuple[str, str], Target] = {}
        for side, checkout in checkouts.items():
            copy = shutil.copytree(store, Path(folder) / f"{side}-{store.name}")
            for kind in SERVERS:
                running = _running(checkout, kind, copy, environ)
                targets[kind, side] = stack.enter_context(running)
        asked: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
        for (kind, side), target in targets.items():
            _ask_for_a_while(target, prompts, 1, 0.05, 2.0, -1)  # everything is read once
            found.setdefault(kind, {})[side] = {"process": {"before": _state_of(target.pid)}}
        for number in range(int(how["rounds"])):
            for (kind, side), target in list(targets.items())[:: 1 if number % 2 == 0 else -1]:
                good = clients // 2
                lone = (target, prompts, 1, pace_s / good, how["phase_s"], number)
                asked.setdefault((kind, side, "lone"), []).extend(_ask_for_a_while(*lone))
                most = found[kind][side]["process"].setdefault("loaded", {})
                with _rude_clients(target, clients - good, most):
                    many = (target, prompts, good, pace_s, how["phase_s"], number)
                    asked.setdefault((kind, side, "loaded"), []).extend(_ask_for_a_while(*many))
        for (kind, side, phase), answers in asked.items():
            found[kind][side][phase] = _summary(answers)
            found[kind][side]["process"]["after"] = _state_of(targets[kind, side].pid)
    return found


def _summary(asked: Sequence[tuple[float, str]]) -> dict[str, Any]:
    took = [ms for ms, _ in asked] or [0.0]
    p50, p95, p99, most = np.percentile(took, [50, 95, 99, 100]).round(1).tolist()
    outcomes = Counter(outcome for _, outcome in asked)
    found = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "max_ms": most}
    return {**found, "answered": outcomes["answered"] / len(took), "outcomes": dict(outcomes)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, help="a published store directory")
    parser.add_argument("--queries", type=Path, required=True, help="labelled queries to ask")
    parser.add_argument("--before", type=Path, help="another checkout, measured in turns")
    parser.add_argument("--clients", type=int, default=CLIENTS, help="half of them misbehave")
    for name, value in (("rounds", ROUNDS), ("pace-s", PACE_S), ("phase-s", PHASE_S)):
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--keep", action="store_true", help="write docs/benchmarks/json/load.json")
    given = parser.parse_args(arguments)
    checkouts = {"before": given.before.resolve()} if given.before else {}
    how = {name: getattr(given, name) for name in ("clients", "rounds", "pace_s", "phase_s")}
    prompts = [query.text for query in read_queries(given.queries).ranked]
    servers = measure_load({**checkouts, "now": CHECKOUT}, given.store, prompts, **how)
    document = {"kind": "load", "manifest": describe_run(), **how, "servers": servers}
    if given.keep:
        write_result(RESULTS_DIR / "load.json", document)
    print(json.dumps(document, indent=1))
