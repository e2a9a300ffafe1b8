from __future__ import annotations

import json
import math
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from noctuary.work.http import (
    MAX_ANSWER_BYTES,
    AnswerFault,
    BadAnswerError,
    Endpoint,
    EndpointDownError,
    complete,
)
from noctuary.work.http import ask as ask_model
from tests.support.model_server import Fault, ModelServer, envelope

KEY = "sk-very-secret-0123"
HELLO = Fault(body=envelope("hello"))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def ask(server: ModelServer, waits: list[float] | None = None, timeout_s: float = 5.0) -> str:
    endpoint = Endpoint(server.url, "writer", KEY, timeout_s=timeout_s)
    return complete(endpoint, "be brief", "say hello", [].append if waits is None else waits.append)


def test_the_request_is_what_the_api_asks_for(server: ModelServer) -> None:
    server.faults = [HELLO]
    assert ask(server) == "hello"
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.body == {
        "model": "writer",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "say hello"},
        ],
        "stream": False,
        "temperature": 0.0,
    }


def test_without_a_key_no_authorization_is_sent(server: ModelServer) -> None:
    server.faults = [HELLO]
    complete(Endpoint(server.url, "m"), "s", "u", lambda _: None)
    assert "Authorization" not in server.asked[0].headers


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_overload_and_server_errors_are_tried_again_with_growing_waits(
    server: ModelServer, status: int
) -> None:
    server.faults = [Fault(status), Fault(status), Fault(status), HELLO]
    waits: list[float] = []
    assert ask(server, waits) == "hello"
    assert waits == [1.0, 2.0, 4.0]


def test_after_three_retries_the_endpoint_is_down(server: ModelServer) -> None:
    server.faults = [Fault(503)] * 9
    with pytest.raises(EndpointDownError, match=r"it answered HTTP 503, 4 times in a row"):
        ask(server)
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("asked", "waited"),
    [("7", 7.0), ("0", 0.0), ("99999", 30.0), ("Wed, 21 Oct", 1.0), ("-1", 1.0)],
)
def test_the_endpoint_names_the_wait_within_bounds(
    server: ModelServer, asked: str, waited: float
) -> None:
    server.faults = [Fault(429, headers={"Retry-After": asked}), HELLO]
    waits: list[float] = []
    ask(server, waits)
    assert waits == [waited]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_not_tried_again(server: ModelServer, status: int) -> None:
    server.faults = [Fault(status, body=f"bad key {KEY}".encode())]
    with pytest.raises(EndpointDownError, match=f"HTTP {status}") as caught:
        ask(server)
    assert len(server.asked) == 1
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_batch_is_a_bad_answer(server: ModelServer, status: int) -> None:
    server.faults = [Fault(status)]
    with pytest.raises(BadAnswerError) as caught:
        ask(server)
    assert caught.value.fault is AnswerFault.REFUSED


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_so_the_key_stays_here(server: ModelServer, status: int) -> None:
    with ModelServer() as elsewhere:
        server.faults = [Fault(status, headers={"Location": f"{elsewhere.url}/chat/completions"})]
        with pytest.raises(EndpointDownError, match="redirects are not followed"):
            ask(server)
        assert elsewhere.asked == []


def test_a_hanging_endpoint_is_given_up_after_its_time(server: ModelServer) -> None:
    server.faults = [Fault(hang=True)] * 4
    started = time.monotonic()
    with pytest.raises(EndpointDownError, match=r"did not answer within 0\.1 s, 4 times"):
        ask(server, timeout_s=0.1)
    assert time.monotonic() - started < 3.0


def test_an_answer_that_drips_in_is_given_up_after_its_time(server: ModelServer) -> None:
    # Every byte comes in time; the whole would take half a minute.
    server.faults = [Fault(body=b" " * 1000, drip_s=0.03)] * 4
    with pytest.raises(EndpointDownError, match="did not answer within"):
        ask(server, timeout_s=0.15)


def test_half_an_answer_is_tried_again(server: ModelServer) -> None:
    whole = envelope("hello")
    server.faults = [Fault(body=whole[:20], announced=len(whole)), HELLO]
    assert ask(server) == "hello"
    server.faults = [Fault(body=whole[:20], announced=len(whole))] * 4
    with pytest.raises(EndpointDownError, match="it broke off its answer"):
        ask(server)


def test_nobody_listening_is_an_endpoint_that_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EndpointDownError, match=r"could not be reached \(ConnectionRefusedError\)"):
        complete(Endpoint(f"http://127.0.0.1:{port}", "m", KEY), "s", "u", lambda _: None)


def test_a_host_that_cannot_be_one_is_an_endpoint_that_is_down() -> None:
    with pytest.raises(EndpointDownError, match="could not be reached"):
        complete(Endpoint(f"http://{'a' * 70}.invalid", "m"), "s", "u", lambda _: None)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", AnswerFault.NOT_JSON),
        (b"<html><body>Bad gateway</body></html>", AnswerFault.NOT_JSON),
        (b'data: {"choices": []}\n\ndata: [DONE]\n', AnswerFault.NOT_JSON),
        (b"\xff\xfe\x00", AnswerFault.NOT_JSON),
        (b"[" * 100_000, AnswerFault.NOT_JSON),
        (b"[]", AnswerFault.NO_CONTENT),
        (b"7", AnswerFault.NO_CONTENT),
        (b'{"choices": []}', AnswerFault.NO_CONTENT),
        (b'{"choices": {"0": 1}}', AnswerFault.NO_CONTENT),
        (b'{"error": {"message": "no"}}', AnswerFault.NO_CONTENT),
        (envelope(None), AnswerFault.NO_CONTENT),
        (envelope([{"type": "text"}]), AnswerFault.NO_CONTENT),
        (b" " * (MAX_ANSWER_BYTES + 1), AnswerFault.TOO_LARGE),
    ],
)
def test_an_answer_without_text_is_named(
    server: ModelServer, body: bytes, fault: AnswerFault
) -> None:
    server.faults = [Fault(body=body)]
    with pytest.raises(BadAnswerError) as caught:
        ask(server)
    assert caught.value.fault is fault
    assert len(server.asked) == 1


def test_texts_of_any_script_arrive_as_they_are(server: ModelServer) -> None:
    server.faults = [Fault(body=envelope("да 是"))]
    text = json.dumps({"text": "Žluťoučký 是 \u2028"}, ensure_ascii=False)
    assert complete(Endpoint(server.url, "m"), "s", text, lambda _: None) == "да 是"
    assert server.asked[0].body["messages"][1]["content"] == text


def choice(logprobs: object, finish_reason: str = "stop") -> Fault:
    message = {"role": "assistant", "content": "hello"}
    fields = {"message": message, "logprobs": logprobs, "finish_reason": finish_reason}
    return Fault(body=json.dumps({"choices": [fields]}).encode())


@pytest.mark.parametrize(
    ("logprobs", "confidence"),
    [
        ({"content": [{"logprob": math.log(0.5)}, {"logprob": math.log(0.125)}]}, 0.25),
        ({"content": [{"logprob": 0.0}]}, 1.0),
        ({"content": []}, None),
        ({"content": [{"logprob": 0.5}]}, None),
        ({"content": [{"token": "a"}]}, None),
        ({"content": [{"logprob": "NaN"}]}, None),
        ({"content": 3}, None),
        (None, None),
        ("many", None),
    ],
)
def test_confidence_is_the_mean_probability_where_it_is_told(
    server: ModelServer, logprobs: object, confidence: float | None
) -> None:
    server.faults = [choice(logprobs)]
    answer = ask_model(Endpoint(server.url, "m"), "s", "u", with_logprobs=True)
    assert server.asked[0].body["logprobs"] is True
    assert (answer.content, answer.is_cut_off) == ("hello", False)
    assert answer.confidence == pytest.approx(confidence)


def test_an_answer_that_ends_at_its_length_says_so(server: ModelServer) -> None:
    server.faults = [choice(None, "length")]
    assert ask_model(Endpoint(server.url, "m"), "s", "u").is_cut_off
    assert "logprobs" not in server.asked[0].body


@pytest.mark.parametrize("library", ["httpx", "tenacity"])
def test_without_the_extra_the_endpoint_is_down_and_the_extra_is_named(
    server: ModelServer, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EndpointDownError, match=r"install noctuary\[hosted\]"):
        ask(server)
    assert server.asked == []
