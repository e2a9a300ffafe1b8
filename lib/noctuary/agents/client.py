"""The client of the warm server: recalls and hooks ask it before they do anything themselves.

A prompt waits for this file. Of the standard library a hook loads what is written in C, and neither
`json` nor `socket`, `typing` or `pathlib`, each of which costs as much as the exchange itself. What
else it needs is behind `noctuary.agents.hooks`, where no server answers.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from binascii import crc32

from noctuary import __version__

TYPE_CHECKING = False  # as in `noctuary`: without `typing`
if TYPE_CHECKING:
    import _socket
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Any

# Where a store's server is found: one private directory per user, file names from the store.

_SOCKET_PATH_BYTES = 100  # sun_path holds 108 on Linux, 104 on macOS, the closing NUL included
_LOOSE_BITS = 0o077
HAS_SERVERS = hasattr(os, "geteuid")  # Windows has no unix sockets either


def locate_server(store: str | Path, environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return directory and name of a server's files; two spellings of a store have one of each."""
    env = os.environ if environ is None else environ
    real = os.fsencode(os.path.realpath(store))
    # 64 bits among the stores of one user; a request names its store in full.
    name = f"{crc32(real):08x}{crc32(real[::-1]):08x}"
    own, runtime = f"noctuary-{_user_id()}", env.get("XDG_RUNTIME_DIR", "").strip()
    temporary = env.get("TMPDIR", "").strip() or "/tmp"
    # A relative one is to be ignored (XDG base directory specification).
    found = [os.path.join(runtime, "noctuary")] if runtime.startswith("/") else []
    found += [os.path.join(temporary, own)]
    longest = _SOCKET_PATH_BYTES - len(f"/{name}.sock")
    fitting = (d for d in found if len(os.fsencode(d)) <= longest)
    return next(fitting, os.path.join("/tmp", own)), name


def _user_id() -> int:
    """Return whose process this is; 0 where users have no numbers, and no server runs."""
    return os.geteuid() if HAS_SERVERS else 0


def directory_fault(directory: str | Path) -> str | None:
    """Return why a directory must not be trusted with a socket; an `OSError` for none."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        return f"{directory} is not a directory: remove it"
    if found.st_uid != _user_id():
        return (
            f"{directory} belongs to user {found.st_uid}, not to {_user_id()}: remove it, or set "
            "XDG_RUNTIME_DIR to a directory of your own"
        )
    if found.st_mode & _LOOSE_BITS:
        mode = stat.S_IMODE(found.st_mode)
        return f"{directory} is open to others (mode {mode:04o}, expected 0700): chmod 700 it"
    return None


# Which store is meant: a cheap version of `noctuary.core.store`, which decides the unclear cases.


def find_store(store: str | Path | None) -> tuple[str, bool] | None:
    """Return the store directory that is meant and whether it was a guess; None without one."""
    named = os.environ.get("NOCTUARY_STORE", "").strip() if store is None else os.fspath(store)
    home = plain_home()
    if home is not None and not named.startswith("~"):
        found = _named_store(home, named) if named or store is not None else _newest_store(home)
        if found is not None:
            return found
    from noctuary.core import store as stores
    from noctuary.core.errors import NoctuaryError

    try:
        directory, guessed = stores.find_store(store, home=stores.find_home())
    except NoctuaryError:
        return None
    return str(directory), guessed


def plain_home() -> str | None:
    """Return noctuary's home, or None if only `noctuary.core.store` can resolve it."""
    named = os.environ.get("NOCTUARY_HOME", "").strip()
    if named:
        return None if named.startswith("~") else os.path.join(os.getcwd(), named)
    data, user = os.environ.get("XDG_DATA_HOME", "").strip(), os.environ.get("HOME", "")
    data = data or (os.path.join(user, ".local/share") if user.startswith("/") else "")
    return os.path.join(data, "noctuary") if data else None


def _named_store(home: str, named: str) -> tuple[str, bool] | None:
    parts = [part for part in named.split("/") if part not in ("", ".")]
    named = ("/" if named.startswith("/") else "") + "/".join(parts)
    # The home first: a project that somebody else made may hold a folder of a store's name.
    for place in (os.path.join(home, named), os.path.join(os.getcwd(), named)):
        if os.path.isfile(f"{place}/CURRENT") or os.path.isdir(f"{place}/work"):
            return place, False
    return None


def _newest_store(home: str) -> tuple[str, bool] | None:
    found: list[tuple[int, str]] = []
    try:
        for name in os.listdir(home):
            if os.path.exists(pointer := f"{home}/{name}/CURRENT"):
                found.append((os.stat(pointer).st_mtime_ns, name))
    except OSError:
        return None
    return (os.path.join(home, max(found)[1]), len(found) > 1) if found else None


# The protocol: one JSON object on one line each way, then the connection is closed.
#
# A request is `{"noctuary": 2, "op": "recall" | "hook" | "ping", ...}`, with a hook's event as the
# text of its JSON. A response is `{"noctuary": 2, "result": {...}}` or `{"noctuary": 2, "error":
# {"code": ..., "message": ...}}`.

PROTOCOL = 2  # raised when one side could not read the other's messages any more
MAX_REQUEST_BYTES = 2 << 20  # a query of 100 KB is 600 KB once escaped; protects the server
MAX_RESPONSE_BYTES = 256 << 20  # a quarter of a million memories; longer ones are not trusted
REQUEST_DEADLINE_S = 4.0  # from a connection's first byte to its last
CLIENT_WAIT_S = 5.0  # above the server's deadline: one that is alive has always answered by then

_CHUNK_BYTES = 1 << 16
_CONNECT_TIMEOUT_S = 0.1  # it takes microseconds; only a full queue of a stuck server waits
_GRACE_S = 0.25  # beyond the caller's own deadline: transport, and steps that cannot be interrupted
# Where the store is, is in the request; where shared models are, matters to a night only; who
# starts a server changes no answer of it.
_IRRELEVANT_VARIABLES = frozenset(
    {"NOCTUARY_STORE", "NOCTUARY_SHARED", "NOCTUARY_HOOK_START_SERVER"}
)


class Refusal:
    """Why there is no answer: a stable code and a remedy; never text of a query or memory."""

    def __init__(self, code: str, message: str) -> None:
        """Take both."""
        self.code, self.message = code, message


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line; pure ASCII, so that lone surrogates survive."""
    import json

    line = json.dumps({"noctuary": PROTOCOL, **message}, separators=(",", ":"))
    return line.encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any] | Refusal:
    """Return the message of a line, or why it is none."""
    from noctuary.core.foreign_json import parse_json

    try:
        message: Any = parse_json(line)
    except ValueError as error:
        return Refusal("malformed", f"expected one JSON object on one line: {type(error).__name__}")
    if not isinstance(message, dict):
        return Refusal("malformed", f"expected a JSON object, found {type(message).__name__}")
    found: Any = message.get("noctuary")
    if type(found) is not int or found != PROTOCOL:
        shown = repr(found) if isinstance(found, int | float | None) else type(found).__name__
        said = f"expected protocol {PROTOCOL}, found {shown}: restart `noctuary serve`"
        return Refusal("protocol", said)
    return message


def read_line(
    connection: _socket.socket,
    limit: int,
    until: float,
    may_hold: Callable[[int], bool] = lambda _: True,
) -> bytes | Refusal:
    """Read up to the first newline: at most `limit` bytes, and until this `time.monotonic()`."""
    # `may_hold` is asked for the bytes of each part, before the next one is read.
    parts: list[bytes] = []
    size = 0
    while (left := until - time.monotonic()) > 0:
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
        if not may_hold(len(head)):
            return Refusal("busy", "unfinished requests fill the memory: ask less at once")
        if newline:
            return b"".join(parts)
        if not part:
            return Refusal("half", "the connection was closed before the end of the line")
    return Refusal("timeout", "no whole line arrived in time")


def settings_in_force(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return every variable that may change a result: both sides must rank in the same way."""
    env = os.environ if environ is None else environ
    found = {
        name: value
        for name, value in env.items()
        if name.startswith("NOCTUARY_") and name not in _IRRELEVANT_VARIABLES
    }
    for name in ("NOCTUARY_HOME", "NOCTUARY_CONFIG"):
        if named := found.get(name, "").strip():
            found[name] = os.path.normpath(os.path.join(os.getcwd(), named))
    if not found.get("NOCTUARY_HOME"):
        found.update({name: env.get(name, "") for name in ("HOME", "XDG_DATA_HOME")})
    return found


def peer_uid(connection: _socket.socket) -> int | None:
    """Return the user of the process at the other end, or None where the system does not say."""
    import _socket

    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:
        return None
    raw = connection.getsockopt(_socket.SOL_SOCKET, option, 12)  # pid, uid, gid
    return int.from_bytes(raw[4:8], sys.byteorder)


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
        `RecallResult.to_json()` as `noctuary.recall` would give it. None if no server answered:
        then call `noctuary.recall`. Never raises because a server is absent, stuck or foreign.
    """
    try:
        found = find_store(store)
    except (OSError, ValueError, RuntimeError):
        return None  # a path that is none, or a circle of links: the recall itself says so
    if found is None:
        return None
    directory, guessed = found
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
        note_fallback(directory, answer)
        return None
    # What only the client knows: how it came to the store.
    if answer.get("store") is not None:
        answer["store"] = directory
    if guessed:
        after_settings = sum(w["code"] == "bad_settings" for w in answer["warnings"])
        message = (
            f"several stores exist; {os.path.basename(directory)} published last. Pass store= or "
            "set NOCTUARY_STORE"
        )
        warning = {"code": "store_guessed", "message": message}
        answer["warnings"].insert(after_settings, warning)
    return answer


def ping(store: str | Path, *, wait_s: float = 1.0) -> dict[str, Any] | Refusal:
    """Ask the server of a store directory how it is: the fields are in docs/serve.md."""
    return exchange(store, {"op": "ping"}, wait_s=wait_s)


def exchange(
    store: str | Path, request: Mapping[str, Any], *, wait_s: float
) -> dict[str, Any] | Refusal:
    """Send a request, with version, settings and store; return its result, or why there is none."""
    line = _exchange_lines(store, lambda sent: encode({**request, **sent}), wait_s)
    return line if isinstance(line, Refusal) else _result(line)


def _result(line: bytes) -> dict[str, Any] | Refusal:
    message = decode(line)
    if isinstance(message, Refusal):
        return message
    error, result = message.get("error"), message.get("result")
    if isinstance(error, dict):
        fields: Mapping[str, Any] = error
        return Refusal(str(fields.get("code")), str(fields.get("message")))
    if not isinstance(result, dict):
        return Refusal("malformed", "the answer holds neither a result nor an error")
    return result


def _exchange_lines(
    store: str | Path, write: Callable[[dict[str, Any]], bytes], wait_s: float
) -> bytes | Refusal:
    """Send the line that is written of version, settings and store; return the one that answers."""
    if not HAS_SERVERS:
        return Refusal("absent", "no server runs on this system")
    until = time.monotonic() + wait_s
    try:
        directory, name = locate_server(store)
        path = f"{directory}/{name}.sock"
        if not os.path.exists(path):
            return Refusal("absent", "no server runs for this store")
        fault = directory_fault(directory)
        if fault is not None:
            return Refusal("foreign_directory", fault)
        sent = {"version": __version__, "settings": settings_in_force()}
        line = write({**sent, "store": os.path.realpath(store)})
        if len(line) > MAX_REQUEST_BYTES:
            return Refusal("too_large", f"the request has {len(line):,} bytes")
        return _send(path, line, until)
    except FileNotFoundError:
        return Refusal("absent", "no server runs for this store")
    except ConnectionRefusedError:
        return Refusal("dead", "the server was killed and left its socket: start it again")
    except (TimeoutError, BlockingIOError):
        return Refusal("timeout", f"the server did not answer within {wait_s:.2f} s")
    except (OSError, ValueError, TypeError) as error:
        return Refusal("broken", f"the exchange broke off: {type(error).__name__}")


def _send(path: str, line: bytes, until: float) -> bytes | Refusal:
    """Exchange one line over a connection; an `OSError` where it cannot be made or breaks."""
    import _socket  # not where no server runs; `socket` around it takes longer than the exchange

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_TIMEOUT_S)
        connection.connect(path)
        if peer_uid(connection) not in (None, _user_id()):
            return Refusal("foreign_server", "the server belongs to another user")
        connection.settimeout(max(until - time.monotonic(), _CONNECT_TIMEOUT_S))
        try:
            connection.sendall(line)
        except BrokenPipeError:
            pass  # a server that is full answers before it has read: its answer says so
        return read_line(connection, MAX_RESPONSE_BYTES, until)
    finally:
        connection.close()


# Not worth a note: no server was started; the recall itself refuses such arguments too.
_ORDINARY = frozenset({"absent", "invalid"})


def note_fallback(store: str | Path, refusal: Refusal) -> None:
    """Keep why no server answered, for `noctuary doctor`; no text of a query. Never raises."""
    if refusal.code in _ORDINARY:
        return
    from pathlib import Path

    from noctuary.agents.state import replace_json

    try:
        directory, name = locate_server(store)
        if directory_fault(directory) is None:
            note = {**vars(refusal), "at_s": time.time()}
            replace_json(Path(directory, f"{name}.fallback"), note)
    except (OSError, ValueError):
        pass


# What `noctuary hook` needs before it knows whether a server answers.

AGENTS = ("claude", "codex")

PROMPT = "UserPromptSubmit"
SESSION_START = "SessionStart"
TELLING = frozenset({PROMPT, SESSION_START})
"""Events whose answer may hold context for the model and a message for the user. All others get an
empty answer: output of PreCompact may become instructions of the compaction, and output of
SessionEnd is not read."""

LIFETIME_S = 3.0
"""After this long the process ends, whatever it is doing: longer than the cold answer's deadline
and grace, shorter than any agent's own timeout for a prompt."""

MAX_EVENT_BYTES = 8_388_608  # a longer event is read to its end and answered with nothing

_DEADLINE_VARIABLE, _DEADLINE_MS = "NOCTUARY_HOOK_DEADLINE_MS", 250.0  # hook.deadline_ms


def ask_hook(agent: str, store: str | None, raw: bytes, started_s: float) -> bytes | None:
    """Return the line that the store's server prints for an event; None where it answers none."""
    # Only events that wait for memories; the others are faster in this process. The server parses
    # the event and says which it is: to load `json` would double what this process does.
    try:
        found = find_store(store) if any(name.encode() in raw for name in TELLING) else None
        if found is None:
            return None
        # The settings file is not read here: its longer deadline counts only without a server.
        deadline_ms = float(os.environ.get(_DEADLINE_VARIABLE) or _DEADLINE_MS)
        wait_s = min(deadline_ms / 1000, CLIENT_WAIT_S) + _GRACE_S
        request = {"noctuary": PROTOCOL, "op": "hook", "agent": agent, "event": raw.decode()}
        request |= {"started_s": started_s, "give_up_at": started_s + wait_s}
        line = _exchange_lines(
            found[0],
            lambda sent: f"{as_json({**request, **sent})}\n".encode("utf-8", "surrogatepass"),
            started_s + wait_s - time.monotonic(),
        )
    except Exception:
        return None
    if isinstance(line, bytes) and line.startswith(_RESULT) and line.endswith(b"}"):
        said = line[len(_RESULT) : -1]
        return b"" if said == b"{}" else said + b"\n"
    answer = line if isinstance(line, Refusal) else _result(line)
    if isinstance(answer, Refusal):
        note_fallback(found[0], answer)
    return None


_RESULT = b'{"noctuary":%d,"result":' % PROTOCOL  # how `encode` begins an answer
_ESCAPES = {34: '\\"', 92: r"\\", **{code: f"\\u{code:04x}" for code in range(32)}}


def as_json(value: str | float | Mapping[str, Any]) -> str:
    """Return a text, a finite number or an object of them as JSON."""
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, int | float):
        return repr(value)
    return f"{{{','.join(f'{as_json(name)}:{as_json(v)}' for name, v in value.items())}}}"


def keep_standard_handles() -> None:
    """Put /dev/null where stdin, stdout or stderr is closed."""
    # Otherwise the next opened file would get the number 1, and the answer meant for the agent.
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one


def parse_options(arguments: Sequence[str]) -> tuple[str, str | None] | None:
    """Return agent and store of a command line, whatever else is on it; None without an agent."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, has_value, value = rest.pop(0).partition("=")
        if name in ("--agent", "--store"):
            found[name] = value if has_value else (rest.pop(0) if rest else "")
    agent = found.get("--agent", "")
    return (agent, found.get("--store") or None) if agent in AGENTS else None


def read_event(handle: int, until_s: float) -> bytes:
    """Read a pipe to its end; return nothing if it exceeds `MAX_EVENT_BYTES`."""
    parts: list[bytes] = []
    size = 0
    end = _end_at(until_s) if sys.platform == "win32" else None  # it waits for sockets only
    while True:
        if end is None and not select.select([handle], [], [], _left_s(until_s))[0]:
            raise TimeoutError("the agent did not end its event in time")
        part = os.read(handle, _CHUNK_BYTES)
        if not part:
            break
        size += len(part)
        if size <= MAX_EVENT_BYTES:
            parts.append(part)
    if end is not None:
        end.cancel()
    return b"".join(parts) if size <= MAX_EVENT_BYTES else b""


def _left_s(until_s: float) -> float:
    return max(until_s - time.monotonic(), 0.0)


def _end_at(until_s: float) -> threading.Timer:
    """Let the process end at a moment, whatever it waits for, unless that is cancelled."""
    import threading

    end = threading.Timer(_left_s(until_s), os._exit, [0])
    end.start()
    return end
