"""Nights that embed with a provider: its face, what it costs, what recall is told."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import ConfigError, EncoderError
from noctuary.core.files import read_array
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.settings import EncoderSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed.hosted import BudgetError, ProviderDownError, read_description
from noctuary.recall.inputs import encode_query, forget_queries
from noctuary_assets.evaluate import fetch_query_vectors
from noctuary_assets.index import chosen_backend, embed_memories, export_query_encoder
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import VECTORS, Night
from tests.support.embedding_server import KEY, EmbeddingServer, vector_of
from tests.support.store import Store

VARIABLE = "TEST_EMBEDDING_KEY"
ROWS = [
    {"id": 1, "content": "The spare key hangs behind the door."},
    {"id": 2, "content": "The boiler is serviced every spring."},
    {"id": 3, "content": "CANARY-hosted the vault code", "is_sensitive": 1},
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[EmbeddingServer]:
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, KEY)
    with EmbeddingServer("voyage") as server:
        yield server
    forget_queries()


@pytest.fixture
def night(server: EmbeddingServer, tmp_path: Path) -> Generator[Night]:
    """A night on three rows, one of them sensitive, with the corpus exported."""
    source = tmp_path / "corpus.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    encoder = EncoderSettings("voyage-4", "voyage", server.url, VARIABLE, 256)
    night = Night(StorePaths(tmp_path / "store"), source, Settings(encoder=encoder))
    export_memories(night)
    yield night
    night.close()


def again(night: Night, **changes: Any) -> Night:
    """Return the next night on the same store."""
    encoder = night.settings.encoder._replace(**changes)
    return Night(night.paths, night.source, night.settings._replace(encoder=encoder))


def test_exported_memories_are_embedded_by_the_provider_and_told(
    night: Night, server: EmbeddingServer
) -> None:
    said: list[str] = []
    night.say = said.append
    result = embed_memories(night)
    texts = [str(row["content"]) for row in ROWS[:2]]
    rows = np.array([vector_of(text, 256) for text in texts])
    wanted = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(read_array(night.work(VECTORS)), wanted, atol=1e-6)
    assert server.texts == texts
    assert "CANARY" not in server.everything
    assert result.facts["face"] == "voyage"
    assert result.facts["dimension"] == 256
    assert result.notes["texts_embedded"] == 2
    paid = sum(len(text.split()) + 2 for text in texts)
    assert result.notes["paid_tokens"] == paid
    assert result.notes["paid_usd"] == round(paid * 0.06 / 1e6, 6)
    assert result.notes["estimated_tokens"] >= paid
    assert len(said) == 1
    assert said[0].startswith("voyage:voyage-4 is asked for 2 vectors")


def test_the_next_night_pays_for_what_is_new_only(night: Night, server: EmbeddingServer) -> None:
    embed_memories(night)
    assert isinstance(night.source, Path)
    with night.source.open("a") as file:
        file.write(json.dumps({"id": 4, "content": "A new bicycle."}) + "\n")
    later = again(night)
    export_memories(later)
    result = embed_memories(later)
    later.close()
    assert server.texts[2:] == ["A new bicycle."]
    assert (result.notes["texts_embedded"], result.notes["texts_reused"]) == (1, 2)


def test_a_night_with_nothing_to_embed_needs_neither_key_nor_price_nor_provider(
    night: Night, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed_memories(night)
    monkeypatch.delenv(VARIABLE)
    later = again(night, budget_usd=0.0)
    assert embed_memories(later).reused
    assert export_query_encoder(later).facts == {"hosted": "voyage:voyage-4"}
    assert len(server.asked) == 1


def test_above_the_budget_the_night_fails_before_the_first_call(
    night: Night, server: EmbeddingServer
) -> None:
    poor = again(night, budget_usd=0.0)
    with pytest.raises(BudgetError, match="2 texts"):
        embed_memories(poor)
    with pytest.raises(ConfigError, match="usd_per_million_tokens"):
        embed_memories(again(night, model="voyage-99"))
    assert server.asked == []


def test_a_provider_that_is_down_fails_the_night_and_leaves_no_vectors(
    night: Night, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.work.http.FIRST_WAIT_S", 0.0)
    server.die_after = 0
    with pytest.raises(ProviderDownError, match="HTTP 503"):
        embed_memories(night)
    assert not night.work(VECTORS).exists()
    assert len(server.asked) == 7


def test_recall_is_told_whom_to_ask_and_a_moved_gateway_is_noticed(night: Night) -> None:
    first = export_query_encoder(night)
    directory = night.paths.encoders / night.encoder.fingerprint.digest
    assert read_description(directory).url == night.settings.encoder.url
    moved = again(night, url="http://127.0.0.1:9/v1")
    assert moved.encoder.fingerprint == night.encoder.fingerprint
    second = export_query_encoder(moved)
    assert not second.reused
    assert second.digest != first.digest
    assert read_description(directory).url == "http://127.0.0.1:9/v1"
    (directory / "hosted.json").unlink()
    assert not export_query_encoder(moved).reused
    assert read_description(directory).dimension == 256


def test_vectors_of_one_encoder_are_not_mixed_with_another_s(night: Night) -> None:
    embed_memories(night)
    backend = chosen_backend(night)
    assert (backend.tag, backend.batches_per_write) == ("voyage", 1)
    other = again(night, provider="openai", model="text-embedding-3-small")
    with pytest.raises(EncoderError, match=r"made by voyage, .* now has openai"):
        other.encoder.open_backend(backend, ["x"])


def manifest_of(store: Store, night: Night) -> Manifest:
    found = read_manifest(store.snapshot(read_pointer(store.paths).snapshot_id))
    known = night.encoder.fingerprint
    return found._replace(encoder=known.to_json(), encoder_digest=known.digest)


def test_the_evaluation_asks_for_all_queries_at_once_and_recall_finds_them(
    night: Night, server: EmbeddingServer, plain_store: Store
) -> None:
    export_query_encoder(night)
    manifest = manifest_of(plain_store, night)
    texts = [f"question {number}" for number in range(150)]
    assert fetch_query_vectors(night, manifest, [*texts, texts[0]]) == 150
    assert len(server.asked) == 2
    assert {asked.body["input_type"] for asked in server.asked} == {"query"}
    found = encode_query(night.paths, manifest, "question 149")
    wanted = vector_of("question 149", 256, "query")
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert fetch_query_vectors(again(night), manifest, texts) == 0, "they are remembered"
    assert len(server.asked) == 2


def test_the_evaluation_of_another_model_s_snapshot_asks_nothing_in_advance(
    night: Night, server: EmbeddingServer, plain_store: Store
) -> None:
    manifest = manifest_of(plain_store, night)
    assert fetch_query_vectors(again(night, dimension=512), manifest, ["x"]) == 0
    local = again(night, provider="local", model="all-MiniLM-L6-v2", dimension=0)
    assert fetch_query_vectors(local, manifest, ["x"]) == 0
    assert fetch_query_vectors(night, manifest._replace(encoder=None), ["x"]) == 0
    assert server.asked == []
