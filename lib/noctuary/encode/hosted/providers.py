"""What is known of the providers: addresses, fields, models, limits, prices. Read on 2026-11-22.

Voyage: docs.voyageai.com/reference/embeddings-api, mongodb.com/docs/voyageai/models,
docs.voyageai.com/docs/pricing. OpenAI: developers.openai.com/api/reference/resources/embeddings,
model pages. Cohere: docs.cohere.com/reference/embed (v2), docs.cohere.com/docs/cohere-embed; the
price of embed-v4.0 as gateways list it; those of the v3 models are not published any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


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


class Provider(NamedTuple):
    """How one provider is talked to.

    Attributes:
        address: Its base URL, and the path below it.
        max_texts: Texts of one request.
        request_tokens: Of a model that is not listed: the least that its own models take.
        truncates: Whether it cuts a text that is too long; False where it refuses the request.
        fields: Names of the texts' and of the dimension's field.
        purpose: Before "document" or "query" in `input_type`; None where there is no such field.
        constants: Fields that are the same in every request.
        paid_tokens: Where in an answer the tokens stand that are paid for.
        models: By name.
    """

    address: tuple[str, str]
    max_texts: int
    request_tokens: int
    truncates: bool
    fields: tuple[str, str]
    purpose: str | None
    constants: Mapping[str, Any]
    paid_tokens: tuple[str, ...]
    models: Mapping[str, ModelFacts]


_VOYAGE_LENGTHS = (256, 512, 2048)

HOSTED_PROVIDERS: Mapping[str, Provider] = {
    "voyage": Provider(
        ("https://api.voyageai.com/v1", "/embeddings"), 1_000, 120_000, True,
        ("input", "output_dimension"), "", {"truncation": True, "encoding_format": "base64"},
        ("usage", "total_tokens"),
        {
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
    ),
    "openai": Provider(
        ("https://api.openai.com/v1", "/embeddings"), 2_048, 300_000, False,
        ("input", "dimensions"), None, {"encoding_format": "base64"},
        ("usage", "total_tokens"),
        {
            "text-embedding-3-small": ModelFacts(1536, range(1, 1536), 8_192, 300_000, 0.02),
            "text-embedding-3-large": ModelFacts(3072, range(1, 3072), 8_192, 300_000, 0.13),
            "text-embedding-ada-002": ModelFacts(1536, (), 8_192, 300_000, 0.10),
        },
    ),
    "cohere": Provider(
        ("https://api.cohere.com", "/v2/embed"), 96, 128_000, True,
        ("texts", "output_dimension"), "search_",
        {"embedding_types": ["float"], "truncate": "END"},
        ("meta", "billed_units", "input_tokens"),
        {
            "embed-v4.0": ModelFacts(1536, (256, 512, 1024), 128_000, 128_000, 0.12),
            "embed-english-v3.0": ModelFacts(1024, (), 512, 128_000, None),
            "embed-multilingual-v3.0": ModelFacts(1024, (), 512, 128_000, None),
            "embed-english-light-v3.0": ModelFacts(384, (), 512, 128_000, None),
            "embed-multilingual-light-v3.0": ModelFacts(384, (), 512, 128_000, None),
        },
    ),
}  # fmt: skip
