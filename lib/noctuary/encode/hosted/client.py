"""One request to a provider: texts in, unit vectors in their order out, or why there are none.

None of the errors holds a text, a key, or what a provider wrote: its words may quote both.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.base import require_unit_rows
from noctuary.encode.hosted.model import HostedModel
from noctuary.errors import EncoderError
from noctuary.foreign_json import parse_json
from noctuary.hosted.client import JsonClient, PassingFaultError, StatusError, TooLargeError
from noctuary.settings.api_key import read_api_key, require_header_text

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Several times the largest answer (128 vectors of 3,072 numbers as text)."""
BLANK = "."
"""Sent in the place of a text without a visible character, which providers refuse."""
TEXT_OVERHEAD_TOKENS = 16
"""Control tokens and the prompt that a provider puts before a text."""

_READ_BYTES_PER_TOKEN = 8
"""More bytes than this per token is no prose: a provider that cuts would not read further."""
_SAFE_BYTES_PER_TOKEN = 3
"""Of providers that refuse what is too long: prose has 4 and more, so this loses little and is
rarely refused. What is, is cut to one byte per token: no token is shorter."""

_UNREADABLE = "it does not accept the request: check encoder.model and encoder.dimension"
_HINTS = {
    400: _UNREADABLE,
    401: "it does not know the API key: check the variable that encoder.api_key_variable names",
    403: "the API key may not do this: check its rights and encoder.model",
    404: "it does not know the address or the model: check encoder.url and encoder.model",
    413: "the request is too large for it",
    422: _UNREADABLE,
}

Purpose = Literal["document", "query"]


class ProviderDownError(EncoderError):
    """A provider gives no answer now; a later try may get one. What came before is kept."""


class ProviderRefusedError(EncoderError):
    """A provider answered that it will not do this; trying the same again is pointless."""


class RequestRefusedError(ProviderRefusedError):
    """It will not take this request; a shorter text may fare better."""


class BadVectorsError(EncoderError):
    """An answer came that is not one usable vector per text."""


class Batch(NamedTuple):
    """The vectors of one request: unit rows in the order of the texts, and the tokens paid for.

    The latter are None where the provider does not say.
    """

    vectors: NDArray[np.float32]
    tokens: int | None


class HostedClient:
    """Asks one model; safe to share between threads. The key is in no repr and no error."""

    def __init__(self, model: HostedModel) -> None:
        """Take the model; nothing is read or opened before the first request."""
        self.model = model

    def __repr__(self) -> str:
        return f"HostedClient({self.model.title})"

    def embed(self, texts: Sequence[str], purpose: Purpose, timeout_s: float) -> Batch:
        """Ask once for the vectors of texts as `sent_text` returns them; see `JsonClient.post`.

        Raises:
            PassingFaultError: No answer, or one that a further try may better.
            ProviderRefusedError: The provider will not do this.
            BadVectorsError: The answer is not one vector per text.
            EncoderError: httpx is not installed, or no key is to be had.
        """
        form, (texts_field, dimension_field) = self.model.form, self.model.form.fields
        body = {"model": self.model.name, texts_field: list(texts), **form.constants}
        if form.purpose is not None:
            body["input_type"] = form.purpose + purpose
        if self.model.asks_dimension:
            body[dimension_field] = self.model.dimension
        try:
            answer = self._opened.post(body, timeout_s)
        except TooLargeError:
            said = f"its answer is larger than {MAX_ANSWER_BYTES} bytes"
            raise ProviderRefusedError(said) from None
        except StatusError as error:
            hint = _HINTS.get(error.status, "it will not do this")
            if 300 <= error.status < 400:
                hint = "redirects are not followed: set encoder.url to the address itself"
            kind = RequestRefusedError if error.status in (400, 413, 422) else ProviderRefusedError
            raise kind(f"{self.model.title} answered HTTP {error.status}: {hint}") from None
        return read_batch(answer, self.model, len(texts))

    def close(self) -> None:
        """Close its connections; a later request opens new ones."""
        opened: JsonClient | None = self.__dict__.pop("_opened", None)
        if opened is not None:
            opened.close()

    def __del__(self) -> None:
        """Close what nobody else closes: of an encoder that a cache has dropped."""
        self.close()

    @cached_property
    def _opened(self) -> JsonClient:
        try:
            key = read_api_key(self.model.api_key_variable, "encoder.api_key_variable") or ""
            require_header_text(key)
            return JsonClient(self.model.address, key, MAX_ANSWER_BYTES)
        except ValueError as error:  # ConfigError is one
            raise EncoderError(f"{self.model.title} cannot be asked: {error}") from None
        except ImportError as error:
            raise EncoderError(
                f"httpx is not installed, by which {self.model.provider} is asked: install "
                "noctuary[hosted]"
            ) from error


def sent_text(text: str, model: HostedModel) -> str:
    """Return a text as it is sent: as UTF-8 can hold it, not blank, cut where it is too long.

    Depends on nothing but the text and the model, and so does its vector.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    if not text.strip():
        return BLANK
    per_token = _READ_BYTES_PER_TOKEN if model.form.truncates else _SAFE_BYTES_PER_TOKEN
    room = model.request_tokens - TEXT_OVERHEAD_TOKENS
    return cut_bytes(text, min(model.max_tokens * per_token, room))


def cut_bytes(text: str, limit: int) -> str:
    """Return the longest start of a text that UTF-8 holds in `limit` bytes."""
    raw = text.encode("utf-8")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def read_batch(body: bytes, model: HostedModel, count: int) -> Batch:
    """Read the answer to a request of `count` texts.

    Vectors are scaled to length 1: a shortened one (Matryoshka) is not, with every provider.

    Raises:
        PassingFaultError: It is no JSON: something on the way broke it.
        BadVectorsError: It holds not exactly one usable vector per text.
    """
    try:
        answer: Any = parse_json(body)
    except ValueError:
        raise PassingFaultError("its answer was no JSON") from None
    try:
        rows: list[tuple[Any, Any]] = (
            list(enumerate(answer["embeddings"]["float"]))
            if "embeddings" in answer
            else [(row["index"], row["embedding"]) for row in answer["data"]]
        )
    except (KeyError, TypeError, IndexError):
        raise BadVectorsError("the provider's answer holds no vectors where they belong") from None
    by_place = {place: raw for place, raw in rows if type(place) is int}
    if len(rows) != count or sorted(by_place) != list(range(count)):
        raise BadVectorsError(
            f"the provider answered {len(rows)} vectors for {count} texts, or not each text once"
        )
    vectors = [_numbers(by_place[place], place, model.dimension) for place in range(count)]
    tokens: Any = answer
    for name in model.form.paid_tokens:
        tokens = tokens.get(name) if isinstance(tokens, dict) else None
    # A gateway of one's own may tell nothing, or nonsense.
    said = isinstance(tokens, int | float) and not isinstance(tokens, bool) and 0 <= tokens < 1e15
    return Batch(_unit(np.array(vectors)), int(tokens) if said else None)


def _numbers(raw: Any, place: int, dimension: int) -> NDArray[np.float64]:
    try:
        if isinstance(raw, str):
            raw = np.frombuffer(base64.b64decode(raw, validate=True), dtype="<f4")
        vector = np.asarray(raw, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise BadVectorsError(f"the vector of text {place} is no list of numbers") from None
    if vector.shape != (dimension,):
        raise BadVectorsError(
            f"the vector of text {place} has the shape {vector.shape}; expected ({dimension},). "
            "Check encoder.model and encoder.dimension."
        )
    return vector


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    # What is not finite, zero or too large is reported below, once, and not by numpy's warnings.
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        unit = (vectors / lengths[:, None]).astype(np.float32)
        bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
    if bad.size:
        raise BadVectorsError(
            f"the vector of text {int(bad[0])} holds numbers that are not finite, or only zeros"
        )
    require_unit_rows(unit, range(len(unit)))
    return unit
