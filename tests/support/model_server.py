"""A real HTTP server with an OpenAI-compatible path; a subclass's rule stands for the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from noctuary.work.http import ITEMS_MARK


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def items(self) -> list[dict[str, str]]:
        user: str = self.body["messages"][1]["content"]
        return json.loads(user.removeprefix(ITEMS_MARK))


@dataclass(frozen=True)
class Fault:
    """How one request is answered instead of properly.

    Attributes:
        status: HTTP status.
        body: Sent as it is.
        headers: Sent besides Content-Length.
        announced: Content-Length to claim; None tells the truth.
        hang: Answer nothing until the server closes.
        drip_s: Seconds between single bytes of the body.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    announced: int | None = None
    hang: bool = False
    drip_s: float = 0.0


def envelope(content: object) -> bytes:
    """Return the body around a model's text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}}
    return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


@dataclass
class ModelServer:
    """Serves in a thread until the `with` block ends.

    Attributes:
        faults: Taken one per request, oldest first, before the rule gets a turn.
        spares_single_items: Faults are for requests of several items only. Of requests that are
            sent at once it is chance which comes first.
        asked: Every request, in order.
    """

    faults: list[Fault] = field(default_factory=list[Fault])
    spares_single_items: bool = False
    asked: list[Asked] = field(default_factory=list[Asked])

    def __enter__(self) -> Self:
        self.closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def answer(self, asked: Asked) -> bytes:
        """Return what the rule says, as an OpenAI-compatible body."""
        raise NotImplementedError  # this one has no rule: every request needs its fault


class _Server(ThreadingHTTPServer):
    def __init__(self, rules: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rules = rules


class _Handler(BaseHTTPRequestHandler):
    @property
    def rules(self) -> ModelServer:
        assert isinstance(self.server, _Server)
        return self.server.rules

    def do_POST(self) -> None:
        rules = self.rules
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = Asked(self.path, dict(self.headers.items()), json.loads(body))
        rules.asked.append(asked)
        spared = rules.spares_single_items and len(asked.items) == 1
        faulty = bool(rules.faults) and not spared
        self._send(rules.faults.pop(0) if faulty else Fault(body=rules.answer(asked)))

    def do_GET(self) -> None:
        self.rules.asked.append(Asked(self.path, dict(self.headers.items()), {}))
        self._send(Fault(404))

    def _send(self, fault: Fault) -> None:
        if fault.hang:
            self.rules.closing.wait()
            return
        self.send_response(fault.status)
        length = len(fault.body) if fault.announced is None else fault.announced
        for name, value in {"Content-Length": str(length), **fault.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if fault.drip_s:
            self._drip(fault)
        else:
            self.wfile.write(fault.body)

    def _drip(self, fault: Fault) -> None:
        for byte in fault.body:
            if self.rules.closing.wait(fault.drip_s):
                return
            self.wfile.write(bytes([byte]))

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client gave up first
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass
