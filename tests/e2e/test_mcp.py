"""`noctuary mcp` as an agent runs it: a process, the SDK's own client, both protocol eras."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from httpx2 import AsyncClient
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from noctuary.agents.mcp_http import MAX_CONNECTIONS
from noctuary.agents.mcp_view import item_uri
from tests.e2e.conftest import FirstNight
from tests.e2e.stores import CANARIES
from tests.e2e.test_sample_night import FLAGGED, REDACTED, SCANNED
from tests.support.mcp import call, read, refusal, stdio
from tests.support.store import Store, household, memory, new_store, renumber

MODES = ["auto", "legacy"]
LEGACY_IS_SLOW = ["auto", pytest.param("legacy", marks=pytest.mark.slow)]
NOTE_PID = 'echo $$ > "$PID_FILE"; exec "$@"'
"""A shell line: the process that follows has the shell's id."""

T = TypeVar("T")


def connected(
    server: Any, use: Callable[[Client], Awaitable[T]], mode: Any = "auto", token: str = ""
) -> T:
    """Start a server or, with a token, go to its address; what fails inside is raised as it is."""

    async def run() -> T:
        failure: Exception
        headers = {"Authorization": f"Bearer {token}"}
        async with AsyncClient(headers=headers, timeout=60) as http:
            place = streamable_http_client(server, http_client=http) if token else server
            async with Client(place, mode=mode, read_timeout_seconds=60) as client:
                try:
                    return await use(client)
                except Exception as error:
                    failure = error
        raise failure

    return asyncio.run(run())


@pytest.fixture
def pid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pid"
    monkeypatch.setenv("PID_FILE", str(path))
    return path


def process_runs(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def ends_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while process_runs(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def over_http(*options: str) -> Generator[tuple[str, str]]:
    """Run `noctuary mcp --http` at a free port; yield its address and its token."""
    process = start("--http", "--port", "0", *options, "--json")
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        found = json.loads("".join([*takewhile(lambda line: line != "}\n", lines), "}"]))
        yield found["url"], Path(found["token_file"]).read_text().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        rest, logged = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in logged


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", MODES)
def test_an_agent_asks_in_either_era(dense_store: Store, mode: str, transport: str) -> None:
    async def ask(client: Client) -> None:
        assert client.protocol_version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
        tools = (await client.list_tools()).tools
        reading = {t.name for t in tools if t.annotations and t.annotations.read_only_hint}
        assert reading == {"recall", "get", "related", "why", "context", "status"}
        assert {t.name for t in tools} - reading == {"remember", "forget", "review"}
        heard: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        result = await client.call_tool(
            "recall", {"query": "spare key", "k": 3, "explain": True}, progress_callback=hear
        )
        assert result.structured_content is not None
        first = result.structured_content["memories"][0]
        assert "spare key" in first["content"]
        assert heard == sorted(set(heard))
        assert await read(client, first["uri"]) == await call(client, "get", id=first["id"])
        related = await call(client, "related", concept="Atlas migration")
        assert related["totals"]["memories"] == 2
        state = await call(client, "status")
        assert state["counts"]["memories"] == 12
        assert "there is no memory 106 here" not in await refusal(client, "get", id=106)
        assert "there is no memory '106' here" in await refusal(client, "get", id=106), "ana's"

    if transport == "stdio":
        connected(stdio(dense_store.root), ask, mode)
        return
    with over_http("--store", str(dense_store.root)) as (url, token):
        connected(url, ask, mode, token)


def test_twenty_calls_at_once_get_their_own_answers(dense_store: Store) -> None:
    words = ["spare key", "feline", "Atlas migration", "boiler valve", "flight Lisbon"]

    async def ask(client: Client) -> None:
        one = {w: await call(client, "recall", query=w, k=3) for w in words}
        many = await asyncio.gather(
            *(call(client, "recall", query=words[n % 5], k=3) for n in range(20))
        )
        for n, found in enumerate(many):
            expected = one[words[n % 5]]
            assert found["query"] == words[n % 5]
            assert found["memories"] == expected["memories"]

    connected(stdio(dense_store.root), ask)


@pytest.mark.parametrize("mode", LEGACY_IS_SLOW)
def test_a_killed_server_is_an_error_and_a_new_one_answers(
    plain_store: Store, pid_file: Path, mode: str
) -> None:
    async def use_until_killed(client: Client) -> None:
        assert (await call(client, "recall", query="key"))["memories"]
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        with pytest.raises(MCPError, match="onnection closed"):
            await asyncio.wait_for(client.call_tool("recall", {"query": "key"}), 20)

    async def use(client: Client) -> None:
        assert (await call(client, "recall", query="key"))["memories"]

    parameters = stdio(plain_store.root, shell=NOTE_PID)
    connected(parameters, use_until_killed, mode)
    killed = pid_file.read_text()
    connected(parameters, use, mode)
    assert pid_file.read_text() != killed


def test_a_published_snapshot_is_answered_from_without_a_restart(plain_store: Store) -> None:
    async def ask(client: Client) -> None:
        before = await call(client, "recall", query="spare key", k=1)
        asking = asyncio.create_task(keep_asking(client))
        second = plain_store.publish(
            renumber([memory("The spare key is with the neighbour now."), memory("A lamp.")])
        )
        after = await call(client, "recall", query="spare key", k=1)
        assert before["snapshot_id"] != after["snapshot_id"] == second
        assert "neighbour" in after["memories"][0]["content"]
        assert (await read(client, item_uri(101)))["content"].endswith("neighbour now.")
        assert (await call(client, "status"))["counts"]["memories"] == 2
        assert "no memory '103'" in await refusal(client, "get", id=103)
        asked = await asking
        assert {found["snapshot_id"] for found in asked} <= {before["snapshot_id"], second}
        assert all(found["memories"] for found in asked)

    async def keep_asking(client: Client) -> list[dict[str, Any]]:
        return [await call(client, "recall", query="spare key", k=1) for _ in range(15)]

    connected(stdio(plain_store.root), ask)


@pytest.mark.parametrize("mode", LEGACY_IS_SLOW)
def test_a_store_that_hangs_is_told_to_try_again_and_answers_later(
    plain_store: Store, pid_file: Path, mode: str
) -> None:
    """A pipe in the pointer's place: whoever reads it waits, as on a disk that is gone."""
    current = plain_store.root / "CURRENT"
    pointer = current.read_bytes()

    async def ask(client: Client) -> None:
        current.unlink()
        os.mkfifo(current)
        for _ in range(2):
            said = await refusal(client, "recall", query="key")
            assert "given up after 0.5 s" in said
            assert "call it again in a few seconds" in said
        with pytest.raises(MCPError, match="given up"):
            await client.read_resource(item_uri(101))
        waiting = os.open(current, os.O_WRONLY)  # a reader waits there, or this would
        current.unlink()
        current.write_bytes(pointer)
        os.close(waiting)
        until = time.monotonic() + 20
        while not (await client.call_tool("get", {"id": 101})).structured_content:
            assert time.monotonic() < until
        assert (await call(client, "recall", query="key"))["memories"]

    connected(stdio(plain_store.root, "--timeout-s", "0.5", shell=NOTE_PID), ask, mode)
    assert ends_within(int(pid_file.read_text()), 5)


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "noctuary.cli.main", "mcp", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def request(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


GREETING = request(
    0,
    "initialize",
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "test", "version": "0"},
)


def test_standard_output_holds_the_protocol_and_nothing_else(home: Path) -> None:
    """Two stores, bad lines, errors: all that is said about them goes elsewhere."""
    for name in ("one", "two"):
        new_store(home / name).publish(household())
    process = start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(
        GREETING
        + '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
        + request(1, "tools/call", name="recall", arguments={"query": "key"})
        + "this is no message\n"
        + request(2, "tools/call", name="get", arguments={"id": "nope"})
        + request(3, "tools/call", name="nothing", arguments={})
        + request(4, "resources/read", uri="memory://item/nope")
        + request(5, "no/such/method")
    )
    process.stdin.flush()
    answers: dict[int, dict[str, Any]] = {}
    while set(answers) != {0, 1, 2, 3, 4, 5}:  # else the test's timeout: a line never came
        message = json.loads(process.stdout.readline())
        if message.get("id") is not None:
            answers[message["id"]] = message
    rest, logged = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert answers[1]["result"]["isError"] is False
    assert answers[2]["result"]["isError"] is True
    assert answers[4]["error"]["code"] == -32602
    assert all(m["jsonrpc"] == "2.0" for m in answers.values())
    assert "several stores exist" in logged
    assert "Traceback" not in logged


def test_a_server_ends_when_its_client_leaves(plain_store: Store) -> None:
    for sent in ("", GREETING, "half a line"):
        process = start("--store", str(plain_store.root))
        started = time.monotonic()
        _, logged = process.communicate(sent, timeout=30)
        assert process.returncode == 0, logged
        assert "terminate called" not in logged
        assert time.monotonic() - started < 20


def test_a_server_ends_when_its_client_leaves_in_the_middle_of_a_call(plain_store: Store) -> None:
    current = plain_store.root / "CURRENT"
    current.unlink()
    os.mkfifo(current)
    process = start("--store", str(plain_store.root))
    sent = GREETING + request(1, "tools/call", name="recall", arguments={"query": "key"})
    _, logged = process.communicate(sent, timeout=30)
    assert process.returncode == 0, logged


def test_another_host_needs_a_token_file_and_a_taken_port_is_said(
    plain_store: Store, home: Path
) -> None:
    def refused(*options: str) -> str:
        _, said = start("--http", "--store", str(plain_store.root), *options).communicate()
        return said

    assert "beyond this machine none is made" in refused("--host", "0.0.0.0")
    assert not (home / "mcp_token").exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in refused("--port", str(port))
    assert "needs --http" in start("--port", "1").communicate()[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_word(plain_store: Store, number: int) -> None:
    process = start("--store", str(plain_store.root))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(GREETING)
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(number)
    _, logged = process.communicate(timeout=30)
    assert process.returncode in (0, -number)
    assert "Traceback" not in logged


def test_over_http_only_a_request_with_the_token_and_a_local_name_passes(
    plain_store: Store,
) -> None:
    with over_http("--store", str(plain_store.root)) as (url, token):
        own = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        cases: list[tuple[dict[str, str], int]] = [
            (own, 200),
            ({**own, "Authorization": f"bearer {token}"}, 200),
            ({**own, "Authorization": f"Basic {token}"}, 401),
            ({**own, "Origin": "http://localhost:9"}, 200),
            ({"Accept": own["Accept"]}, 401),
            ({**own, "Authorization": f"Bearer {token}x"}, 401),
            ({**own, "Authorization": token}, 401),
            ({**own, "Authorization": "Bearer \xff"}, 401),
            ({**own, "Host": "attacker.example"}, 421),
            ({**own, "Host": "127.0.0.1.attacker.example:80"}, 421),
            ({**own, "Host": ""}, 421),
            ({**own, "Origin": "https://attacker.example"}, 403),
            ({**own, "Origin": "null"}, 403),
        ]
        for headers, status in cases:
            sent = [(n.encode(), value.encode("latin-1")) for n, value in headers.items()]
            answer = httpx2.post(url, json=body, headers=sent)
            assert answer.status_code == status, headers
            assert status == 200 or token not in answer.text
        health = url.removesuffix("/mcp") + "/healthz"
        assert httpx2.get(health).json() == {"status": "ok"}
        assert httpx2.get(health, headers={"Host": "attacker.example"}).status_code == 421
        assert httpx2.post(url, content=b"x" * 5_000_000, headers=own).status_code in (400, 413)
        assert httpx2.get(url, headers=own).status_code == 405, "no stream stays open for nothing"


def test_over_http_silent_clients_keep_nobody_out(plain_store: Store) -> None:
    with over_http("--store", str(plain_store.root)) as (url, token), ExitStack() as stack:
        place = httpx2.URL(url)
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        begun = [b"", head.encode(), f"{head}Content-Length: 500\r\n\r\n{{".encode()]
        for n in range(MAX_CONNECTIONS + 20):
            silent = stack.enter_context(socket.create_connection((place.host, place.port or 0)))
            silent.sendall(begun[n % len(begun)])

        async def ask(client: Client) -> None:
            for _ in range(3):
                assert (await call(client, "recall", query="spare key"))["memories"]

        connected(url, ask, token=token)


def test_nothing_that_a_night_withholds_is_ever_answered(full_night: FirstNight) -> None:
    store = full_night.bench.store
    withheld = sorted(FLAGGED | REDACTED | SCANNED)
    assert withheld

    async def ask(client: Client) -> str:
        said: list[str] = []
        for item in withheld:
            assert f"no memory '{item}' here" in await refusal(client, "get", id=item)
            assert f"no memory '{item}' here" in await refusal(client, "related", id=item)
            with pytest.raises(MCPError, match="there is no memory"):
                await client.read_resource(item_uri(item))
        for query in (*CANARIES, "alarm code of the house", "passphrase"):
            found = await call(client, "recall", query=query, k=50, explain=True)
            said.append(json.dumps(found["memories"]))
            assert not {m["id"] for m in found["memories"]} & set(withheld)
        assert (await call(client, "get", id=173))["id"] == 173, "a public row is there"
        return "\n".join(said)

    said = connected(stdio(store), ask)
    assert [canary for canary in CANARIES if canary in said] == []
