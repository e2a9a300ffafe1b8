"""The form of requests and answers of each provider.

What belongs here: addresses, fields, limits on the number of texts. What does not: HTTP
(client.py), whether numbers are a vector (answers.py). Sources, read on 2026-11-22:

- Voyage, docs.voyageai.com/reference/embeddings-api: POST /embeddings; `input`, `model`,
  `input_type` document or query, `truncation`, `output_dimension`, `encoding_format` base64;
  answers `data[].{index, embedding}` and `usage.total_tokens`; up to 1,000 texts.
- OpenAI, developers.openai.com/api/reference/resources/embeddings: POST /embeddings; `input`,
  `model`, `dimensions`, `encoding_format` base64; the same answer; up to 2,048 texts; a text that
  is too long is refused and not cut.
- Cohere, docs.cohere.com/reference/embed (v2): POST /v2/embed; `texts`, `model`, `input_type`
  search_document or search_query, `embedding_types` float, `truncate` END, `output_dimension`;
  answers `embeddings.float` in the order of the texts and `meta.billed_units.input_tokens`; up to
  96 texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from noctuary.encode.hosted.model import HostedModel
from noctuary.encode.hosted.models import COHERE, OPENAI, VOYAGE
from noctuary.settings.web_address import join_path

Purpose = Literal["document", "query"]

Row = tuple[int, Any]
"""Number of a text in its request, and its vector as it came: numbers, or base64 of float32."""


class Shape(NamedTuple):
    """How one provider is talked to.

    Attributes:
        url: Its base URL.
        path: Below it.
        max_texts: Texts of one request.
        truncates: Whether it cuts a text that is too long; False where it refuses the request.
        body: From model, texts and purpose to the request.
        rows: From the answer to its vectors; raises KeyError, TypeError or IndexError where it is
            of another form.
        tokens: From the answer to the tokens that are paid for; raises likewise.
    """

    url: str
    path: str
    max_texts: int
    truncates: bool
    body: Callable[[HostedModel, Sequence[str], Purpose], dict[str, Any]]
    rows: Callable[[Any], list[Row]]
    tokens: Callable[[Any], Any]


def _voyage_body(model: HostedModel, texts: Sequence[str], purpose: Purpose) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model.name,
        "input": list(texts),
        "input_type": purpose,
        "truncation": True,
        "encoding_format": "base64",
    }
    if model.asks_dimension:
        body["output_dimension"] = model.dimension
    return body


def _openai_body(model: HostedModel, texts: Sequence[str], purpose: Purpose) -> dict[str, Any]:
    del purpose  # its models know no difference
    body: dict[str, Any] = {
        "model": model.name,
        "input": list(texts),
        "encoding_format": "base64",
    }
    if model.asks_dimension:
        body["dimensions"] = model.dimension
    return body


def _cohere_body(model: HostedModel, texts: Sequence[str], purpose: Purpose) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model.name,
        "texts": list(texts),
        "input_type": f"search_{purpose}",
        "embedding_types": ["float"],
        "truncate": "END",
    }
    if model.asks_dimension:
        body["output_dimension"] = model.dimension
    return body


def _indexed_rows(answer: Any) -> list[Row]:
    return [(row["index"], row["embedding"]) for row in answer["data"]]


def _ordered_rows(answer: Any) -> list[Row]:
    return list(enumerate(answer["embeddings"]["float"]))


def _total_tokens(answer: Any) -> Any:
    return answer["usage"]["total_tokens"]


def _billed_tokens(answer: Any) -> Any:
    return answer["meta"]["billed_units"]["input_tokens"]


SHAPES: Mapping[str, Shape] = {
    VOYAGE: Shape(
        "https://api.voyageai.com/v1", "/embeddings", 1_000, True,
        _voyage_body, _indexed_rows, _total_tokens,
    ),
    OPENAI: Shape(
        "https://api.openai.com/v1", "/embeddings", 2_048, False,
        _openai_body, _indexed_rows, _total_tokens,
    ),
    COHERE: Shape(
        "https://api.cohere.com", "/v2/embed", 96, True,
        _cohere_body, _ordered_rows, _billed_tokens,
    ),
}  # fmt: skip


def address_of(model: HostedModel) -> str:
    """Return where a model's requests are posted to."""
    shape = SHAPES[model.provider]
    return join_path(model.url or shape.url, shape.path)
