"""A snapshot whose vectors a provider made: who encodes its queries, and what is not sent."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.settings import EncoderSettings
from noctuary.core.store import StorePaths
from noctuary.embed.hosted import (
    HOSTED_FILE,
    HostedModel,
    ProviderDownError,
    hosted_model,
    write_description,
)
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import (
    Inputs,
    encode_query,
    encoder_identity,
    forget_queries,
    guard_model,
    lean_reason,
    remember_query,
    text_encoder,
    warm_up,
)
from tests.support.embedding_server import KEY, EmbeddingServer, Fault, vector_of
from tests.support.store import Store

VARIABLE = "TEST_EMBEDDING_KEY"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[EmbeddingServer]:
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, KEY)
    with EmbeddingServer("voyage") as server:
        yield server
    forget_queries()


def hosted(server: EmbeddingServer, dimension: int = 256) -> HostedModel:
    settings = EncoderSettings("voyage-4", "voyage", server.url, VARIABLE, dimension)
    return hosted_model(settings)


def described(store: Store, model: HostedModel) -> tuple[StorePaths, Manifest]:
    """Return the store as after a night with the model: its manifest, and the model's file."""
    manifest = read_manifest(store.snapshot(read_pointer(store.paths).snapshot_id))
    fingerprint = model.fingerprint()
    write_description(store.paths.encoders / fingerprint.digest, model)
    known = fingerprint.to_json()
    return store.paths, manifest._replace(encoder=known, encoder_digest=fingerprint.digest)


def test_the_provider_of_the_snapshot_is_asked_once(
    plain_store: Store, server: EmbeddingServer
) -> None:
    place = described(plain_store, hosted(server))
    found = encode_query(*place, "where is the key")
    wanted = vector_of("where is the key", 256, "query")
    np.testing.assert_allclose(found, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert encode_query(*place, "where is the key", may_warm=True) is found
    assert server.texts == ["where is the key"]


def test_what_a_night_asked_for_is_not_asked_again(
    plain_store: Store, server: EmbeddingServer
) -> None:
    place = described(plain_store, hosted(server))
    vector = np.eye(1, 256, dtype=np.float32)[0]
    remember_query(*place, "known", vector)
    assert encode_query(*place, "known") is vector
    assert not vector.flags.writeable
    assert server.asked == []


def test_time_is_passed_on(plain_store: Store, server: EmbeddingServer) -> None:
    place = described(plain_store, hosted(server))
    encode_query(*place, "warm up")
    server.faults.append(Fault(hang=True))
    with pytest.raises(ProviderDownError, match="within 70 ms"):
        encode_query(*place, "slow", within_ms=100)


def test_a_new_address_is_used_without_a_restart(
    plain_store: Store, server: EmbeddingServer
) -> None:
    nobody = replace(hosted(server), url="http://127.0.0.1:9/v1")
    place = described(plain_store, nobody)
    with pytest.raises(ProviderDownError):
        encode_query(*place, "x")
    assert encode_query(*described(plain_store, hosted(server)), "x").shape == (256,)


def test_its_identity_passes_the_model_guard(plain_store: Store, server: EmbeddingServer) -> None:
    model = hosted(server)
    paths, manifest = described(plain_store, model)
    found = encoder_identity(paths, manifest)
    assert found == model.fingerprint().to_json()
    assert guard_model(manifest.encoder, found).verdict == "MATCH"


def test_another_model_in_its_place_is_refused(plain_store: Store, server: EmbeddingServer) -> None:
    model, other = hosted(server), hosted(server, 512)
    paths, manifest = described(plain_store, model)
    write_description(paths.encoders / model.fingerprint().digest, other)
    assert guard_model(manifest.encoder, encoder_identity(paths, manifest)).verdict == "MISMATCH"
    with pytest.raises(FingerprintMismatchError, match="dimension"):
        encode_query(paths, manifest, "x")
    assert server.asked == []


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_without_its_file_nobody_is_asked(
    damage: str, plain_store: Store, server: EmbeddingServer
) -> None:
    model = hosted(server)
    paths, manifest = described(plain_store, model)
    directory: Path = paths.encoders / model.fingerprint().digest
    if damage == "gone":
        remove_tree(directory)
    else:
        (directory / HOSTED_FILE).write_text("{")
    assert encoder_identity(paths, manifest) is None
    with pytest.raises(EncoderError, match="nightly job"):
        encode_query(paths, manifest, "x")


def test_only_queries_are_encoded_in_passing(plain_store: Store, server: EmbeddingServer) -> None:
    """What a session says, and its summaries, are sent to nobody."""
    place = described(plain_store, hosted(server))
    with pytest.raises(EncoderError, match="only queries"):
        text_encoder(*place)
    assert "voyage:voyage-4" in lean_reason(*place)
    assert warm_up(*place) == lean_reason(*place)
    assert server.asked == []


class _Noting:
    """The store's own world, which notes how long a vector may take."""

    def __init__(self, world: Inputs) -> None:
        self._world = world
        self.within_ms: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        self.within_ms.append(within_ms)
        return self._world.query_vector(text, within_ms)


def test_a_recall_tells_how_much_time_is_left(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    noting = _Noting(recaller.inputs_now())
    recaller.recall("spare key", deadline_ms=60_000.0, inputs=cast("Inputs", noting))
    assert len(noting.within_ms) == 1
    assert 0 < noting.within_ms[0] < 60_000
    recaller.recall("spare key", inputs=cast("Inputs", noting))
    assert noting.within_ms[1] == math.inf


def test_a_log_of_queries_asks_no_provider(plain_store: Store, server: EmbeddingServer) -> None:
    paths, manifest = described(plain_store, hosted(server))
    found = Recaller.open(plain_store.root).inputs_now()
    assert isinstance(found, Inputs)
    found.reader.manifest = manifest
    world = found._replace(paths=paths)
    with pytest.raises(ProviderDownError, match="no time"):
        world.past_queries("never asked", since_us=0, limit=5, user=None)
    assert server.asked == []
