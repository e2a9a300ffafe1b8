"""The client of the warm server: ask it, or say that the caller has to recall itself.

Standard library only, without dataclasses and (where the store is named) without
noctuary.core.store: each costs a fresh process as much as the exchange itself.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary import __version__
from noctuary.core.foreign_json import parse_json

if TYPE_CHECKING:
    from datetime import datetime


# Where a store's server is found: one private directory per user, file names from the store.


_SOCKET_PATH_BYTES = 100
"""sun_path holds 108 bytes on Linux, 104 on macOS, the closing NUL included."""
_NAME_CHARS = 16
"""Of the hash of the store's path: 64 bits among the stores of one user."""
_LOOSE_BITS = 0o077


class Place(NamedTuple):
    """The files of one store's server, named by a hash of the store's real path."""

    directory: Path  # the user's own, mode 0700
    socket: Path  # where the server listens; there while it runs, or after it was killed
    lock: Path  # held (flock) by the running server; the file itself stays
    fallback: Path  # the last reason worth knowing why a client recalled without the server


def find_place(store: str | Path, environ: Mapping[str, str] | None = None) -> Place:
    """Return the place of a store's server; two spellings of one directory have one place."""
    env = os.environ if environ is None else environ
    name = sha256(os.fsencode(Path(store).resolve())).hexdigest()[:_NAME_CHARS]
    own = f"noctuary-{os.geteuid()}"
    runtime = env.get("XDG_RUNTIME_DIR", "").strip()
    # A relative one is to be ignored (XDG base directory specification).
    directories = [Path(runtime) / "noctuary"] if runtime.startswith("/") else []
    directories += [Path(env.get("TMPDIR", "").strip() or "/tmp") / own, Path("/tmp") / own]
    kinds = ("sock", "lock", "fallback")
    files = (Place(d, *(d / f"{name}.{kind}" for kind in kinds)) for d in directories)
    return next(place for place in files if len(os.fsencode(place.socket)) <= _SOCKET_PATH_BYTES)


def directory_fault(directory: Path) -> str | None:
    """Return why a directory must not be trusted with a socket; an `OSError` for none."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{directory} is no directory: remove it"
    if found.st_uid != os.geteuid():
        return (
            f"{directory} belongs to user {found.st_uid}, not to {os.geteuid()}: remove it, or set "
            "XDG_RUNTIME_DIR to a directory of your own"
        )
    if found.st_mode & _LOOSE_BITS:
        mode = stat.S_IMODE(found.st_mode)
        return f"{directory} is open to others (mode {mode:04o}, expected 0700): chmod 700 it"
    return None


# The protocol: one JSON object on one line each way, then the connection is closed.
#
# A request is `{"noctuary": 1, "op": "recall" | "ping", ...}`; a response is `{"noctuary": 1,
# "result": {...}}` or `{"noctuary": 1, "error": {"code": ..., "message": ...}}`. docs/serve.md has
# the fields.


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
    """Why there is no answer: a stable code, and what to do; no text of a query or a memory."""

    code: str
    message: str


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line; pure ASCII, so that lone surrogates survive."""
    line = json.dumps({"noctuary": PROTOCOL, **message}, separators=(",", ":"))
    return line.encode("ascii") + b"\n"


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
        shown = repr(found) if isinstance(found, int | float | None) else type(found).__name__
        message = f"expected protocol {PROTOCOL}, found {shown}: restart `noctuary serve`"
        return Refusal("protocol", message)
    return message


def read_line(connection: socket.socket, limit: int, until: float) -> bytes | Refusal:
    """Read up to the first newline: at most `limit` bytes, and until this `time.monotonic()`."""
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
    """Return every variable that may change a result: both sides must rank in the same way."""
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


# The note of the last fallback worth knowing: written by clients, read by `noctuary doctor`.
#
# Best effort: a client that cannot write it recalls all the same. No text of a query is in it.


ORDINARY = frozenset({"absent", "invalid"})
"""Codes not worth a note: no server was started; the recall itself refuses such arguments too."""


class Fallback(NamedTuple):
    """Why a client recalled without the server, and when (seconds since the epoch)."""

    code: str
    message: str
    at_s: float


def note_fallback(place: Place, refusal: Refusal) -> None:
    """Keep a reason worth knowing in place of the one before. Never raises."""
    if refusal.code in ORDINARY:
        return
    # Here and not above: a client that the server answers never needs it.
    from noctuary.agents.state import replace_json

    with suppress(OSError):
        if directory_fault(place.directory) is None:
            replace_json(place.fallback, {**refusal._asdict(), "at_s": time.time()})


def read_fallback(place: Place) -> Fallback | None:
    """Return the last note; None if there is none that can be read."""
    from noctuary.agents.state import read_json, read_row

    found, _ = read_json(place.fallback, MAX_REQUEST_BYTES)
    return read_row(Fallback, found)


_CONNECT_TIMEOUT_S = 0.1
"""Connecting to a unix socket takes microseconds; only a full queue of a stuck server waits."""
_GRACE_S = 0.25
"""Beyond the caller's own deadline: the way there and back and what no step can interrupt."""


def ask(
    query: str,
    k: int = 10,
    *,
    store: str | Path | None = None,
    as_of: datetime | None = None,
    deadline_ms: float | None = None,
    **asked: Any,
) -> dict[str, Any] | None:
    """Recall through the store's warm server.

    The arguments are those of `noctuary.recall`; a store directory is the cheapest to look up.

    Returns:
        `RecallResult.to_json()` as `noctuary.recall` would give it, or None if no server answered:
        then call `noctuary.recall`. Never raises for a server that is absent, stuck or foreign.
    """
    try:
        found = _find_store(store)
        if found is None:
            return None
        directory, guessed = found
        place = find_place(directory)
    except (OSError, ValueError, RuntimeError):
        return None  # a path that is none, or a circle of links: the recall itself says so
    wait_s = CLIENT_WAIT_S
    if isinstance(deadline_ms, int | float) and deadline_ms >= 0:
        wait_s = min(wait_s, deadline_ms / 1000 + _GRACE_S)
    request = {
        **asked,
        "op": "recall",
        "query": query,
        "k": k,
        "as_of": None if as_of is None else as_of.isoformat(),
        "deadline_ms": deadline_ms,
        "give_up_at": time.monotonic() + wait_s,
    }
    answer = exchange(directory, request, wait_s=wait_s)
    if isinstance(answer, Refusal):
        note_fallback(place, answer)
        return None
    # What only the client knows: how it came to the store.
    if answer.get("store") is not None:
        answer["store"] = str(directory)
    if guessed:
        after_settings = sum(w["code"] == "bad_settings" for w in answer["warnings"])
        message = (
            f"several stores exist; {directory.name} published last. Pass store= or set "
            "NOCTUARY_STORE"
        )
        warning = {"code": "store_guessed", "message": message}
        answer["warnings"].insert(after_settings, warning)
    return answer


def ping(store: str | Path, *, wait_s: float = 1.0) -> dict[str, Any] | Refusal:
    """Ask the server of a store directory how it is: the fields are in docs/serve.md."""
    return exchange(Path(store), {"op": "ping"}, wait_s=wait_s)


def exchange(
    directory: Path, request: Mapping[str, Any], *, wait_s: float
) -> dict[str, Any] | Refusal:
    """Send a request, with version, settings and store; return its result, or why there is none."""
    until = time.monotonic() + wait_s
    place = find_place(directory)
    try:
        if not place.socket.exists():
            return Refusal("absent", "no server runs for this store")
        fault = directory_fault(place.directory)
        if fault is not None:
            return Refusal("foreign_directory", fault)
        sent = {"version": __version__, "settings": settings_in_force()}
        line = encode({**request, **sent, "store": str(directory.resolve())})
        if len(line) > MAX_REQUEST_BYTES:
            return Refusal("too_large", f"the request has {len(line):,} bytes")
        message = _send(place.socket, line, until)
    except FileNotFoundError:
        return Refusal("absent", "no server runs for this store")
    except ConnectionRefusedError:
        return Refusal("dead", "the server was killed and left its socket: start it again")
    except (TimeoutError, BlockingIOError):
        return Refusal("timeout", f"the server did not answer within {wait_s:.2f} s")
    except (OSError, ValueError, TypeError) as error:
        return Refusal("broken", f"the exchange broke off: {type(error).__name__}")
    return message if isinstance(message, Refusal) else _result(message)


def _result(message: Mapping[str, Any]) -> dict[str, Any] | Refusal:
    error, result = message.get("error"), message.get("result")
    if isinstance(error, dict):
        fields: Mapping[str, Any] = error
        return Refusal(str(fields.get("code")), str(fields.get("message")))
    if not isinstance(result, dict):
        return Refusal("malformed", "the answer holds neither a result nor an error")
    return result


def _send(path: Path, line: bytes, until: float) -> dict[str, Any] | Refusal:
    """Exchange one line over a connection; an `OSError` where it cannot be made or breaks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(str(path))
        if peer_uid(connection) not in (None, os.geteuid()):
            return Refusal("foreign_server", "the server belongs to another user")
        connection.settimeout(max(until - time.monotonic(), _CONNECT_TIMEOUT_S))
        # A server that is full answers before it has read: its answer says so.
        with suppress(BrokenPipeError):
            connection.sendall(line)
        received = read_line(connection, MAX_RESPONSE_BYTES, until)
    return received if isinstance(received, Refusal) else decode(received)


def _find_store(store: str | Path | None) -> tuple[Path, bool] | None:
    """Return the store directory that is meant and whether it was a guess; None without one."""
    named = str(store) if store is not None else os.environ.get("NOCTUARY_STORE", "").strip()
    if named and not named.startswith("~"):
        # What noctuary.core.store would answer, without its imports.
        path = Path(named)
        if (path / "CURRENT").is_file():
            return path.absolute(), False
    from noctuary.core.errors import NoctuaryError
    from noctuary.core.store import find_home, find_store

    try:
        return find_store(store, home=find_home())
    except NoctuaryError:
        return None
