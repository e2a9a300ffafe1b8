"""Embedding many texts: estimate first, pay once, keep what came."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import EncoderError
from noctuary.embed.documents import Embedded, embed_texts, text_key, vector_kind
from noctuary.embed.fingerprint import require_unit_rows
from noctuary.embed.hosted import (
    BadVectorsError,
    BudgetError,
    HostedClient,
    HostedEncoder,
    ProviderDownError,
    ProviderRefusedError,
    Spending,
)
from noctuary.work.content import ContentStore
from noctuary.work.http import Patience
from tests.support.embedding_server import EmbeddingServer, Fault, vector_of
from tests.unit.encode.hosted.conftest import NewClient

TEXTS = [f"memory number {n} about river{n} and stone{n % 7}" for n in range(300)]


def opened(
    client: HostedClient, budget_usd: float = 5.0, price: float = 0.06, left_s: float = 0.0
) -> tuple[HostedEncoder, list[str]]:
    said: list[str] = []
    patience = Patience(6, 120.0, left_s=left_s, sleep=lambda _: None)
    return HostedEncoder(client, Spending(budget_usd, price), patience, said.append), said


def embed(path: Path, encoder: HostedEncoder, texts: Sequence[str] = TEXTS) -> Embedded:
    store = ContentStore(path, vector_kind(encoder.fingerprint, encoder.model.provider))
    encode = encoder.iter_document_batches
    return embed_texts(texts, store, encoder.fingerprint, encode, batches_per_write=1)


def expected(texts: Sequence[str], dimension: int) -> Any:
    rows = np.array([vector_of(text, dimension) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("provider", ["voyage", "openai", "cohere"])
def test_every_text_gets_its_vector_in_as_few_requests_as_the_provider_allows(
    provider: str, new_client: NewClient, tmp_path: Path
) -> None:
    server, client = new_client(provider)
    encoder, said = opened(client, price=0.1)
    found = embed(tmp_path / "content", encoder)
    np.testing.assert_allclose(found.vectors, expected(TEXTS, client.model.dimension), atol=1e-6)
    require_unit_rows(found.vectors, range(300))
    assert len(server.asked) == (4 if provider == "cohere" else 3)
    assert server.texts == TEXTS
    paid = sum(len(text.split()) + 2 for text in TEXTS)
    assert encoder.spending.tokens == paid
    assert encoder.spending.to_notes()["paid_usd"] == round(paid * 0.1 / 1e6, 6)
    assert encoder.spending.estimated_tokens > paid
    assert len(said) == 1
    assert "300 vectors" in said[0]


def test_the_estimate_is_shown_before_anything_is_sent(new_client: NewClient) -> None:
    server, client = new_client()
    encoder, said = opened(client)
    sent_before: list[int] = []

    def note(_: str) -> None:
        sent_before.append(len(server.asked))

    encoder._say = note  # pyright: ignore[reportPrivateUsage]
    list(encoder.iter_document_batches(TEXTS[:3]))
    assert (sent_before, len(server.asked), said) == ([0], 1, [])


def test_above_the_budget_nothing_is_sent(new_client: NewClient, tmp_path: Path) -> None:
    server, client = new_client()
    encoder, said = opened(client, budget_usd=0.0001)
    with pytest.raises(BudgetError, match=r"300 texts .* encoder\.budget_usd"):
        embed(tmp_path / "content", encoder)
    assert (server.asked, said) == ([], [])


def test_after_a_failure_only_the_rest_is_paid(new_client: NewClient, tmp_path: Path) -> None:
    server, client = new_client()
    server.die_after = 2
    encoder, _ = opened(client)
    with pytest.raises(ProviderDownError, match="HTTP 503"):
        embed(tmp_path / "content", encoder)
    assert server.texts[:256] == TEXTS[:256]
    server.die_after = None
    server.asked.clear()
    again, said = opened(client)
    found = embed(tmp_path / "content", again)
    assert (found.computed, found.reused) == (44, 256)
    assert server.texts == TEXTS[256:], "nothing is asked, or paid, twice"
    assert "44 vectors" in said[0]
    np.testing.assert_allclose(found.vectors, expected(TEXTS, 1024), atol=1e-6)


def test_passing_faults_cost_waiting_and_no_vectors(new_client: NewClient, tmp_path: Path) -> None:
    server, client = new_client()
    server.faults += [
        Fault(429, b"{}", {"Retry-After": "3"}),
        Fault(500, b"oops"),
        Fault(body=b'{"half', announced=100),
        Fault(body=b"<html>"),
    ]
    waits: list[float] = []
    spending = Spending(5.0, 0.06)
    patience = Patience(6, 120.0, left_s=100.0, sleep=waits.append)
    encoder = HostedEncoder(client, spending, patience, lambda _: None)
    found = embed(tmp_path / "content", encoder, TEXTS[:5])
    np.testing.assert_allclose(found.vectors, expected(TEXTS[:5], 1024), atol=1e-6)
    assert waits == [3.0, 2.0, 4.0, 8.0]
    assert spending.requests == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(401, b"{}"), ProviderRefusedError),
        (Fault(400, b"{}"), ProviderRefusedError),
        (Fault(spoil=lambda answer: answer["data"].pop()), BadVectorsError),
    ],
)
def test_what_no_retry_can_mend_ends_at_once(
    fault: Fault, error: type[Exception], new_client: NewClient, tmp_path: Path
) -> None:
    server, client = new_client()
    server.faults.append(fault)
    encoder, _ = opened(client, left_s=1e6)
    with pytest.raises(error):
        embed(tmp_path / "content", encoder, TEXTS[:5])
    assert len(server.asked) == 1


def _refusing(server: EmbeddingServer, limit: int) -> None:
    server.max_text_bytes = limit


def test_a_text_that_is_too_long_is_cut_and_its_neighbours_are_as_ever(
    new_client: NewClient, tmp_path: Path
) -> None:
    """OpenAI refuses the whole request; dense text may have a token per byte."""
    server, client = new_client("openai")
    _refusing(server, 10_000)
    fits, too_long = "word " * 1_800, "w" * 20_000
    texts = ["river", fits, too_long, "stone"]
    encoder, _ = opened(client)
    found = embed(tmp_path / "content", encoder, texts)
    sent = ["river", fits, too_long[:8_192], "stone"]
    np.testing.assert_allclose(found.vectors, expected(sent, 1536), atol=1e-6)
    alone = embed(tmp_path / "other", encoder, [too_long])
    assert alone.vectors.tobytes() == found.vectors[2].tobytes()


def test_a_refusal_that_is_not_about_length_stays_one(new_client: NewClient) -> None:
    server, client = new_client("openai")
    _refusing(server, 2)
    encoder, _ = opened(client)
    with pytest.raises(ProviderRefusedError):
        list(encoder.iter_document_batches(["river"]))
    assert len(server.asked) == 1


def test_a_provider_that_counts_more_than_estimated_ends_at_the_budget(
    new_client: NewClient, tmp_path: Path
) -> None:
    server, client = new_client()

    def inflate(answer: dict[str, dict[str, int]]) -> None:
        answer["usage"]["total_tokens"] = 90_000_000

    server.faults.append(Fault(spoil=inflate))
    encoder, _ = opened(client, budget_usd=5.0)
    with pytest.raises(BudgetError, match=r"\$5\.40 of the night's \$5\.00 are spent"):
        embed(tmp_path / "content", encoder)
    assert len(server.asked) == 1
    store = ContentStore(tmp_path / "content", f"vector:{encoder.fingerprint.digest}:voyage")
    kept = (store.find(list(map(text_key, TEXTS))) >= 0).sum()
    assert kept == 128, "what was paid for is kept"


@pytest.mark.parametrize("library", ["httpx", "tenacity"])
def test_without_the_extra_nothing_is_sent_and_the_extra_is_named(
    library: str, new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = new_client()
    monkeypatch.setitem(sys.modules, library, None)
    encoder, _ = opened(client)
    with pytest.raises(EncoderError, match=r"install noctuary\[hosted\]"):
        list(encoder.iter_document_batches(TEXTS[:2]))
    assert server.asked == []
