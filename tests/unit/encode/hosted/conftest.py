"""Servers of each provider's shape, and clients that know the key."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack

import pytest

from noctuary.core.settings import EncoderSettings
from noctuary.embed.hosted import HostedClient, hosted_model
from tests.support.embedding_server import KEY, EmbeddingServer

VARIABLE = "TEST_EMBEDDING_KEY"
MODELS = {"voyage": "voyage-4", "openai": "text-embedding-3-small", "cohere": "embed-v4.0"}

NewClient = Callable[..., tuple[EmbeddingServer, HostedClient]]


def settings_for(server: EmbeddingServer, **changes: object) -> EncoderSettings:
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

        def start(
            provider: str = "voyage", **changes: object
        ) -> tuple[EmbeddingServer, HostedClient]:
            server = stack.enter_context(EmbeddingServer(provider))
            client = HostedClient(hosted_model(settings_for(server, **changes)))
            stack.callback(client.close)
            return server, client

        yield start
