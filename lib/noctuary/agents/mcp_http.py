"""MCP over HTTP: access control, and time limits for slow clients."""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import math
import os
import re
import secrets
import socket
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from noctuary.core.errors import NoctuaryError
from noctuary.core.files import make_directory

# How long a client may take. uvicorn itself ends a connection only between two requests, and counts
# those that are silent among the ones it works on.

MAX_CONNECTIONS = 256
REQUEST_DEADLINE_S = 10.0  # until a request has arrived, body included
ANSWER_DEADLINE_S = 10.0  # until an answer has been read


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 in which silent and slow clients take nothing from the others."""

    _arrival: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the wait for a first request; beyond `MAX_CONNECTIONS` drop the most silent."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # `pause_writing` whenever an answer is unread
        self._arrival = self.loop.call_later(REQUEST_DEADLINE_S, transport.abort)
        if len(self.connections) > MAX_CONNECTIONS:
            bounded = [other for other in self.connections if isinstance(other, BoundedProtocol)]
            first = min(bounded, key=BoundedProtocol._ends_at)
            self.connections.discard(first)  # not at the next turn of the loop: more may connect
            first.transport.abort()

    def _ends_at(self) -> float:
        """Return when silence ends this connection; infinity while it is worked for."""
        silence = self._arrival or self.timeout_keep_alive_task
        return math.inf if silence is None else silence.when()

    def handle_events(self) -> None:
        """Handle received bytes, and limit the time for the rest of a request."""
        super().handle_events()
        state = self.conn.their_state
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            if self._arrival is None:
                self._arrival = self.loop.call_later(REQUEST_DEADLINE_S, self.transport.abort)
        elif self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def pause_writing(self) -> None:
        """Limit the time for reading an answer."""
        super().pause_writing()
        self._reading = self.loop.call_later(ANSWER_DEADLINE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that all was read."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer behind."""
        super().connection_lost(exc)
        for timer in (self._arrival, self._reading):
            if timer is not None:
                timer.cancel()


# Who may ask. Any program of this machine reaches a port, and so does any page of a browser.

HEALTH_PATH = "/healthz"
MAX_BODY_BYTES = 4 << 20  # the SDK refuses longer ones (413)
MAX_HELD_BYTES = 64 << 20  # bodies of all requests that are at work or still arrive

TOKEN_FILE = "mcp_token"  # below the home
MIN_TOKEN_CHARS = 32  # of 64 signs each: cannot be guessed
_LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


class McpServeError(NoctuaryError):
    """The server cannot be reached safely, or not at all, at this address."""


class Guard:
    """Lets nothing pass but requests with the token, for this machine's own names."""

    def __init__(self, app: ASGIApp, token: bytes, *, is_local: bool) -> None:
        """Take the app, the token, and whether the address is loopback."""
        self._app = app
        self._token = token
        self._is_local = is_local
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await PlainTextResponse(*refusal)(scope, receive, send)
        elif scope["path"] == HEALTH_PATH:
            await JSONResponse({"status": "ok"})(scope, receive, send)
        else:
            await self._pass_on(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the app answer, unless the bodies of others fill the memory."""
        headers = Headers(scope=scope)
        declared = int(headers.get("content-length", "0"))  # digits: the parser has seen to it
        size = MAX_BODY_BYTES if "transfer-encoding" in headers else min(declared, MAX_BODY_BYTES)
        if self._held_bytes + size > MAX_HELD_BYTES:
            said = "unfinished requests fill the memory: ask again in a moment"
            await PlainTextResponse(said, 503, {"Retry-After": "1"})(scope, receive, send)
            return
        self._held_bytes += size
        try:
            await self._app(scope, receive, send)
        finally:
            self._held_bytes -= size

    def _refusal(self, scope: Scope) -> tuple[str, int, dict[str, str]] | None:
        """Return why a request is refused: the sentence, its status, and headers."""
        headers = Headers(scope=scope)
        # DNS rebinding: a page's own name that leads to this machine. Beyond it, names are not
        # known, and a page cannot have the token.
        if self._is_local and _name_of(f"//{headers.get('host', '')}") not in _LOCAL_NAMES:
            return "this server answers at 127.0.0.1 and localhost only", 421, {}
        if "origin" in headers and _name_of(headers["origin"]) not in _LOCAL_NAMES:
            return "this server answers no page of another site", 403, {}
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(given.strip().encode("utf-8"), self._token)
        if scope["path"] != HEALTH_PATH and not (is_known and scheme.lower() == "bearer"):
            said = "send the token of this server as `Authorization: Bearer TOKEN`"
            return said, 401, {"WWW-Authenticate": "Bearer"}
        # A GET would open a stream on which nothing is ever sent.
        if scope["path"] != HEALTH_PATH and scope["method"] != "POST":
            return "this server answers POST only", 405, {"Allow": "POST"}
        return None


def _name_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address; a name other than localhost may be any."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes a free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        what, todo = f"cannot listen at {host}, port {port} ({error.strerror})", "name another host"
        if error.errno == errno.EADDRINUSE:
            what, todo = f"port {port} of {host} is taken", "stop what uses it, or give --port"
        elif error.errno == errno.EACCES:
            todo = "give --port a number above 1023"
        raise McpServeError(f"{what}: {todo}") from None


def read_token(path: Path, *, may_make: bool) -> bytes:
    """Return the token of a private file, or write a new one if there is none."""
    if may_make:
        make_directory(path.parent)
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.write(secrets.token_urlsafe(32).encode("ascii") + b"\n")
    try:
        # Not blocking: a pipe that somebody put there must not stop the start.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise McpServeError(
            f"there is no token file {path}, and beyond this machine none is made: start the "
            "server once without --host, or write at least 32 random letters and digits into a "
            "file that only you can read, and name it with --token-file"
        ) from None
    except OSError as error:
        raise McpServeError(f"the token file {path} cannot be read ({error.strerror})") from None
    with os.fdopen(handle, "rb") as file:
        fault = _token_fault(path, os.fstat(handle))
        raw = b"" if fault else file.read(1_025).strip()
    if fault is None and not re.fullmatch(rb"[!-~]{%d,1024}" % MIN_TOKEN_CHARS, raw):
        fault = (
            f"expected one line of {MIN_TOKEN_CHARS} to 1,024 visible ASCII signs: delete it, and "
            "the next start makes a new one"
        )
    if fault is not None:
        raise McpServeError(f"the token file {path} cannot be used: {fault}")
    return raw


def _token_fault(path: Path, found: os.stat_result) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if not hasattr(os, "geteuid"):
        return None  # Windows: its access lists are not in these bits
    if found.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {found.st_uid}, not to {os.geteuid()}"
    if found.st_mode & 0o077:
        return (
            f"others can read or change it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 it"
        )
    return None
