"""Real requests to a real server that speaks each provider's form."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import EncoderError
from noctuary.embed.hosted import (
    BadVectorsError,
    HostedClient,
    ProviderRefusedError,
    Purpose,
    hosted_model,
)
from noctuary.work.http import PassingFaultError
from tests.support.embedding_server import KEY, Fault, vector_of
from tests.unit.encode.hosted.conftest import VARIABLE, NewClient

PROVIDERS = ("voyage", "openai", "cohere")


def unit(text: str, dimension: int, purpose: str = "document") -> Any:
    vector = vector_of(text, dimension, purpose)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("purpose", ["document", "query"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_is_asked_in_its_own_form_and_answers_unit_vectors(
    provider: str, purpose: Purpose, new_client: NewClient
) -> None:
    server, client = new_client(provider)
    found = client.embed(["a river", "stone 漢 🙂"], purpose, 5.0)
    # OpenAI's models know one purpose.
    made_for = "document" if provider == "openai" else purpose
    expected = [unit(t, client.model.dimension, made_for) for t in ("a river", "stone 漢 🙂")]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert found.tokens == 4 + 5
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert server.texts == ["a river", "stone 漢 🙂"]


def test_the_fields_of_each_request(new_client: NewClient) -> None:
    """As the providers publish them (providers.py says where and when)."""
    expected: dict[str, dict[str, Any]] = {
        "voyage": {
            "model": "voyage-4", "input": ["x"], "input_type": "query", "truncation": True,
            "encoding_format": "base64", "output_dimension": 256,
        },
        "openai": {
            "model": "text-embedding-3-small", "input": ["x"], "encoding_format": "base64",
            "dimensions": 256,
        },
        "cohere": {
            "model": "embed-v4.0", "texts": ["x"], "input_type": "search_query",
            "embedding_types": ["float"], "truncate": "END", "output_dimension": 256,
        },
    }  # fmt: skip
    paths = {"voyage": "/v1/embeddings", "openai": "/v1/embeddings", "cohere": "/v2/embed"}
    for provider, body in expected.items():
        server, client = new_client(provider, dimension=256)
        assert client.embed(["x"], "query", 5.0).vectors.shape == (1, 256)
        assert server.asked[0].body == body
        assert server.asked[0].path == paths[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_s_own_length_is_not_asked_for(provider: str, new_client: NewClient) -> None:
    server, client = new_client(provider)
    client.embed(["x"], "document", 5.0)
    assert not {"dimensions", "output_dimension"} & set(server.asked[0].body)


def test_a_connection_is_used_again(new_client: NewClient) -> None:
    server, client = new_client()
    ports: set[int] = set()
    for _ in range(3):
        client.embed(["x"], "document", 5.0)
        opened: Any = client._opened  # pyright: ignore[reportPrivateUsage]
        pool = opened._client._transport._pool  # how many sockets there are is httpx's own business
        ports |= {id(connection) for connection in pool.connections}
    assert len(server.asked) == 3
    assert len(ports) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_overload_and_server_errors_may_pass(status: int, new_client: NewClient) -> None:
    server, client = new_client()
    server.faults.append(Fault(status, b"{}"))
    with pytest.raises(PassingFaultError, match=f"HTTP {status}") as caught:
        client.embed(["x"], "document", 5.0)
    assert caught.value.wait_s is None


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("7", 7, 7),
        ("0.5", 0.5, 0.5),
        (lambda: format_datetime(datetime.now(UTC) + timedelta(seconds=60)), 55, 60),
        (lambda: format_datetime(datetime.now(UTC) - timedelta(hours=1)), 0, 0),
    ],
)
def test_the_wait_that_a_provider_asks_for_is_read(
    value: str | Callable[[], str], low: float, high: float, new_client: NewClient
) -> None:
    server, client = new_client()
    header = value if isinstance(value, str) else value()
    server.faults.append(Fault(429, b"{}", {"Retry-After": header}))
    with pytest.raises(PassingFaultError) as caught:
        client.embed(["x"], "document", 5.0)
    assert caught.value.wait_s is not None
    assert low <= caught.value.wait_s <= high


@pytest.mark.parametrize("value", ["soon", "", "-3", "nan", "inf", "Tomorrow, 99 Foo"])
def test_a_wait_that_cannot_be_read_is_none(value: str, new_client: NewClient) -> None:
    server, client = new_client()
    server.faults.append(Fault(503, b"{}", {"Retry-After": value}))
    with pytest.raises(PassingFaultError) as caught:
        client.embed(["x"], "document", 5.0)
    assert caught.value.wait_s is None


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, "encoder.model"),
        (401, "api_key_variable"),
        (403, "rights"),
        (404, "encoder.url"),
        (302, "redirects are not followed"),
        (418, "will not"),
    ],
)
def test_a_refusal_is_for_good_and_says_what_to_do(
    status: int, told: str, new_client: NewClient
) -> None:
    server, client = new_client()
    elsewhere = {"Location": "http://127.0.0.1:9/"} if status == 302 else {}
    server.faults.append(Fault(status, b"{}", elsewhere))
    with pytest.raises(ProviderRefusedError, match=told) as caught:
        client.embed(["x"], "document", 5.0)
    assert f"HTTP {status}" in str(caught.value)
    assert len(server.asked) == 1, "nobody followed"


def test_a_server_that_hangs_is_given_up_in_time(new_client: NewClient) -> None:
    server, client = new_client()
    server.faults.append(Fault(hang=True))
    started = time.monotonic()
    with pytest.raises(PassingFaultError, match=r"within 0\.2 s"):
        client.embed(["x"], "document", 0.2)
    assert time.monotonic() - started < 3.0
    client.embed(["x"], "document", 5.0)


def test_a_body_that_breaks_off_may_pass(new_client: NewClient) -> None:
    server, client = new_client()
    server.faults.append(Fault(body=b'{"data": [', announced=500))
    with pytest.raises(PassingFaultError, match="broke off"):
        client.embed(["x"], "document", 5.0)
    server.faults.append(Fault(body=b'{"data": ['))
    with pytest.raises(PassingFaultError, match="no JSON"):
        client.embed(["x"], "document", 5.0)


def test_nobody_at_the_address_may_pass(new_client: NewClient) -> None:
    _, client = new_client(url="http://127.0.0.1:9/v1")
    with pytest.raises(PassingFaultError, match="could not be reached"):
        client.embed(["x"], "document", 5.0)


def test_vectors_in_another_order_find_their_texts(new_client: NewClient) -> None:
    server, client = new_client()
    server.faults.append(Fault(spoil=lambda answer: answer["data"].reverse()))
    found = client.embed(["river", "stone"], "document", 5.0)
    np.testing.assert_allclose(found.vectors[0], unit("river", 1024), atol=1e-6)


def test_vectors_of_another_length_are_refused(new_client: NewClient) -> None:
    """A gateway that ignores the length that was asked for."""
    server, client = new_client(dimension=256)
    whole = json.dumps(
        {"data": [{"index": 0, "embedding": [1.0] * 1024}], "usage": {"total_tokens": 1}}
    )
    server.faults.append(Fault(body=whole.encode()))
    with pytest.raises(BadVectorsError, match=r"\(1024,\); expected \(256,\)"):
        client.embed(["x"], "document", 5.0)


def test_an_answer_without_end_is_given_up(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.setattr("noctuary.embed.hosted.MAX_ANSWER_BYTES", 10_000)
    server.faults.append(Fault(body=b" " * 20_000))
    with pytest.raises(ProviderRefusedError, match="larger"):
        client.embed(["x"], "document", 5.0)


def test_without_a_key_nothing_is_sent(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(EncoderError, match=f"names {VARIABLE}, which is not set"):
        client.embed(["x"], "document", 5.0)
    monkeypatch.setenv(VARIABLE, "a\nkey")
    with pytest.raises(EncoderError, match="cannot stand in an HTTP header") as caught:
        client.embed(["x"], "document", 5.0)
    assert "a\nkey" not in str(caught.value)
    assert server.asked == []


def test_the_key_and_the_text_are_in_no_error_no_log_and_no_repr(
    new_client: NewClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The loudest log that the libraries have, and a provider that quotes both."""
    caplog.set_level(logging.DEBUG)
    canary = "-".join(("the", "canary", "text"))  # not as it stands in this file's own traceback
    server, client = new_client()
    quoted = f"wrong key {KEY} for {canary}".encode()
    faults = (
        Fault(401, quoted),
        Fault(500, quoted),
        Fault(body=quoted),
        Fault(body=quoted, announced=900),
        Fault(302, quoted, {"Location": f"http://127.0.0.1:9/{KEY}"}),
    )
    told = [repr(client), repr(client.model)]
    for fault in faults:
        server.faults.append(fault)
        with pytest.raises((EncoderError, PassingFaultError)) as caught:
            client.embed([canary], "document", 5.0)
        told += traceback.format_exception(caught.value)
    said = "\n".join([*told, *(record.getMessage() for record in caplog.records)])
    assert "Bearer" not in said
    assert canary not in said
    # The address of a redirect is a response header, which httpcore logs at DEBUG: a provider's own
    # words, not ours.
    assert KEY not in said.replace(f"http://127.0.0.1:9/{KEY}", "")


def test_importing_the_client_imports_no_http_library() -> None:
    from tests.support.imports import reachable_from

    found = reachable_from("noctuary.embed.hosted", eager_only=True)
    assert not {"httpx", "tenacity"} & found
    assert "httpx" in reachable_from("noctuary.embed.hosted")


def test_an_own_address_replaces_the_provider_s(new_client: NewClient) -> None:
    from noctuary.core.settings import EncoderSettings

    def address(provider: str, model: str, url: str = "") -> str:
        return hosted_model(EncoderSettings(model, provider, url)).address

    assert address("voyage", "voyage-4") == "https://api.voyageai.com/v1/embeddings"
    assert address("openai", "text-embedding-3-small") == "https://api.openai.com/v1/embeddings"
    assert address("cohere", "embed-v4.0") == "https://api.cohere.com/v2/embed"
    assert address("voyage", "voyage-4", "http://gate/ai/") == "http://gate/ai/embeddings"
    server, client = new_client()
    assert client.model.address == f"{server.url}/embeddings"
    assert isinstance(client, HostedClient)
