"""The warm server: one process per store that keeps snapshot and encoder open."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from noctuary import __version__
from noctuary.agents.client import (
    AGENTS,
    MAX_REQUEST_BYTES,
    REQUEST_DEADLINE_S,
    TELLING,
    Refusal,
    decode,
    directory_fault,
    encode,
    locate_server,
    peer_uid,
    read_line,
    settings_in_force,
)
from noctuary.agents.hooks import Failure, HookProcess, environment_home, handle, parse_event
from noctuary.agents.state import read_json, read_row
from noctuary.core.errors import EncoderError, StoreError
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import HookSettings
from noctuary.recall.api import find_serving, recall
from noctuary.recall.inputs import warm_up as open_encoder
from noctuary.recall.profile import current_settings
from noctuary.work.lock import hold_lock

Answer = Callable[[Path, Mapping[str, Any]], "dict[str, Any] | Refusal"]

# What a request means: its fields checked, the recall made, its result as plain values.

_FIELDS: Mapping[str, Any] = {
    "query": str, "k": int, "sort_by": str, "profile": (dict, str, type(None)), "as_of": str | None,
    "deadline_ms": int | float | None,
    **dict.fromkeys(("wing", "room", "category", "user", "session_id"), str | None),
    **dict.fromkeys(("explain", "candidate_trace", "dry_run", "person"), bool),
}  # fmt: skip
"""The arguments of a recall by name, with their types."""
_RECORD_AFTER_S = 0.01  # by then the answer has gone
_ENVELOPE = frozenset({"noctuary", "op", "version", "settings", "store", "give_up_at"})


def warm_up(store: Path) -> None:
    """Open snapshot and encoder before the first request; a recall reports failures."""
    recall("warm up", 1, store=store, dry_run=True)
    with suppress(StoreError, EncoderError, OSError):
        recaller = find_serving(store)[0]
        open_encoder(recaller.paths, recaller.reader.manifest)


def give_back(store: Path) -> None:
    """Give back the memory that a server needs only while it is asked."""
    with suppress(StoreError, OSError):
        find_serving(store)[0].reader.release()
    import ctypes  # not before the server rests

    with suppress(AttributeError, OSError):  # glibc keeps what Python has freed
        ctypes.CDLL(None).malloc_trim(0)


def answer_request(store: Path, request: Mapping[str, Any]) -> dict[str, Any] | Refusal:
    """Return the result of a recall or a hook, or why this server must not or cannot answer it."""
    refusal = _not_for_us(store, request)
    if refusal is not None:
        return refusal
    left_ms, until = REQUEST_DEADLINE_S * 1000, request.get("give_up_at")
    if isinstance(until, int | float):  # the monotonic clock is one for all processes
        left_ms = min((until - time.monotonic()) * 1000, left_ms)
    if left_ms <= 0:
        return Refusal("expired", "the client has given up: the server was too busy or stopped")
    if request.get("op") == "hook":
        return _answer_event(store, request, left_ms)
    try:
        return recall(**_arguments(request, left_ms), store=store).to_json()
    except (ValueError, TypeError) as error:
        return Refusal("invalid", f"{type(error).__name__}: the recall refuses its arguments")


def _answer_event(
    store: Path, request: Mapping[str, Any], left_ms: float
) -> dict[str, Any] | Refusal:
    """Return the output of a hook; its state between events is written by this process."""
    agent, started_s, sent = (request.get(name) for name in ("agent", "started_s", "event"))
    if agent not in AGENTS or not isinstance(started_s, int | float) or not isinstance(sent, str):
        return Refusal("malformed", "expected an agent, its event and when its hook started")
    try:
        event: Any = parse_json(sent)
    except ValueError:
        event = None
    if parse_event(event).name not in TELLING:
        return Refusal("invalid", "this server answers only events that wait for memories")
    settings, faults = current_settings()
    if faults:
        return Refusal("invalid", "the settings have faults: the hook itself says which")
    process = _ServedHook(agent, store, started_s, settings.hook)
    process.give_up_s = time.monotonic() + left_ms / 1000
    answer = handle(event, process)
    if process.unrecorded is not None:  # hashing takes some ms, which the prompt need not wait for
        threading.Timer(_RECORD_AFTER_S, process.record_injection).start()
    return answer


class _ServedHook(HookProcess):
    """The process of an event that this server answers; nobody asks it to start another."""

    def __init__(self, agent: str, store: Path, started_s: float, settings: HookSettings) -> None:
        super().__init__(agent, str(store), environment_home(), started_s)
        self._settings = settings

    def recall(self, query: str, **asked: Any) -> Mapping[str, Any] | Failure:
        left_ms = max(0.0, (self.until_s() - time.monotonic()) * 1000)
        return recall(query, **asked, store=self._store, deadline_ms=left_ms).to_json()


def _not_for_us(store: Path, request: Mapping[str, Any]) -> Refusal | None:
    """Refuse requests that the client's own process would answer differently."""
    if request.get("version") != __version__:
        return Refusal(
            "version",
            f"the server runs noctuary {__version__}, the client another one: restart the server",
        )
    if request.get("store") != str(store.resolve()):
        return Refusal("store", f"this server is for {store}")
    theirs, ours = request.get("settings"), settings_in_force()
    if theirs != ours:
        found: Mapping[str, Any] = theirs if isinstance(theirs, dict) else {}
        names = sorted(n for n in {*found, *ours} if found.get(n) != ours.get(n))
        return Refusal(
            "settings",
            f"client and server differ in {', '.join(names) or 'their settings'}: start the server "
            "with the client's environment",
        )
    return None


def _arguments(request: Mapping[str, Any], left_ms: float) -> dict[str, Any]:
    """Return the arguments of `recall`; raise a `ValueError` for unknown ones."""
    asked = {name: value for name, value in request.items() if name not in _ENVELOPE}
    wrong = [
        name
        for name, value in asked.items()
        if not isinstance(value, kind := _FIELDS.get(name, ()))
        or (isinstance(value, bool) and kind is not bool)
    ]
    if wrong:
        raise ValueError(f"unknown arguments, or wrong types: {', '.join(wrong)}")
    as_of, deadline_ms = asked.get("as_of"), asked.get("deadline_ms")
    asked["as_of"] = None if as_of is None else datetime.fromisoformat(as_of)
    asked["deadline_ms"] = left_ms if deadline_ms is None else min(deadline_ms, left_ms)
    return asked


# The server: a thread reads each connection, and a whole request takes one of a few turns, so that
# silent and slow clients hold nothing that the others need.

DEFAULT_CLIENTS = 8  # answered at once: more than the cores only shares them out
MAX_CONNECTIONS = 256  # open at once, the silent ones too; others are refused
MAX_HELD_BYTES = 64 << 20  # of unfinished requests and unread answers, all connections together
_READ_TIMEOUT_S = 1.0  # for the whole request: clients send it at once
_BUSY_WAIT_S = 0.25  # for a turn; longer delays the client's own recall
_TICK_S = 2.0  # how often an idle server looks whether its socket is still there
_REST_S = 5.0  # without a request, until it gives memory back: the next one takes 2 ms longer
_RETRY_S = 0.05


class Server:
    """Answers for one store until it is stopped, idle for too long, or its socket is gone."""

    def __init__(
        self,
        store: Path,
        answer: Answer,
        *,
        rest: Callable[[Path], None] = lambda _: None,
        idle_s: float = 0.0,
        clients: int = DEFAULT_CLIENTS,
        owner: int | None = None,
    ) -> None:
        """Set up without listening yet."""
        # `answer` runs in several threads, `rest` once nobody asks. After `idle_s` without request
        # it stops, 0 never; beyond `clients` at once, others are refused ("busy").
        if not hasattr(os, "geteuid"):
            raise StoreError("a warm server needs unix sockets, which this system does not have")
        self.place: Place = find_place(store)
        self._store = store
        self._answer = answer
        self._rest = rest
        self._idle_s = idle_s
        self._owner = os.geteuid() if owner is None else owner
        self._turns = threading.Semaphore(clients)
        self._state = threading.Condition()
        self._started_s = time.time()
        self._last_s = time.monotonic()
        self._open = self._answered = self._held_bytes = 0
        self._is_stopped = False

    def stop(self) -> None:
        """Stop after the requests that have arrived; from any thread or signal handler."""
        self._is_stopped = True
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waker:
            waker.setblocking(False)
            waker.connect(str(self.place.socket))  # else it is noticed at the next tick

    def run(
        self, ready: Callable[[], None] = lambda: None, prepare: Callable[[], None] = lambda: None
    ) -> str:
        """Listen and answer; return why it ended: "stopped", "idle" or "socket_gone"."""
        # `prepare` is called with the store's place taken and before any client sees it, who would
        # wait for it; `ready` once clients are answered; a
        # `StoreLockedError` names another server, a `StoreError` a fault of the socket.
        with _claimed(self.place, self._store, prepare) as listener:
            own = self.place.socket.stat().st_ino
            ready()
            self._last_s = time.monotonic()
            reason = self._accept_until_done(listener, own)
            self.place.socket.unlink(missing_ok=True)
            listener.setblocking(False)
            while self._accept(listener):
                pass  # answer clients that have already connected
            with self._state:
                self._state.wait_for(lambda: not self._open, REQUEST_DEADLINE_S)
        return reason

    def _accept_until_done(self, listener: socket.socket, own: int) -> str:
        rested_s = 0.0  # since which request it rests
        while not self._is_stopped:
            with self._state:
                quiet_s = 0.0 if self._open else time.monotonic() - self._last_s
            if 0 < self._idle_s <= quiet_s:
                return "idle"
            if quiet_s >= _REST_S and rested_s != self._last_s:
                rested_s = self._last_s
                self._rest(self._store)
            left_s = self._idle_s - quiet_s if self._idle_s > 0 else _TICK_S
            listener.settimeout(min(_TICK_S, left_s))
            if not self._accept(listener) and not self._socket_is(own):
                return "socket_gone"
        return "stopped"

    def _socket_is(self, own: int) -> bool:
        """Say whether clients still reach this server: cleaners of /tmp take sockets too."""
        try:
            return self.place.socket.stat().st_ino == own
        except OSError:
            return False

    def _accept(self, listener: socket.socket) -> bool:
        """Hand one connection to a thread; False if none was waiting."""
        try:
            connection, _ = listener.accept()
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            # Out of descriptors, or the client has gone: neither may end the server.
            time.sleep(_RETRY_S)
            return False
        with self._state:
            is_full = self._open >= MAX_CONNECTIONS
            self._open += 0 if is_full else 1
        if not is_full:
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # the system gives no more threads
                self._close(0)
            else:
                return True
        with suppress(OSError), connection:  # it did not wait
            connection.setblocking(False)
            connection.sendall(_encoded(Refusal("busy", "too many connections: ask less at once")))
        return True

    def _close(self, held_bytes: int) -> None:
        """Release a connection and the bytes it held."""
        with self._state:
            self._open -= 1
            self._held_bytes -= held_bytes
            self._last_s = time.monotonic()
            self._state.notify_all()

    def _serve(self, connection: socket.socket) -> None:
        held_bytes = 0

        def may_hold(size: int) -> bool:
            nonlocal held_bytes
            with self._state:
                if self._held_bytes + size > MAX_HELD_BYTES:
                    return False
                self._held_bytes += size
            held_bytes += size
            return True

        try:
            # If sending fails the client is gone: there is no one to report to.
            with suppress(OSError, ValueError), connection:
                self._exchange(connection, may_hold)
        finally:
            self._close(held_bytes)

    def _exchange(self, connection: socket.socket, may_hold: Callable[[int], bool]) -> None:
        """Read one request and send its answer; the turn is released before sending."""
        until = time.monotonic() + REQUEST_DEADLINE_S
        line = self._read(connection, may_hold)
        if isinstance(line, Refusal):
            response = _encoded(line)
        elif not self._turns.acquire(timeout=_BUSY_WAIT_S):
            said = "every turn is taken: raise --clients, or ask less at once"
            response = _encoded(Refusal("busy", said))
        else:
            try:
                response = _encoded(self._respond(line))
                if not may_hold(len(response)):
                    _send(connection, response, until)  # no memory left: it keeps its turn
                    return
            finally:
                self._turns.release()
        _send(connection, response, until)

    def _read(self, connection: socket.socket, may_hold: Callable[[int], bool]) -> bytes | Refusal:
        if peer_uid(connection) not in (None, self._owner):
            return Refusal("foreign_client", "this server answers its own user only")
        until = time.monotonic() + _READ_TIMEOUT_S
        return read_line(connection, MAX_REQUEST_BYTES, until, may_hold)

    def _respond(self, line: bytes) -> dict[str, Any] | Refusal:
        request = decode(line)
        if isinstance(request, Refusal):
            return request
        try:
            if request.get("op") == "ping":
                process = {"pid": os.getpid(), "version": __version__, "store": str(self._store)}
                counted = {"started_s": self._started_s, "answered": self._answered}
                return {**process, **counted}
            if request.get("op") not in ("recall", "hook"):
                return Refusal("malformed", 'expected op "recall", "hook" or "ping"')
            answer = self._answer(self._store, request)
        except Exception as error:
            # A defect in one request must not take the others' server away.
            return Refusal("internal", f"{type(error).__name__} in the server")
        if not isinstance(answer, Refusal):
            with self._state:
                self._answered += 1
        return answer


def _send(connection: socket.socket, response: bytes, until: float) -> None:
    connection.settimeout(max(until - time.monotonic(), _RETRY_S))
    connection.sendall(response)


def _encoded(answer: dict[str, Any] | Refusal) -> bytes:
    if isinstance(answer, Refusal):
        return encode({"error": vars(answer)})
    return encode({"result": answer})


# A store's place: the private directory, the lock, the listening socket, the note of a fallback.


class Place(NamedTuple):
    """The files of one store's server, named by a hash of the store's real path."""

    directory: Path  # the user's own, mode 0700
    socket: Path  # where the server listens; there while it runs, or after it was killed
    lock: Path  # held (flock) by the running server; the file itself stays
    fallback: Path  # the last reason worth knowing why a client recalled without the server


class Fallback(NamedTuple):
    """Why a client recalled without the server, and when (seconds since the epoch)."""

    code: str
    message: str
    at_s: float


def find_place(store: str | Path, environ: Mapping[str, str] | None = None) -> Place:
    """Return the place of a store's server; two spellings of one directory have one place."""
    directory, name = locate_server(store, environ)
    kinds = ("sock", "lock", "fallback")
    return Place(Path(directory), *(Path(directory, f"{name}.{kind}") for kind in kinds))


def read_fallback(place: Place) -> Fallback | None:
    """Return the last note of a client (`note_fallback`), or None."""
    return read_row(Fallback, read_json(place.fallback, MAX_REQUEST_BYTES)[0])


@contextmanager
def _claimed(place: Place, store: Path, prepare: Callable[[], None]) -> Generator[socket.socket]:
    """Hold a store's place for the block: its lock and a listening socket of mode 0600."""
    # The lock dies with its holder, so a socket that is found while holding it is a dead server's.
    _make_private(place.directory)
    said = f"already answers for {store}: use it, or stop it"
    with (
        hold_lock(place.lock, lambda holder: f"another server (process {holder}) {said}"),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        place.socket.unlink(missing_ok=True)
        prepare()
        try:
            listener.bind(str(place.socket))
            # The directory is private meanwhile.
            place.socket.chmod(0o600)
            listener.listen(MAX_CONNECTIONS)
        except OSError as error:
            raise StoreError(f"cannot listen on {place.socket}: {error}") from error
        try:
            yield listener
        finally:
            place.socket.unlink(missing_ok=True)


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.lstat().st_uid == os.geteuid() and not directory.is_symlink():
            directory.chmod(0o700)
        fault = directory_fault(directory)
    except OSError as error:
        raise StoreError(
            f"no socket directory can be made at {directory} ({error.strerror}): set "
            "XDG_RUNTIME_DIR to a directory of your own"
        ) from error
    if fault is not None:
        raise StoreError(fault)
