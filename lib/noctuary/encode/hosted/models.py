"""What is known of the providers' models: lengths of vectors, limits, prices.

What belongs here: published facts, with where and when they were read. What does not: the form of
requests (shapes.py). Read on 2026-11-22:

- Voyage: docs.voyageai.com/reference/embeddings-api (limits per request),
  mongodb.com/docs/voyageai/models (dimensions, context), docs.voyageai.com/docs/pricing.
- OpenAI: developers.openai.com/api/reference/resources/embeddings (8,192 tokens of a text, 300,000
  of a request), model pages (dimensions, prices).
- Cohere: docs.cohere.com/reference/embed (96 texts, output_dimension), docs.cohere.com/docs/
  cohere-embed (dimensions, context); 128,000 tokens of a request; the price of embed-v4.0 as
  gateways list it. Prices of the v3 models are not published any more: they must be configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

VOYAGE, OPENAI, COHERE = "voyage", "openai", "cohere"

UNKNOWN_MAX_TOKENS = 8_192
"""Assumed of a model that is not listed: what all but the smallest read. A longer text is cut."""


class ModelFacts(NamedTuple):
    """Published facts of one model.

    Attributes:
        dimension: Length of its vectors where none is asked for.
        lengths: Other lengths that may be asked for (Matryoshka: prefixes that are vectors too).
        max_tokens: Tokens of one text that it reads.
        request_tokens: Tokens of all texts of one request.
        usd_per_million_tokens: Price; None where it has to be configured.
    """

    dimension: int
    lengths: tuple[int, ...] | range
    max_tokens: int
    request_tokens: int
    usd_per_million_tokens: float | None


_VOYAGE_LENGTHS = (256, 512, 2048)
_COHERE_LENGTHS = (256, 512, 1024)

MODELS: Mapping[str, Mapping[str, ModelFacts]] = {
    VOYAGE: {
        "voyage-4-large": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 120_000, 0.12),
        "voyage-4": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 320_000, 0.06),
        "voyage-4-lite": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 1_000_000, 0.02),
        "voyage-3-large": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 120_000, 0.18),
        "voyage-3.5": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 320_000, 0.06),
        "voyage-3.5-lite": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 1_000_000, 0.02),
        "voyage-code-3": ModelFacts(1024, _VOYAGE_LENGTHS, 32_000, 120_000, 0.18),
        "voyage-finance-2": ModelFacts(1024, (), 32_000, 120_000, 0.12),
        "voyage-law-2": ModelFacts(1024, (), 16_000, 120_000, 0.12),
    },
    OPENAI: {
        "text-embedding-3-small": ModelFacts(1536, range(1, 1536), 8_192, 300_000, 0.02),
        "text-embedding-3-large": ModelFacts(3072, range(1, 3072), 8_192, 300_000, 0.13),
        "text-embedding-ada-002": ModelFacts(1536, (), 8_192, 300_000, 0.10),
    },
    COHERE: {
        "embed-v4.0": ModelFacts(1536, _COHERE_LENGTHS, 128_000, 128_000, 0.12),
        "embed-english-v3.0": ModelFacts(1024, (), 512, 128_000, None),
        "embed-multilingual-v3.0": ModelFacts(1024, (), 512, 128_000, None),
        "embed-english-light-v3.0": ModelFacts(384, (), 512, 128_000, None),
        "embed-multilingual-light-v3.0": ModelFacts(384, (), 512, 128_000, None),
    },
}

REQUEST_TOKENS: Mapping[str, int] = {VOYAGE: 120_000, OPENAI: 300_000, COHERE: 128_000}
"""Of a model that is not listed: the least that the provider's own models take."""


def facts_of(provider: str, model: str) -> ModelFacts | None:
    """Return what is known of a model; None for one that is not listed."""
    return MODELS[provider].get(model)
