"""A real HTTP server with the embedding interface of each provider and a rule instead of a model.

A text's vector is made of its words, so texts that share words are near each other, and a
query's is not quite a document's.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.recall.inputs import forget_queries

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
_PATHS = {"/v1/embeddings": ("voyage", "openai"), "/v2/embed": ("cohere",)}
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        return self.body["texts"] if "texts" in self.body else self.body["input"]


@dataclass(frozen=True)
class Fault:
    """How one request is answered instead of properly.

    Attributes:
        status: HTTP status.
        body: Sent as it is; None sends the proper answer, changed by `spoil`.
        headers: Sent besides Content-Length.
        announced: Content-Length to claim; None tells the truth.
        hang: Answer nothing until the server closes.
        spoil: Changes the proper answer.
    """

    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    announced: int | None = None
    hang: bool = False
    spoil: Callable[[dict[str, Any]], object] | None = None


def vector_of(text: str, dimension: int, purpose: str = "document") -> NDArray[np.float32]:
    """Return the rule's vector, not of length 1: one axis per word, and a faint one for a query."""
    vector = np.zeros(dimension, dtype=np.float32)
    for word in _WORD.findall(text.casefold()):
        vector[zlib.crc32(word.encode()) % (dimension - 1)] += 2.0
    vector[dimension - 1] = 0.25 if purpose == "query" else 0.125
    return vector


@dataclass
class EmbeddingServer:
    """Serves in a thread until the `with` block ends.

    Attributes:
        provider: Whose form is spoken: "voyage", "openai" or "cohere".
        max_text_bytes: A longer text is refused with HTTP 400, as OpenAI does; None takes all.
        die_after: Requests that are answered; every later one is 503.
        faults: Taken one per request, oldest first.
        asked: Every request, in order.
    """

    provider: str = "voyage"
    max_text_bytes: int | None = None
    die_after: int | None = None
    faults: list[Fault] = field(default_factory=list[Fault])
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
        """Base URL, as `encoder.url` takes it."""
        base = f"http://127.0.0.1:{self._server.server_address[1]}"
        return base if self.provider == "cohere" else f"{base}/v1"

    @property
    def texts(self) -> list[str]:
        """Every text that was asked about, in order."""
        return [text for asked in list(self.asked) for text in asked.texts]

    @property
    def everything(self) -> str:
        """All that was received."""
        return "\n".join(json.dumps(a.body, ensure_ascii=False) for a in list(self.asked))

    def refusal(self, asked: Asked) -> int | None:
        """Return the status by which the provider refuses a request; None where it would not."""
        if asked.headers.get("Authorization") != f"Bearer {KEY}":
            return 401
        if self.provider not in _PATHS.get(asked.path, ()) or asked.body["model"] not in LENGTHS:
            return 404
        texts, most = asked.texts, {"voyage": 1_000, "openai": 2_048, "cohere": 96}
        if not texts or len(texts) > most[self.provider] or not all(texts):
            return 400
        if self._misnamed(asked.body):
            return 400
        longest = max(len(text.encode()) for text in texts)
        too_long = self.max_text_bytes is not None and longest > self.max_text_bytes
        return 400 if too_long else None

    def answer(self, asked: Asked) -> dict[str, Any]:
        """Return the provider's answer."""
        body, texts = asked.body, asked.texts
        length = body.get("output_dimension", body.get("dimensions", LENGTHS[body["model"]]))
        purpose = str(body.get("input_type", "document")).removeprefix("search_")
        vectors = [vector_of(text, length, purpose) for text in texts]
        tokens = sum(len(text.split()) + 2 for text in texts)
        if self.provider == "cohere":
            return {
                "id": "1",
                "embeddings": {"float": [v.tolist() for v in vectors]},
                "texts": texts,
                "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
                "response_type": "embeddings_by_type",
            }
        packed = body.get("encoding_format") == "base64"
        return {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "embedding": base64.b64encode(v.tobytes()).decode() if packed else v.tolist(),
                    "index": index,
                }
                for index, v in enumerate(vectors)
            ],
            "model": body["model"],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    def _misnamed(self, body: Mapping[str, Any]) -> bool:
        """Say whether a request has a field that the provider does not know or lacks one."""
        known: dict[str, set[str]] = {
            "voyage": {
                "model", "input", "input_type", "truncation", "output_dimension",
                "encoding_format",
            },
            "openai": {"model", "input", "encoding_format", "dimensions", "user"},
            "cohere": {
                "model", "texts", "input_type", "embedding_types", "truncate",
                "output_dimension",
            },
        }  # fmt: skip
        purposes = {"voyage": {"document", "query"}, "cohere": {"search_document", "search_query"}}
        wanted = purposes.get(self.provider)
        return not set(body) <= known[self.provider] or (
            wanted is not None and body.get("input_type") not in wanted
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, rules: EmbeddingServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.rules = rules


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in two packets wait for each other's acknowledgement, 40 ms.
    disable_nagle_algorithm = True

    @property
    def rules(self) -> EmbeddingServer:
        assert isinstance(self.server, _Server)
        return self.server.rules

    def do_POST(self) -> None:
        rules = self.rules
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = Asked(self.path, dict(self.headers.items()), json.loads(body))
        number = len(rules.asked)
        rules.asked.append(asked)
        if rules.faults:
            self._send(asked, rules.faults.pop(0))
        elif rules.die_after is not None and number >= rules.die_after:
            self._send(asked, Fault(503, b"{}"))
        else:
            status = rules.refusal(asked)
            self._send(asked, Fault() if status is None else Fault(status, b'{"detail":"no"}'))

    def _send(self, asked: Asked, fault: Fault) -> None:
        if fault.hang:
            self.rules.closing.wait()
            self.close_connection = True
            return
        body = fault.body
        if body is None:
            answer = self.rules.answer(asked)
            if fault.spoil is not None:
                fault.spoil(answer)
            body = json.dumps(answer).encode()
        self.send_response(fault.status)
        length = len(body) if fault.announced is None else fault.announced
        for name, value in {"Content-Length": str(length), **fault.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if length != len(body):
            self.close_connection = True

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client gave up first
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve_voyage(monkeypatch: pytest.MonkeyPatch) -> Generator[EmbeddingServer]:
    """Serve as Voyage to who has the key in VARIABLE; no proxy, and no query is known after."""
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, KEY)
    with EmbeddingServer("voyage") as server:
        yield server
    forget_queries()
