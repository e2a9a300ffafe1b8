"""One hosted model as it is configured: its name, the length of its vectors, where it is asked.

What belongs here: from settings to that value, and its fingerprint. What does not: published facts
(models.py), HTTP (client.py).
"""

from __future__ import annotations

from noctuary.encode.fingerprint import HOSTED_POOLING, EncoderFingerprint
from noctuary.encode.hosted.models import REQUEST_TOKENS, UNKNOWN_MAX_TOKENS, facts_of
from noctuary.errors import ConfigError
from noctuary.hashing import hash_text
from noctuary.settings.sections import PROVIDERS, EncoderSettings
from noctuary.settings.web_address import require_web_address
from noctuary.values import dataclass

LOCAL = PROVIDERS[0]


@dataclass(frozen=True, slots=True)
class HostedModel:
    """A model behind a provider's interface.

    Attributes:
        provider: "voyage", "openai" or "cohere".
        name: The model's name there.
        dimension: Length of its vectors.
        asks_dimension: Whether a request names that length; False where it is the model's own.
        max_tokens: Tokens of one text that it reads.
        request_tokens: Tokens that one request may hold.
        url: Base URL in the place of the provider's own; empty: the provider's.
        api_key_variable: Environment variable that holds the key.
    """

    provider: str
    name: str
    dimension: int
    asks_dimension: bool
    max_tokens: int
    request_tokens: int
    url: str
    api_key_variable: str

    @property
    def title(self) -> str:
        """Provider and model, as messages name it."""
        return f"{self.provider}:{self.name}"

    def fingerprint(self) -> EncoderFingerprint:
        """Return the identity of the space, as far as it can be known from outside.

        Nobody sees the weights of a hosted model: in the place of their hash stands that of
        provider, name and dimension. The address is no part of it: a gateway may move.
        """
        return EncoderFingerprint(
            model=self.title,
            weights_sha256=hash_text("hosted", self.provider, self.name, str(self.dimension)),
            dimension=self.dimension,
            pooling=HOSTED_POOLING,
            normalized=True,
            query_prefix="",
            document_prefix="",
            max_tokens=self.max_tokens,
        )


def hosted_model(settings: EncoderSettings) -> HostedModel | None:
    """Return the configured hosted model; None where the encoder is local.

    Raises:
        ConfigError: The address is none, or the length of the vectors is not known or not to be
            had.
    """
    if settings.provider == LOCAL:
        return None
    if settings.url:
        try:
            require_web_address(settings.url)
        except ValueError as error:
            raise ConfigError(f"encoder.url: {error}") from None
    facts = facts_of(settings.provider, settings.model)
    if facts is None:
        return _unlisted(settings)
    dimension = settings.dimension or facts.dimension
    if dimension != facts.dimension and dimension not in facts.lengths:
        raise ConfigError(
            f"encoder.dimension is {dimension}; {settings.provider}:{settings.model} gives "
            f"{_told(facts.dimension, facts.lengths)}. Choose one of these, or 0 for its own."
        )
    return HostedModel(
        provider=settings.provider,
        name=settings.model,
        dimension=dimension,
        asks_dimension=dimension != facts.dimension,
        max_tokens=facts.max_tokens,
        request_tokens=facts.request_tokens,
        url=settings.url,
        api_key_variable=settings.api_key_variable,
    )


def price_of(settings: EncoderSettings) -> float:
    """Return what a million tokens cost, in USD, as configured or as published.

    Raises:
        ConfigError: Neither says.
    """
    if settings.usd_per_million_tokens > 0:
        return settings.usd_per_million_tokens
    facts = facts_of(settings.provider, settings.model)
    if facts is None or facts.usd_per_million_tokens is None:
        raise ConfigError(
            f"the price of {settings.provider}:{settings.model} is not known, so nothing can be "
            "estimated before it is paid: set encoder.usd_per_million_tokens"
        )
    return facts.usd_per_million_tokens


def _unlisted(settings: EncoderSettings) -> HostedModel:
    """Return a model of which nothing is known; nothing shorter than its own length is asked of it.

    Many gateways offer such models and refuse a length that is asked for.
    """
    if not settings.dimension:
        raise ConfigError(
            f"{settings.provider}:{settings.model} is not a model that noctuary knows; set "
            "encoder.dimension to the length of its vectors"
        )
    return HostedModel(
        provider=settings.provider,
        name=settings.model,
        dimension=settings.dimension,
        asks_dimension=False,
        max_tokens=UNKNOWN_MAX_TOKENS,
        request_tokens=REQUEST_TOKENS[settings.provider],
        url=settings.url,
        api_key_variable=settings.api_key_variable,
    )


def _told(own: int, lengths: tuple[int, ...] | range) -> str:
    if isinstance(lengths, range):
        return f"{lengths.start} to {own}"
    return ", ".join(str(length) for length in sorted({own, *lengths}))
