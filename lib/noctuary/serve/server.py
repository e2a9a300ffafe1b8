"""The server: a bounded number of threads that answer one request per connection.

What belongs here: connections, threads, when to stop. What a request means is `answer`'s.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noctuary import __version__
from noctuary.serve.claim import claim_place
from noctuary.serve.place import Place, find_place
from noctuary.serve.protocol import (
    MAX_REQUEST_BYTES,
    REQUEST_DEADLINE_S,
    Refusal,
    decode,
    encode,
    peer_uid,
    read_line,
)

DEFAULT_CLIENTS = 8
"""Requests answered at once: more than the cores only shares them out among more clients."""
_READ_TIMEOUT_S = 1.0
"""For the whole request: clients send it at once; longer lets a silent one keep a thread."""
_BUSY_WAIT_S = 0.25
"""How long a connection waits for a free thread; longer delays the client's own recall."""
_TICK_S = 2.0
"""How often an idle server looks whether its socket is still there."""
_RETRY_S = 0.05

Answer = Callable[[Path, Mapping[str, Any]], "dict[str, Any] | Refusal"]
Describe = Callable[[Path], Mapping[str, Any]]


class Server:
    """Answers for one store until it is stopped, idle for too long, or its socket is gone.

    Args:
        store: The store directory.
        answer: Turns a recall request into a result or a refusal; runs in several threads.
        describe: Returns what a ping says beyond the server itself; runs in several threads.
        idle_s: Seconds without a request after which it stops; 0 means never.
        clients: Requests answered at once, >= 1; others wait a moment and are refused ("busy").
        owner: The user whose processes may ask.
    """

    def __init__(
        self,
        store: Path,
        answer: Answer,
        *,
        describe: Describe = lambda _: {},
        idle_s: float = 0.0,
        clients: int = DEFAULT_CLIENTS,
        owner: int | None = None,
    ) -> None:
        self.place: Place = find_place(store)
        self._store = store
        self._answer = answer
        self._tell = describe
        self._idle_s = idle_s
        self._owner = os.geteuid() if owner is None else owner
        self._free = threading.BoundedSemaphore(clients)
        self._running: set[threading.Thread] = set()
        self._state = threading.Lock()
        self._started_s = time.time()
        self._last_s = time.monotonic()
        self._answered = 0
        self._wake, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def stop(self) -> None:
        """Stop after the requests that have arrived; from any thread or signal handler."""
        try:
            self._waker.send(b"\0")
        except OSError:
            return  # full of earlier calls, or the server is gone

    def run(
        self,
        ready: Callable[[], None] = lambda: None,
        prepare: Callable[[], None] = lambda: None,
    ) -> str:
        """Listen and answer.

        Args:
            ready: Called once clients are answered.
            prepare: Called before, with the store's place already taken.

        Returns:
            Why it ended: "stopped", "idle" or "socket_gone".

        Raises:
            StoreLockedError: If the store has a server already.
            StoreError: If the socket cannot be made, or not safely.
        """
        try:
            with claim_place(self.place, self._store) as listener:
                own = self.place.socket.stat().st_ino
                prepare()
                ready()
                self._last_s = time.monotonic()
                reason = self._accept_until_done(listener, own)
                self.place.socket.unlink(missing_ok=True)
                self._finish(listener)
            return reason
        finally:
            self._wake.close()
            self._waker.close()

    def _accept_until_done(self, listener: socket.socket, own: int) -> str:
        listener.setblocking(False)
        # Not select(): a process that embeds a server may hold more descriptors than it can watch.
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(self._wait_s())}
                if self._wake in ready:
                    return "stopped"
                if listener in ready:
                    self._accept(listener)
                elif not self._socket_is(own):
                    return "socket_gone"
                elif self._is_idle():
                    return "idle"

    def _wait_s(self) -> float:
        if self._idle_s <= 0:
            return _TICK_S
        return min(_TICK_S, max(self._last_s + self._idle_s - time.monotonic(), _RETRY_S))

    def _is_idle(self) -> bool:
        with self._state:
            return (
                self._idle_s > 0
                and not self._running
                and time.monotonic() - self._last_s >= self._idle_s
            )

    def _socket_is(self, own: int) -> bool:
        """Say whether clients still reach this server: cleaners of /tmp take sockets too."""
        try:
            return self.place.socket.stat().st_ino == own
        except OSError:
            return False

    def _finish(self, listener: socket.socket) -> None:
        """Answer who has connected already, then wait for every running request."""
        while self._accept(listener):
            pass
        until = time.monotonic() + REQUEST_DEADLINE_S
        with self._state:
            running = list(self._running)
        for thread in running:
            thread.join(max(until - time.monotonic(), 0.0))

    def _accept(self, listener: socket.socket) -> bool:
        """Hand one connection to a thread; False if none was waiting."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return False
        except OSError:
            # Out of descriptors, or the client has gone: neither may end the server.
            time.sleep(_RETRY_S)
            return False
        if not self._free.acquire(timeout=_BUSY_WAIT_S):
            _refuse_busy(connection)
            return True
        thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
        with self._state:
            self._running.add(thread)
        thread.start()
        return True

    def _serve(self, connection: socket.socket) -> None:
        until = time.monotonic() + REQUEST_DEADLINE_S
        try:
            with connection:
                response = encode(_message(self._respond(connection)))
                connection.settimeout(max(until - time.monotonic(), _RETRY_S))
                connection.sendall(response)
        except (OSError, ValueError):
            pass  # the client has gone or does not read: nobody is left to tell
        finally:
            with self._state:
                self._running.discard(threading.current_thread())
                self._last_s = time.monotonic()
            self._free.release()

    def _respond(self, connection: socket.socket) -> dict[str, Any] | Refusal:
        if peer_uid(connection) not in (None, self._owner):
            return Refusal("foreign_client", "this server answers its own user only")
        line = read_line(connection, MAX_REQUEST_BYTES, time.monotonic() + _READ_TIMEOUT_S)
        request = line if isinstance(line, Refusal) else decode(line)
        if isinstance(request, Refusal):
            return request
        if request.get("op") not in ("recall", "ping"):
            return Refusal("malformed", 'expected op "recall" or "ping"')
        try:
            if request["op"] == "ping":
                return {**self._describe(), **self._tell(self._store)}
            answer = self._answer(self._store, request)
        except Exception as error:
            # A defect in one request must not take the others' server away; the client recalls
            # itself and shows it.
            return Refusal("internal", f"{type(error).__name__} in the server")
        if not isinstance(answer, Refusal):
            with self._state:
                self._answered += 1
        return answer

    def _describe(self) -> dict[str, Any]:
        with self._state:
            return {
                "pid": os.getpid(),
                "version": __version__,
                "store": str(self._store),
                "started_s": self._started_s,
                "answered": self._answered,
            }


def _message(answer: dict[str, Any] | Refusal) -> dict[str, Any]:
    return {"error": answer.to_json()} if isinstance(answer, Refusal) else {"result": answer}


def _refuse_busy(connection: socket.socket) -> None:
    refusal = Refusal("busy", "every thread is taken: raise --clients, or ask less at once")
    try:
        with connection:
            connection.setblocking(False)
            connection.sendall(encode(_message(refusal)))
    except OSError:
        return  # it did not wait
