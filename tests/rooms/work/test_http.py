"""The HTTP client and the chat interface against a real server that misbehaves on request."""

from __future__ import annotations

import json
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from noctuary.core.errors import ConfigError
from noctuary.core.settings import GraphSettings
from noctuary.work.http import (
    MAX_ANSWER_BYTES,
    BadAnswerError,
    Endpoint,
    JsonClient,
    RequestError,
    ask,
    open_endpoint,
    parse_batch,
    read_api_key,
)
from tests.support.fake_server import FakeServer, Fault, envelope

KEY = "sk-very-secret-0123"
HELLO = Fault(body=envelope("hello"))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def say(server: FakeServer, waits: list[float] | None = None, timeout_s: float = 5.0) -> str:
    endpoint = Endpoint(server.url, "writer", KEY, timeout_s=timeout_s)
    sleep = [].append if waits is None else waits.append
    return ask(endpoint, "be brief", "say hello", sleep).content


def test_the_request_is_what_the_api_asks_for(server: FakeServer) -> None:
    server.faults = [HELLO, Fault(body=envelope("да 是"))]
    assert say(server) == "hello"
    text = "Žluťoučký 是 \u2028"
    assert ask(Endpoint(f"{server.url}/?v=2", "m"), "s", text).content == "да 是"
    asked, without_a_key = server.asked
    assert asked.path == "/v1/chat/completions"
    assert without_a_key.path == "/v1/chat/completions?v=2"
    assert without_a_key.body["messages"][1]["content"] == text
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.headers["Content-Type"] == "application/json"
    assert "Authorization" not in without_a_key.headers
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "say hello"}]
    rest = {"model": "writer", "stream": False, "temperature": 0.0}
    assert asked.body == {"messages": messages, **rest}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_overload_and_server_errors_are_tried_again_with_growing_waits(
    server: FakeServer, status: int
) -> None:
    server.faults = [*[Fault(status)] * 3, HELLO, *[Fault(status)] * 4]
    waits: list[float] = []
    assert say(server, waits) == "hello"
    assert waits == [1.0, 2.0, 4.0]
    with pytest.raises(RequestError, match=rf"it answered HTTP {status}"):
        say(server)
    assert len(server.asked) == 8


def in_a_minute() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=20))


@pytest.mark.parametrize(
    ("asked", "low", "high"),
    [
        *(("7", 7, 7), ("0", 0, 0), ("0.5", 0.5, 0.5), ("99999", 30, 30), (in_a_minute, 15, 20)),
        *((text, 1, 1) for text in ("Wed, 21 Oct", "-1", "nan", "inf", "", "soon")),
    ],
)
def test_the_endpoint_names_the_wait(
    server: FakeServer, asked: str | Callable[[], str], low: float, high: float
) -> None:
    value = asked if isinstance(asked, str) else asked()
    server.faults = [Fault(429, headers={"Retry-After": value}), HELLO]
    waits: list[float] = []
    say(server, waits)
    assert low <= waits[0] <= high


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        *((401, "API key"), (403, "rights"), (404, "URL"), (410, "")),
        *((status, "redirects are not followed") for status in (301, 302, 303, 307, 308)),
    ],
)
def test_a_refusal_is_not_tried_again_and_no_redirect_is_followed(
    server: FakeServer, status: int, hint: str
) -> None:
    elsewhere = {"Location": f"{server.url}/elsewhere"} if status < 400 else {}
    server.faults = [Fault(status, f"bad key {KEY}".encode(), elsewhere)]
    with pytest.raises(RequestError, match=f"HTTP {status}.*{hint}") as caught:
        say(server)
    assert len(server.asked) == 1
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(hang=True), r"did not answer within 0\.15 s"),
        # Every byte comes in time; the whole would take half a minute.
        (Fault(body=b" " * 1000, drip_s=0.03), r"did not answer within 0\.15 s"),
        (Fault(body=envelope("hello")[:20], announced=500), "it broke off its answer"),
        *(
            (Fault(body=body), "was not JSON")
            for body in (b"", b"<html>busy</html>", b"data: {}\n\ndata: [DONE]", b"\xff\xfe")
        ),
        (Fault(body=b"[" * 100_000), "was not JSON"),
    ],
)
def test_what_may_pass_is_tried_again_and_given_up_in_time(
    server: FakeServer, fault: Fault, reason: str
) -> None:
    server.faults = [fault, HELLO, *[fault] * 4]
    assert say(server, timeout_s=0.15) == "hello"
    started = time.monotonic()
    with pytest.raises(RequestError, match=reason):
        say(server, timeout_s=0.15)
    assert time.monotonic() - started < 3.0
    assert len(server.asked) == 6


def test_an_endpoint_that_cannot_be_reached_is_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nobody, no_host = f"127.0.0.1:{port}", f"{'a' * 70}.invalid"
    for host, why in ((nobody, r"\(ConnectionRefusedError\)"), (no_host, "")):
        with pytest.raises(RequestError, match=f"could not be reached {why}"):
            ask(Endpoint(f"http://{host}", "m", KEY), "s", "u", lambda _: None)


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault(status) for status in (400, 413, 422)),
        *(Fault(body=body) for body in (b"[]", b"7", b'{"choices": []}', b'{"error": {}}')),
        Fault(body=b'{"choices": {"0": 1}}'),
        Fault(body=envelope(None)),
        Fault(body=envelope([{"type": "text"}])),
    ],
)
def test_a_refused_prompt_and_an_answer_without_text_are_bad_answers(
    server: FakeServer, fault: Fault
) -> None:
    server.faults = [fault]
    with pytest.raises(BadAnswerError):
        say(server)
    assert len(server.asked) == 1


def test_an_answer_without_end_is_given_up(server: FakeServer) -> None:
    server.faults = [Fault(body=b" " * (MAX_ANSWER_BYTES + 1))]
    with pytest.raises(RequestError, match="larger than"):
        say(server)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("logprobs", "confidence"),
    [
        ({"content": [{"logprob": math.log(0.5)}, {"logprob": math.log(0.125)}]}, 0.25),
        ({"content": [{"logprob": 0.0}]}, 1.0),
        *(({"content": told}, None) for told in ([], [{"logprob": 0.5}], [{"token": "a"}], 3)),
        ({"content": [{"logprob": "NaN"}]}, None),
        *((told, None) for told in (None, "many")),
    ],
)
def test_confidence_is_the_mean_probability_if_it_is_reported(
    server: FakeServer, logprobs: object, confidence: float | None
) -> None:
    def choice(logprobs: object, finish_reason: str = "stop") -> Fault:
        message = {"role": "assistant", "content": "hello"}
        fields = {"message": message, "logprobs": logprobs, "finish_reason": finish_reason}
        return Fault(body=json.dumps({"choices": [fields]}).encode())

    server.faults = [choice(logprobs), choice(None, "length")]
    answer = ask(Endpoint(server.url, "m"), "s", "u", with_logprobs=True)
    assert (answer.content, answer.is_cut_off) == ("hello", False)
    assert answer.confidence == pytest.approx(confidence)
    assert ask(Endpoint(server.url, "m"), "s", "u").is_cut_off, "it ended at its length"
    assert ["logprobs" in asked.body for asked in server.asked] == [True, False]


@pytest.mark.parametrize("library", ["httpx", "tenacity"])
def test_without_the_extra_the_extra_is_named(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(RequestError, match=r"install noctuary\[hosted\]"):
        JsonClient("http://127.0.0.1:9", None, 100)


def test_a_key_is_stripped_and_one_that_is_no_header_is_refused_unquoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert read_api_key("", "x.api_key_variable") is None
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    assert read_api_key("A_KEY", "x.api_key_variable") == KEY
    assert KEY not in repr(Endpoint("http://h/v1", "m", KEY))
    for wrong in (f"{KEY}\nX-Evil: 1", f"{KEY}é", " \n"):
        monkeypatch.setenv("A_KEY", wrong)
        with pytest.raises(ConfigError, match=r"x\.api_key_variable names A_KEY") as caught:
            read_api_key("A_KEY", "x.api_key_variable")
        assert KEY not in repr(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("", "h/v1", "file:///etc/passwd", "ftp://h", "http://", "http://h:99999/v1"),
        *("http://h:x/v1", "http://us:pw-secret@h/v1", "http://h/a b", "http://h/ü", "http://h/\n"),
    ],
    ids=range(11),
)
def test_what_is_no_address_is_refused_without_being_quoted(url: str) -> None:
    settings = GraphSettings(extractor="llm", llm_url=url, llm_model="m")
    with pytest.raises(ConfigError, match=r"graph\.llm_url: an endpoint's URL") as caught:
        open_endpoint("graph", settings)
    assert "pw-secret" not in repr(caught.value)


GOOD, OTHER = '{"id": "a", "v": 1}', '{"id": "b", "v": 2}'


@pytest.mark.parametrize(
    ("content", "values", "faults"),
    [
        (f'{{"items": [{GOOD}, {OTHER}]}}', {"a": 1, "b": 2}, 0),
        (f"[{OTHER}, {GOOD}]", {"a": 1, "b": 2}, 0),
        (f"<think>[7]</think>Here:\n```json\n[{GOOD}, {OTHER}]\n```", {"a": 1, "b": 2}, 0),
        (f'[{GOOD}, {OTHER}, {{"id": "a", "v": 9}}]', {"a": 1, "b": 2}, 1),  # the first stands
        (f'[{GOOD}, {{"id": "c", "v": 3}}]', {"a": 1}, 2),
        ('[{"id": "a"}, 7, {"v": 1}]', {}, 5),
        ("Once upon a time", {}, 1),
        (f'{{"items": [{GOOD}', {}, 1),
    ],
)
def test_usable_items_are_taken_and_others_counted(
    content: str, values: dict[str, int], faults: int
) -> None:
    found, counted = parse_batch(content, ["a", "b"], lambda row: row.get("v"))
    assert found == values
    assert counted.total() == faults
