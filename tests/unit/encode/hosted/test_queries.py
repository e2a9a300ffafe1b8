"""One query, one vector, within the time that is left."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.embed import hosted as queries
from noctuary.embed.hosted import HostedQueryEncoder, ProviderDownError, ProviderRefusedError
from tests.support.embedding_server import Fault, vector_of
from tests.unit.encode.hosted.conftest import VARIABLE, NewClient


@pytest.mark.parametrize("provider", ["voyage", "openai", "cohere"])
def test_a_query_is_asked_as_a_query_once(provider: str, new_client: NewClient) -> None:
    server, client = new_client(provider)
    encoder = HostedQueryEncoder(client.model, client)
    found = encoder.encode_query("where is the key")
    purpose = "document" if provider == "openai" else "query"
    wanted = vector_of("where is the key", client.model.dimension, purpose)
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert (found.shape, found.dtype) == ((client.model.dimension,), np.float32)
    assert not found.flags.writeable
    assert encoder.encode_query("where is the key") is found
    assert len(server.asked) == 1


def test_no_longer_than_the_recall_may_take(new_client: NewClient) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    encoder.encode_query("warm up")
    server.faults.append(Fault(hang=True))
    started = time.monotonic()
    with pytest.raises(ProviderDownError, match="within 140 ms"):
        encoder.encode_query("slow", within_ms=200)
    assert time.monotonic() - started < 1.5
    with pytest.raises(ProviderDownError, match=r"asked again in (29|30) s"):
        encoder.encode_query("another")
    assert server.texts == ["warm up", "slow"], "who was late is left alone"


@pytest.mark.parametrize("within_ms", [0.0, -5.0, float("nan")])
def test_without_time_nobody_is_asked(within_ms: float, new_client: NewClient) -> None:
    server, client = new_client()
    with pytest.raises(ProviderDownError, match="no time is left"):
        HostedQueryEncoder(client.model, client).encode_query("x", within_ms)
    assert server.asked == []


def test_a_late_answer_is_kept_and_ends_the_rest(new_client: NewClient) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    go_on = threading.Event()
    server.faults.append(Fault(spoil=lambda _: go_on.wait(10)))
    with pytest.raises(ProviderDownError):
        encoder.encode_query("late", within_ms=100)
    go_on.set()
    for _ in range(500):
        if encoder.known_vector("late") is not None:
            break
        time.sleep(0.01)
    assert encoder.encode_query("late", within_ms=0).shape == (1024,)
    assert encoder.encode_query("another").shape == (1024,), "it is well again"


def test_after_a_failure_a_provider_is_left_alone_for_a_while(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    server.faults += [Fault(500, b"{}"), Fault(401, b"{}")]
    with pytest.raises(ProviderDownError, match="HTTP 500"):
        encoder.encode_query("a")
    with pytest.raises(ProviderDownError, match=r"HTTP 500; it is asked again"):
        encoder.encode_query("b")
    assert len(server.asked) == 1
    later = time.monotonic() + queries.REST_S + 1
    monkeypatch.setattr(queries.time, "monotonic", lambda: later)
    with pytest.raises(ProviderRefusedError, match="HTTP 401"):
        encoder.encode_query("b")
    with pytest.raises(ProviderDownError, match="HTTP 401"):
        encoder.encode_query("b")
    assert len(server.asked) == 2


def test_what_is_known_is_answered_while_the_provider_rests(new_client: NewClient) -> None:
    server, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    known = encoder.encode_query("known")
    server.faults.append(Fault(503, b"{}"))
    with pytest.raises(ProviderDownError):
        encoder.encode_query("unknown")
    assert encoder.encode_query("known") is known


def test_without_a_key_the_sentence_names_the_variable(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(EncoderError, match=VARIABLE):
        HostedQueryEncoder(client.model, client).encode_query("x")
    assert server.asked == []


def test_only_so_many_vectors_are_kept(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "CACHED_QUERIES", 2)
    _, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    for text in ("a", "b", "a", "c"):
        encoder.remember(text, np.ones(1024, dtype=np.float32))
    assert encoder.known_vector("b") is None, "the one that was not used longest goes"
    assert encoder.known_vector("a") is not None


def test_many_threads_get_the_vectors_of_their_own_queries(new_client: NewClient) -> None:
    _, client = new_client()
    encoder = HostedQueryEncoder(client.model, client)
    found: dict[str, NDArray[np.float32]] = {}

    def ask(text: str) -> None:
        found[text] = encoder.encode_query(text)

    texts = [f"query number {n}" for n in range(8)]
    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text in texts:
        wanted = vector_of(text, 1024, "query")
        np.testing.assert_allclose(found[text], wanted / np.linalg.norm(wanted), atol=1e-6)
