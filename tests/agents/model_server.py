"""One scripted model server on loopback: a table of rules answers in each provider's own protocol.

Another protocol is one more row of `DIALECTS`: how a request is read, and how a reply is written.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

HOLD_S = 60.0  # A held reply goes out after so long, whatever happens

Json = dict[str, Any]


class Call(NamedTuple):
    """A tool call that the model makes."""

    name: str
    arguments: Mapping[str, Any]
    namespace: str = ""  # OpenAI Responses: the server of an MCP tool


@dataclass(frozen=True)
class Reply:
    """What the model says to one request.

    Attributes:
        text: Its words; "" for none.
        calls: Tool calls behind them.
        tokens: Input tokens that it reports: large ones make an agent compact.
        hold: The reply waits for it, half written: the agent is in mid-turn.
        status: Another HTTP status than 200 is an error of the service.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    tokens: int = 100
    hold: threading.Event | None = None
    status: int = 200


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Json
    said: str  # Texts and tool results behind the model's last words

    @property
    def raw(self) -> str:
        """Everything that was sent, as one text to search in."""
        return json.dumps(self.body, ensure_ascii=False)


@dataclass(frozen=True)
class Rule:
    """Answers requests whose latest texts hold `when`; each rule `times` times."""

    when: str
    reply: Reply | Callable[[Asked], Reply]
    times: int = 1


class Dialect(NamedTuple):
    """One provider's protocol."""

    said: Callable[[Json], str]
    write: Callable[[Reply, str, str], Iterator[bytes]]  # reply, a unique id, the model's name
    media_type: str = "text/event-stream"


def sse(event: str, data: Json) -> bytes:
    """Return one server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def texts_of(value: object) -> Iterator[str]:
    """Yield every string below the keys that hold texts, whatever the nesting."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, dict):
        for key in ("text", "content", "output", "parts", "response", "functionResponse"):
            yield from texts_of(value.get(key))


def said_after(items: list[Json], is_model: Callable[[Json], bool]) -> str:
    """Return the texts of the items behind the model's last one."""
    last = max((at for at, item in enumerate(items) if is_model(item)), default=-1)
    return "\n".join(texts_of(items[last + 1 :]))


# Anthropic Messages


def _said_anthropic(body: Json) -> str:
    return said_after(body.get("messages", []), lambda m: m.get("role") == "assistant")


def _write_anthropic(reply: Reply, unique: str, model: str) -> Iterator[bytes]:
    usage = {"input_tokens": reply.tokens, "output_tokens": 1, "cache_read_input_tokens": 0}
    message = {"id": f"msg_{unique}", "type": "message", "role": "assistant", "model": model}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield sse("message_start", {"type": "message_start", "message": message})
    blocks: list[tuple[Json, Json]] = []
    if reply.text:
        blocks.append(
            ({"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text}),
        )
    for at, call in enumerate(reply.calls):
        block = {"type": "tool_use", "id": f"toolu_{unique}{at}", "name": call.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        blocks.append((block, delta))
    for at, (block, delta) in enumerate(blocks):
        start = {"type": "content_block_start", "index": at, "content_block": block}
        yield sse("content_block_start", start)
        yield sse(
            "content_block_delta", {"type": "content_block_delta", "index": at, "delta": delta}
        )
        yield sse("content_block_stop", {"type": "content_block_stop", "index": at})
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    yield sse(
        "message_delta",
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20}},
    )
    yield sse("message_stop", {"type": "message_stop"})


# OpenAI Responses


def _said_responses(body: Json) -> str:
    given = body.get("input", [])
    if isinstance(given, str):
        return given
    ours = ("function_call", "custom_tool_call", "local_shell_call", "reasoning")
    return said_after(given, lambda m: m.get("role") == "assistant" or m.get("type") in ours)


def _write_responses(reply: Reply, unique: str, model: str) -> Iterator[bytes]:
    response: Json = {"id": f"resp_{unique}", "object": "response", "model": model}
    started = {"type": "response.created", "response": {**response, "status": "in_progress"}}
    yield sse("response.created", started)
    items: list[Json] = []
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        item = {"type": "message", "role": "assistant", "id": f"msg_{unique}", "content": content}
        items.append({**item, "status": "completed"})
    for at, call in enumerate(reply.calls):
        item = {"type": "function_call", "id": f"fc_{unique}{at}", "call_id": f"call_{unique}{at}"}
        item |= {"name": call.name, "arguments": json.dumps(call.arguments)}
        items.append({**item, **({"namespace": call.namespace} if call.namespace else {})})
    for at, item in enumerate(items):
        for state in ("added", "done"):
            kind = f"response.output_item.{state}"
            yield sse(kind, {"type": kind, "output_index": at, "item": item})
    usage = {"input_tokens": reply.tokens, "output_tokens": 20, "total_tokens": reply.tokens + 20}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    done = {**response, "status": "completed", "output": items, "usage": usage}
    yield sse("response.completed", {"type": "response.completed", "response": done})


DIALECTS: dict[str, Dialect] = {
    "/v1/messages": Dialect(_said_anthropic, _write_anthropic),
    "/v1/responses": Dialect(_said_responses, _write_responses),
}
"""By the path of a request, without its query."""


@dataclass
class ScriptedServer:
    """Serves in a thread until the `with` block ends.

    Attributes:
        rules: Looked through in order; the first whose text was said, and that is not used up.
        otherwise: The answer where no rule fits: titles, summaries, warm-ups.
        asked: Every request of a known path, in order.
        strays: Paths that were asked for and have no dialect.
    """

    rules: list[Rule] = field(default_factory=list[Rule])
    otherwise: Reply = field(default_factory=lambda: Reply("Understood."))
    asked: list[Asked] = field(default_factory=list[Asked])
    strays: list[str] = field(default_factory=list[str])

    def __enter__(self) -> Self:
        self._salt = uuid.uuid4().hex[:16]  # No two runs share an id
        self._used: dict[int, int] = {}
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            scripted = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for rule in self.rules:
            if isinstance(rule.reply, Reply) and rule.reply.hold is not None:
                rule.reply.hold.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def url(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def wait_for(self, said: str) -> None:
        """Wait until a request says something."""
        end = time.monotonic() + HOLD_S
        while not any(said in asked.said for asked in list(self.asked)):
            assert time.monotonic() < end, f"nobody said {said!r}"
            time.sleep(0.05)

    def answer(self, asked: Asked) -> tuple[Reply, str]:
        """Keep a request and return what is said to it, with an id of its own."""
        with self._lock:
            self.asked.append(asked)
            unique = f"{self._salt}{len(self.asked):04d}"
            for at, rule in enumerate(self.rules):
                if not asked.body.get("tools"):
                    continue  # A title or a summary: the script is about the conversation
                if rule.when in asked.said and self._used.get(at, 0) < rule.times:
                    self._used[at] = self._used.get(at, 0) + 1
                    found = rule.reply
                    break
            else:
                found = self.otherwise
        return (found if isinstance(found, Reply) else found(asked)), unique


class _Handler(BaseHTTPRequestHandler):
    scripted: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._refuse()

    def do_HEAD(self) -> None:
        self._refuse()

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        dialect = DIALECTS.get(path)
        if dialect is None:
            self._refuse()
            return
        body: Json = json.loads(data)
        asked = Asked(self.path, dict(self.headers), body, dialect.said(body))
        reply, unique = self.scripted.answer(asked)
        if reply.status != 200:
            self._refuse(reply.status)
            return
        self.send_response(200)
        self.send_header("Content-Type", dialect.media_type)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for at, piece in enumerate(dialect.write(reply, unique, body.get("model", "scripted"))):
                if at == 1 and reply.hold is not None:
                    reply.hold.wait(HOLD_S)
                self.wfile.write(piece)
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            # The agent was interrupted.
            return

    def _refuse(self, status: int = 404) -> None:
        self.scripted.strays.append(f"{self.command} {self.path}")
        data = b'{"type":"error","error":{"type":"not_found_error","message":"no such path"}}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
