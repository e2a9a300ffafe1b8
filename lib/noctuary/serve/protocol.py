"""The protocol: one JSON object on one line each way, then the connection is closed.

A request is `{"noctuary": 1, "op": "recall" | "ping", ...}`; a response is `{"noctuary": 1,
"result": {...}}` or `{"noctuary": 1, "error": {"code": ..., "message": ...}}`. docs/serve.md has
the fields.

What belongs here: the form of messages and reading them within bounds. Not what they mean.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.foreign_json import parse_json

PROTOCOL = 1
"""Bumped when one side could not read the other's messages any more."""

MAX_REQUEST_BYTES = 2 << 20
"""A query of 100 KB is 600 KB once escaped; more protects the server's memory."""
MAX_RESPONSE_BYTES = 256 << 20
"""A quarter of a million memories; beyond that a server of one's own is not to be believed."""

REQUEST_DEADLINE_S = 4.0
"""From a connection's first byte to its last. Longer keeps a thread busy with one client."""
CLIENT_WAIT_S = 5.0
"""How long a client waits before it recalls itself: above the server's deadline, so that a server
that is alive has always answered by then."""

_CHUNK_BYTES = 1 << 16
# Where the store is, is in the request; where shared models are, matters to a night only.
_IRRELEVANT_VARIABLES = frozenset({"NOCTUARY_STORE", "NOCTUARY_SHARED"})


class Refusal(NamedTuple):
    """Why there is no answer.

    Attributes:
        code: Stable and machine-readable, for example "busy".
        message: What was found and what to do; no text of a query or a memory.
    """

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return {"code": self.code, "message": self.message}


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line; pure ASCII, so that lone surrogates survive."""
    return (
        json.dumps({"noctuary": PROTOCOL, **message}, separators=(",", ":")).encode("ascii") + b"\n"
    )


def decode(line: bytes) -> dict[str, Any] | Refusal:
    """Return the message of a line, or why it is none."""
    try:
        message = parse_json(line)
    except ValueError as error:
        return Refusal("malformed", f"expected one JSON object on one line: {type(error).__name__}")
    if not isinstance(message, dict):
        return Refusal("malformed", f"expected a JSON object, found {type(message).__name__}")
    found: Any = message.get("noctuary")  # pyright: ignore[reportUnknownVariableType]
    if type(found) is not int or found != PROTOCOL:
        return Refusal(
            "protocol",
            f"expected protocol {PROTOCOL}, found {_short(found)}: restart `noctuary serve`",
        )
    return message


def read_line(connection: socket.socket, limit: int, until: float) -> bytes | Refusal:
    """Read up to the first newline.

    Args:
        connection: A connected stream socket; its timeout is changed.
        limit: Bytes at most, the newline left out.
        until: `time.monotonic()` at which to give up.

    Raises:
        OSError: If the connection breaks.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return Refusal("timeout", "no whole line arrived in time")
        connection.settimeout(left)
        try:
            part = connection.recv(_CHUNK_BYTES)
        except TimeoutError:
            continue
        head, newline, _ = part.partition(b"\n")
        parts.append(head)
        size += len(head)
        if size > limit:
            return Refusal("too_large", f"expected at most {limit:,} bytes on a line")
        if newline:
            return b"".join(parts)
        if not part:
            return Refusal("half", "the connection was closed before the end of the line")


def settings_in_force(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return every variable that may change a result.

    A server answers only a client whose own process would rank in the same way.
    """
    env = os.environ if environ is None else environ
    found = {
        name: value
        for name, value in env.items()
        if name.startswith("NOCTUARY_") and name not in _IRRELEVANT_VARIABLES
    }
    for name in ("NOCTUARY_HOME", "NOCTUARY_CONFIG"):
        if found.get(name, "").strip():
            found[name] = str(Path(found[name].strip()).absolute())
    if not found.get("NOCTUARY_HOME"):
        found.update({name: env.get(name, "") for name in ("HOME", "XDG_DATA_HOME")})
    return found


def peer_uid(connection: socket.socket) -> int | None:
    """Return the user of the process at the other end, or None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    layout = "3i"
    raw = connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize(layout))
    return int(struct.unpack(layout, raw)[1])


def _short(value: object) -> str:
    return repr(value) if isinstance(value, int | float | None) else type(value).__name__
