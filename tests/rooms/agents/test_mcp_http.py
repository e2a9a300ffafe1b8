"""MCP over HTTP: whose requests pass, and how silent and slow clients end."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from noctuary.agents import mcp_http
from noctuary.agents.mcp_http import McpServeError, is_loopback, read_token
from tests.rooms.agents.conftest import wait_until


def test_a_token_is_made_once_and_only_a_private_file_is_believed(home: Path) -> None:
    path = home / "new" / "token"
    with pytest.raises(McpServeError, match="none is made"):
        read_token(path, may_make=False)
    made = read_token(path, may_make=True)
    assert len(made) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path, may_make=True) == read_token(path, may_make=False) == made
    for content in (b"short", b"two words " * 5, b"", b"x" * 1_100, "ä".encode() * 40):
        path.write_bytes(content)
        with pytest.raises(McpServeError, match=r"32 to 1,024"):
            read_token(path, may_make=True)
    for mode in (0o640, 0o604, 0o620):
        path.write_bytes(made)
        path.chmod(mode)
        with pytest.raises(McpServeError, match="chmod 600"):
            read_token(path, may_make=True)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(McpServeError, match="no regular file"):
        read_token(path, may_make=True)


def test_loopback_is_this_machine_only() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "192.168.1.5", "localhost.example", "", "127.0.0.1.example"):
        assert not is_loopback(host)


@contextmanager
def bounded_http(app: ASGIApp) -> Generator[tuple[uvicorn.Server, tuple[str, int]]]:
    """Run an app at a free port of this process, with the limits of the MCP server."""
    config = uvicorn.Config(
        app, http=mcp_http.BoundedProtocol, log_config=None, lifespan="off", timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    with mcp_http.listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield server, listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def ends_in_time(connection: socket.socket) -> bool:
    """Say whether the other side ends a connection, whatever it sends before."""
    connection.settimeout(10)
    with suppress(ConnectionError):
        while connection.recv(65_536):
            pass
    return True  # otherwise a `TimeoutError` was raised


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
WHOLE = POST + b"123456789"


@pytest.mark.parametrize("sent", [b"", POST[:20], POST + b"1", WHOLE + POST + b"1"])
def test_who_does_not_send_a_whole_request_is_let_go(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_http, "REQUEST_DEADLINE_S", 0.3)
    with (
        bounded_http(PlainTextResponse("read")) as (_, place),
        socket.create_connection(place) as slow,
    ):
        slow.sendall(sent)
        assert ends_in_time(slow)


def test_who_does_not_read_an_answer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "ANSWER_DEADLINE_S", 0.3)
    app = PlainTextResponse("x" * 30_000_000)  # more than a socket takes
    with bounded_http(app) as (server, place), socket.create_connection(place) as slow:
        slow.sendall(WHOLE)
        assert wait_until(lambda: server.server_state.total_requests == 1)
        assert wait_until(lambda: not server.server_state.connections)


def test_a_new_client_takes_the_place_of_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "MAX_CONNECTIONS", 2)
    go = threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.to_thread(go.wait, 20)
        await PlainTextResponse("read")(scope, receive, send)

    with bounded_http(app) as (server, place), ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(place))

        asking, silent = connect(), connect()
        asking.sendall(WHOLE)
        assert wait_until(lambda: len(server.server_state.tasks) == 1)
        late = connect()
        assert ends_in_time(silent)
        late.sendall(WHOLE)
        assert wait_until(lambda: len(server.server_state.tasks) == 2)
        assert ends_in_time(connect()), "the others are being answered"
        go.set()
        for served in (asking, late):
            served.settimeout(10)
            assert served.recv(15) == b"HTTP/1.1 200 OK"
