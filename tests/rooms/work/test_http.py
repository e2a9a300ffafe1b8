"""How often, after how long, and when it is enough."""

from __future__ import annotations

import json
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.work.http import (
    FIRST_WAIT_S,
    MAX_ANSWER_BYTES,
    MAX_WAIT_S,
    AnswerFault,
    BadAnswerError,
    Endpoint,
    EndpointDownError,
    GaveUpError,
    PassingFaultError,
    Patience,
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
    server.faults = [HELLO, HELLO]
    assert ask(server) == "hello"
    complete(Endpoint(server.url, "m"), "s", "u", lambda _: None)
    asked, without_a_key = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.headers["Content-Type"] == "application/json"
    assert "Authorization" not in without_a_key.headers
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "say hello"}]
    rest = {"model": "writer", "stream": False, "temperature": 0.0}
    assert asked.body == {"messages": messages, **rest}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_overload_and_server_errors_are_tried_again_with_growing_waits(
    server: ModelServer, status: int
) -> None:
    server.faults = [*[Fault(status)] * 3, HELLO, *[Fault(status)] * 4]
    waits: list[float] = []
    assert ask(server, waits) == "hello"
    assert waits == [1.0, 2.0, 4.0]
    with pytest.raises(EndpointDownError, match=rf"it answered HTTP {status}, 4 times in a row"):
        ask(server)
    assert len(server.asked) == 8


@pytest.mark.parametrize(
    ("asked", "waited"),
    [("7", 7.0), ("0", 0.0), ("99999", 30.0), ("Wed, 21 Oct", 1.0), ("-1", 1.0)],
)
def test_the_endpoint_names_the_wait(server: ModelServer, asked: str, waited: float) -> None:
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


@pytest.mark.parametrize("fault", [Fault(hang=True), Fault(body=b" " * 1000, drip_s=0.03)])
def test_an_endpoint_that_hangs_or_drips_is_given_up_after_its_time(
    server: ModelServer, fault: Fault
) -> None:
    """Every byte of the one that drips comes in time; the whole would take half a minute."""
    server.faults = [fault] * 4
    started = time.monotonic()
    with pytest.raises(EndpointDownError, match=r"did not answer within 0\.15 s, 4 times"):
        ask(server, timeout_s=0.15)
    assert time.monotonic() - started < 3.0


def test_half_an_answer_is_tried_again(server: ModelServer) -> None:
    whole = envelope("hello")
    server.faults = [Fault(body=whole[:20], announced=len(whole)), HELLO]
    assert ask(server) == "hello"
    server.faults = [Fault(body=whole[:20], announced=len(whole))] * 4
    with pytest.raises(EndpointDownError, match="it broke off its answer"):
        ask(server)


def test_an_endpoint_that_cannot_be_reached_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nobody, no_host = f"127.0.0.1:{port}", f"{'a' * 70}.invalid"
    for host, why in ((nobody, r"\(ConnectionRefusedError\)"), (no_host, "")):
        with pytest.raises(EndpointDownError, match=f"could not be reached {why}"):
            complete(Endpoint(f"http://{host}", "m", KEY), "s", "u", lambda _: None)


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
def test_an_answer_without_text_is_bad(
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
    server.faults = [choice(logprobs), choice(None, "length")]
    answer = ask_model(Endpoint(server.url, "m"), "s", "u", with_logprobs=True)
    assert (answer.content, answer.is_cut_off) == ("hello", False)
    assert answer.confidence == pytest.approx(confidence)
    assert ask_model(Endpoint(server.url, "m"), "s", "u").is_cut_off, "it ended at its length"
    asked, plainly = server.asked
    assert asked.body["logprobs"] is True
    assert "logprobs" not in plainly.body


@pytest.mark.parametrize("library", ["httpx", "tenacity"])
def test_without_the_extra_the_endpoint_is_down_and_the_extra_is_named(
    server: ModelServer, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EndpointDownError, match=r"install noctuary\[hosted\]"):
        ask(server)
    assert server.asked == []


def test_a_key_is_stripped_of_its_line_end_none_where_blank_and_in_no_repr() -> None:
    endpoint = Endpoint("http://127.0.0.1:1/v1", "m", f" {KEY}\n")
    assert endpoint.api_key == KEY
    assert KEY not in f"{endpoint!r} {endpoint}"
    assert Endpoint("http://h/v1", "m", " \n").api_key is None


@pytest.mark.parametrize("key", [f"{KEY}\nX-Evil: 1", f"{KEY}é", f"{KEY}\x00"])
def test_a_key_that_is_no_header_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ValueError, match="cannot stand in an HTTP header") as caught:
        Endpoint("http://h/v1", "m", key)
    assert KEY not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        *("", "h/v1", "file:///etc/passwd", "ftp://h", "http://", "http://h:99999/v1"),
        *("http://h:x/v1", "http://us:pw-secret@h/v1", "http://h/a b", "http://h/ü", "http://h/\n"),
    ],
)
def test_what_is_no_address_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="endpoint's URL") as caught:
        Endpoint(url, "m")
    assert "pw-secret" not in repr(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h", "https://h/chat/completions"),
        ("https://h/v1?api-version=2", "https://h/v1/chat/completions?api-version=2"),
    ],
)
def test_prompts_go_to_chat_completions_below_the_base(url: str, expected: str) -> None:
    assert Endpoint(url, "m").completions_url() == expected


def test_a_model_needs_a_name_and_an_answer_some_time() -> None:
    with pytest.raises(ValueError, match="name of a model"):
        Endpoint("http://h", " ")
    with pytest.raises(ValueError, match="timeout_s must be above 0, got 0"):
        Endpoint("http://h", "m", timeout_s=0.0)


RETRIES, LONGEST_S = 6, 120.0


def failing(times: int, wait_s: float | None = None) -> Callable[[], str]:
    tries = iter(range(times))

    def ask() -> str:
        if next(tries, None) is not None:
            raise PassingFaultError("it answered HTTP 503", wait_s)
        return "vectors"

    return ask


def patience(waits: list[float], left_s: float = 1e6, spread: float = 0.0) -> Patience:
    return Patience(RETRIES, LONGEST_S, spread, left_s, waits.append)


def test_a_passing_fault_is_tried_again_after_doubling_waits_until_it_is_enough() -> None:
    waits: list[float] = []
    assert patience(waits).ask(failing(RETRIES)) == "vectors"
    assert waits == [1, 2, 4, 8, 16, 32]
    with pytest.raises(GaveUpError, match=r"HTTP 503, 7 times in a row"):
        patience(waits).ask(failing(RETRIES + 1))
    assert len(waits) == 2 * RETRIES


def test_patience_is_one_for_all_requests() -> None:
    waits: list[float] = []
    shared = patience(waits, left_s=50.0)
    shared.ask(failing(2, wait_s=20.0))
    assert shared.left_s == pytest.approx(10.0)
    with pytest.raises(GaveUpError, match="waiting another 20 s is more than is left"):
        shared.ask(failing(1, wait_s=20.0))
    assert waits == [20.0, 20.0]
    assert shared.ask(failing(1)) == "vectors", "a short wait is still left"


def test_other_errors_are_not_tried_again() -> None:
    def ask() -> str:
        raise KeyError("once")

    waits: list[float] = []
    with pytest.raises(KeyError):
        patience(waits).ask(ask)
    assert waits == []


@given(st.none() | st.floats(0, 1e9), st.floats(0, 1))
def test_every_wait_lies_within_its_bounds(asked_s: float | None, spread: float) -> None:
    waits: list[float] = []
    patience(waits, spread=spread).ask(failing(RETRIES, asked_s))
    for number, found in enumerate(waits):
        if asked_s is None:
            step = min(FIRST_WAIT_S * 2**number, MAX_WAIT_S)
            assert step * (1 - spread) <= found <= step
        else:
            assert min(asked_s, LONGEST_S) <= found <= min(asked_s, LONGEST_S) + FIRST_WAIT_S
