"""One real HTTP server on loopback for every service that noctuary asks; rules instead of models.

Routes: `/v1/chat/completions` (a prompt of memories gets names and triples, a prompt of turns gets
a summary), `/v1/embeddings` (Voyage, OpenAI) and `/v2/embed` (Cohere). A text's vector is made of
its words, so texts that share words are near each other, and a query's is not quite a document's.
"""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.recall.inputs import forget_queries
from noctuary.work.http import ITEMS_MARK

VARIABLE = "TEST_EMBEDDING_KEY"
KEY = "sk-a-key-for-tests-only-7f3a"

LENGTHS = {
    "voyage-4": 1024,
    "voyage-4-lite": 1024,
    "text-embedding-3-small": 1536,
    "embed-v4.0": 1536,
    "embed-english-v3.0": 1024,
    "house-model": 48,
}
CHAT, COHERE = "/v1/chat/completions", "/v2/embed"
_MOST_TEXTS = {"voyage": 1_000, "openai": 2_048, "cohere": 96}
_FIELDS = {
    "voyage": {
        "model", "input", "input_type", "truncation", "output_dimension", "encoding_format",
    },
    "openai": {"model", "input", "encoding_format", "dimensions", "user"},
    "cohere": {
        "model", "texts", "input_type", "embedding_types", "truncate", "output_dimension",
    },
}  # fmt: skip
_PURPOSES = {
    "voyage": {"document", "query"},
    "openai": {None},
    "cohere": {"search_document", "search_query"},
}
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\b[A-Z]\w+")
_STATEMENT = re.compile(r"(\b[A-Z]\w+) (works at|lives in|was replaced by|admires) ([A-Z]\w+)")

Row = dict[str, Any]
Twist = Callable[[list[Row]], object]
"""Makes the model's document of a batch's proper rows of triples."""


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def items(self) -> list[dict[str, str]]:
        """The batch in a prompt."""
        user: str = self.body["messages"][1]["content"]
        return json.loads(user.removeprefix(ITEMS_MARK))

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        return self.body["texts"] if "texts" in self.body else self.body["input"]


@dataclass(frozen=True)
class Fault:
    """How one request is answered instead of properly."""

    status: int = 200
    body: bytes | None = None  # None sends the proper answer of a status 200, changed by `spoil`
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    announced: int | None = None  # Content-Length to claim; None tells the truth
    hang: bool = False  # answer nothing until the server closes
    drip_s: float = 0.0  # seconds between single bytes of the body
    spoil: Callable[[dict[str, Any]], object] | None = None


def envelope(content: object) -> bytes:
    """Return the body around a chat model's text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}}
    return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


def vector_of(text: str, dimension: int, purpose: str = "document") -> NDArray[np.float32]:
    """Return the rule's vector, not of length 1: one axis per word, and a faint one for a query."""
    vector = np.zeros(dimension, dtype=np.float32)
    for word in _WORD.findall(text.casefold()):
        vector[zlib.crc32(word.encode()) % (dimension - 1)] += 2.0
    vector[dimension - 1] = 0.25 if purpose == "query" else 0.125
    return vector


def first_turn(item: dict[str, str]) -> str:
    """Repeat the first turn, which is always faithful."""
    return item["turns"].split("\n")[0]


@dataclass
class FakeServer:
    """Serves in a thread until the `with` block ends."""

    provider: str = "voyage"  # whose embedding interface is spoken
    faults: list[Fault] = field(default_factory=list[Fault])  # one per request, oldest first
    spares_single_items: bool = False  # faults are for prompts of several items only
    die_after: int | None = None  # requests that are answered; every later one is 503
    hang_after: int | None = None  # requests that are answered; every later one hangs
    max_text_bytes: int | None = None  # a longer text to embed is refused, as OpenAI does
    twists: list[Twist | None] = field(default_factory=list[Twist | None])  # one per prompt
    poisoned: str = "\0"  # memories that hold this word get no answer in any batch
    summarize: Callable[[dict[str, str]], object] = first_turn
    probability: float | None = None  # of each of two tokens, if log probabilities are asked for
    finish_reason: str = "stop"
    asked: list[Asked] = field(default_factory=list[Asked])

    def __enter__(self) -> Self:
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Base URL, as the settings take it."""
        base = f"http://127.0.0.1:{self._server.server_address[1]}"
        return base if self.provider == "cohere" else f"{base}/v1"

    @property
    def texts(self) -> list[str]:
        """Every text to embed, in order."""
        return [text for asked in list(self.asked) for text in asked.texts]

    @property
    def memories(self) -> list[list[str]]:
        """The memories of every prompt, in order."""
        return [[item["memory"] for item in asked.items] for asked in list(self.asked)]

    @property
    def everything(self) -> str:
        """All that was received."""
        return "\n".join(
            f"{a.path} {a.headers} {json.dumps(a.body, ensure_ascii=False)}"
            for a in list(self.asked)
        )

    def choose(self, asked: Asked) -> Fault:
        """Note a request, and return how it is answered."""
        with self.lock:
            number = len(self.asked)
            self.asked.append(asked)
            spared = self.spares_single_items and len(asked.items) == 1
            if self.faults and not spared:
                return self.faults.pop(0)
        if self.hang_after is not None and number >= self.hang_after:
            return Fault(hang=True)
        if self.die_after is not None and number >= self.die_after:
            return Fault(503)
        return Fault(200 if asked.path == CHAT else self.judge(asked))

    def answer(self, asked: Asked) -> dict[str, Any]:
        """Return the proper answer of a route."""
        if asked.path != CHAT:
            return self.embed(asked)
        if asked.items and "memory" in asked.items[0]:
            return json.loads(envelope(self.extract(asked)))
        items = [{"id": i["id"], "summary": self.summarize(i)} for i in asked.items]
        answer = json.loads(envelope(json.dumps({"items": items})))
        answer["choices"][0]["finish_reason"] = self.finish_reason
        if self.probability is not None and asked.body.get("logprobs"):
            tokens = [{"token": "x", "logprob": math.log(self.probability)}] * 2
            answer["choices"][0]["logprobs"] = {"content": tokens}
        return answer

    def extract(self, asked: Asked) -> str:
        """Return what a good model would say about memories, twisted if that is wanted."""
        with self.lock:
            twist = self.twists.pop(0) if self.twists else None
        rows = [
            {
                "id": item["id"],
                "names": _NAME.findall(item["memory"]),
                "triples": [list(m.groups()) for m in _STATEMENT.finditer(item["memory"])],
            }
            for item in asked.items
            if self.poisoned not in item["memory"]
        ]
        document = {"items": rows} if twist is None else twist(rows)
        return document if isinstance(document, str) else json.dumps(document)

    def judge(self, asked: Asked) -> int:
        """Return the status that the provider gives to a request for vectors."""
        if asked.headers.get("Authorization") != f"Bearer {KEY}":
            return 401
        is_there = (asked.path == COHERE) == (self.provider == "cohere")
        if not is_there or asked.body["model"] not in LENGTHS:
            return 404
        texts, body = asked.texts, asked.body
        is_known = (
            set(body) <= _FIELDS[self.provider]
            and body.get("input_type") in _PURPOSES[self.provider]
        )
        if not is_known or not texts or len(texts) > _MOST_TEXTS[self.provider] or not all(texts):
            return 400
        longest = max(len(text.encode()) for text in texts)
        return 400 if self.max_text_bytes is not None and longest > self.max_text_bytes else 200

    def embed(self, asked: Asked) -> dict[str, Any]:
        """Return the provider's vectors."""
        body, texts = asked.body, asked.texts
        length = body.get("output_dimension", body.get("dimensions", LENGTHS[body["model"]]))
        purpose = str(body.get("input_type", "document")).removeprefix("search_")
        vectors = [vector_of(text, length, purpose) for text in texts]
        tokens = sum(len(text.split()) + 2 for text in texts)
        if self.provider == "cohere":
            return {
                "embeddings": {"float": [v.tolist() for v in vectors]},
                "texts": texts,
                "meta": {"billed_units": {"input_tokens": tokens}},
            }
        packed = body.get("encoding_format") == "base64"
        coded = [base64.b64encode(v.tobytes()).decode() if packed else v.tolist() for v in vectors]
        rows = [{"embedding": each, "index": index} for index, each in enumerate(coded)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": rows, "model": body["model"], "usage": usage}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, rules: FakeServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rules = rules


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in two packets wait for each other's acknowledgement, 40 ms.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        assert isinstance(self.server, _Server)
        rules = self.server.rules
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = Asked(self.path, dict(self.headers.items()), json.loads(body))
        fault = rules.choose(asked)
        if fault.hang:
            rules.closing.wait()
            self.close_connection = True
            return
        content = fault.body
        if content is None and fault.status == 200:
            answer = rules.answer(asked)
            if fault.spoil is not None:
                fault.spoil(answer)
            content = json.dumps(answer).encode()
        self._send(fault, content or b"")

    def _send(self, fault: Fault, content: bytes) -> None:
        assert isinstance(self.server, _Server)
        self.send_response(fault.status)
        length = len(content) if fault.announced is None else fault.announced
        for name, value in {"Content-Length": str(length), **fault.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = length != len(content) or self.close_connection
        if not fault.drip_s:
            self.wfile.write(content)
            return
        for byte in content:
            if self.server.rules.closing.wait(fault.drip_s):
                return
            self.wfile.write(bytes([byte]))

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client gave up first
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve_voyage(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeServer]:
    """Serve as Voyage to who has the key in VARIABLE; no proxy, and no query is known after."""
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, KEY)
    with FakeServer("voyage") as server:
        yield server
    forget_queries()
