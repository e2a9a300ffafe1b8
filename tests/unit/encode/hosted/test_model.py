"""From settings to a model: what is known of it, what is refused, its identity."""

from __future__ import annotations

import pytest

from noctuary.core.errors import ConfigError
from noctuary.core.settings import PROVIDERS, EncoderSettings
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import HOSTED_PROVIDERS, HostedModel, hosted_model, price_of


def settings(**changes: object) -> EncoderSettings:
    values = {"provider": "voyage", "model": "voyage-4", "api_key_variable": "K"}
    return EncoderSettings(**{**values, **changes})  # type: ignore[arg-type]


def model(**changes: object) -> HostedModel:
    return hosted_model(settings(**changes))


def test_every_provider_of_the_settings_has_models_and_limits() -> None:
    assert set(HOSTED_PROVIDERS) == set(PROVIDERS[1:])
    for form in HOSTED_PROVIDERS.values():
        for name, facts in form.models.items():
            assert facts.dimension not in facts.lengths, name
            assert facts.max_tokens <= facts.request_tokens, name
            assert facts.request_tokens >= form.request_tokens, name


@pytest.mark.parametrize(
    ("provider", "name", "dimension", "max_tokens", "request_tokens", "usd"),
    [
        ("voyage", "voyage-4-large", 1024, 32_000, 120_000, 0.12),
        ("voyage", "voyage-3.5-lite", 1024, 32_000, 1_000_000, 0.02),
        ("openai", "text-embedding-3-small", 1536, 8_192, 300_000, 0.02),
        ("openai", "text-embedding-3-large", 3072, 8_192, 300_000, 0.13),
        ("cohere", "embed-v4.0", 1536, 128_000, 128_000, 0.12),
    ],
)
def test_published_facts(
    provider: str, name: str, dimension: int, max_tokens: int, request_tokens: int, usd: float
) -> None:
    found = model(provider=provider, model=name)
    assert (found.dimension, found.asks_dimension) == (dimension, False)
    assert (found.max_tokens, found.request_tokens) == (max_tokens, request_tokens)
    assert price_of(settings(provider=provider, model=name)) == usd


def test_a_shorter_length_is_asked_for_only_where_the_model_has_it() -> None:
    shorter = model(dimension=256)
    assert (shorter.dimension, shorter.asks_dimension) == (256, True)
    assert not model(dimension=1024).asks_dimension, "its own length is not asked for"
    with pytest.raises(ConfigError, match=r"is 300; .* 256, 512, 1024, 2048"):
        model(dimension=300)
    assert model(provider="openai", model="text-embedding-3-small", dimension=300).asks_dimension
    with pytest.raises(ConfigError, match="1 to 1536"):
        model(provider="openai", model="text-embedding-3-small", dimension=1537)
    with pytest.raises(ConfigError, match="gives 1536"):
        model(provider="openai", model="text-embedding-ada-002", dimension=512)


def test_of_an_unknown_model_length_and_price_must_be_told() -> None:
    with pytest.raises(ConfigError, match=r"encoder\.dimension"):
        model(model="voyage-99")
    found = model(model="voyage-99", dimension=640)
    assert (found.dimension, found.asks_dimension, found.request_tokens) == (640, False, 120_000)
    with pytest.raises(ConfigError, match="usd_per_million_tokens"):
        price_of(settings(model="voyage-99"))
    assert price_of(settings(model="voyage-99", usd_per_million_tokens=0.3)) == 0.3


def test_of_a_known_model_without_a_published_price_it_must_be_told() -> None:
    with pytest.raises(ConfigError, match="usd_per_million_tokens"):
        price_of(settings(provider="cohere", model="embed-english-v3.0"))


def test_a_configured_price_comes_before_the_published_one() -> None:
    assert price_of(settings(usd_per_million_tokens=9.0)) == 9.0


@pytest.mark.parametrize("url", ["ftp://host/v1", "host/v1", "https://u:secret-word@host/v1"])
def test_an_address_that_is_none_is_refused_unquoted(url: str) -> None:
    with pytest.raises(ConfigError, match=r"encoder\.url") as caught:
        model(url=url)
    assert "secret-word" not in str(caught.value)


def test_the_identity_is_provider_model_and_dimension_and_not_the_address() -> None:
    found = model().fingerprint()
    assert EncoderFingerprint.from_json(found.to_json()) == found
    assert (found.model, found.pooling, found.normalized) == ("voyage:voyage-4", "hosted", True)
    assert found.is_hosted
    assert len(found.weights_sha256) == 64
    assert model(url="http://127.0.0.1:1/v1", api_key_variable="X").fingerprint() == found
    others = [
        model(model="voyage-4-lite"),
        model(dimension=256),
        model(provider="openai", model="voyage-4", dimension=1024),
    ]
    assert len({found.digest, *(m.fingerprint().digest for m in others)}) == 4
    hashes = {found.weights_sha256, *(m.fingerprint().weights_sha256 for m in others)}
    assert len(hashes) == 4
