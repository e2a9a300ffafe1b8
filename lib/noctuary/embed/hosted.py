"""Encoders that a provider runs: Voyage, OpenAI and Cohere through their HTTP interfaces."""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.errors import ConfigError, EncoderError
from noctuary.core.files import hash_text, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import EncoderSettings, join_path, require_web_address
from noctuary.embed.fingerprint import (
    HOSTED_POOLING,
    EncoderFingerprint,
    Purpose,
    require_unit_rows,
)
from noctuary.work.http import REFUSED, JsonClient, RequestError, read_api_key

Floats = NDArray[np.float32]

# The table of providers. Read on 2026-11-22 at docs.voyageai.com/reference/embeddings-api and
# /docs/pricing, mongodb.com/docs/voyageai/models, docs.cohere.com/reference/embed (v2) and
# /docs/cohere-embed, developers.openai.com/api/reference/resources/embeddings; embed-v4.0's price
# as gateways list it, those of v3 are not published.


class ModelFacts(NamedTuple):
    """Published facts of one model."""

    dimension: int  # unless a request asks for another
    lengths: tuple[int, ...] | range  # that a request may ask for as well (Matryoshka prefixes)
    max_tokens: int  # of one text that it reads
    usd_per_million_tokens: float | None  # None if it has to be configured


class Provider(NamedTuple):
    """The interface of one provider."""

    address: tuple[str, str]  # base URL, and the path below it
    request_tokens: int  # of all texts of one request, the least that its models take
    truncates: bool  # a text that is too long; False if it refuses the request
    fields: tuple[str, str]  # names of the texts' and of the dimension's field
    purpose: str | None  # precedes "document" or "query" in `input_type`; None: no such field
    constants: Mapping[str, Any]  # fields that are the same in every request
    paid_tokens: tuple[str, ...]  # where an answer counts the tokens that are paid for
    models: Mapping[str, ModelFacts]


_VOYAGE = (256, 512, 2048)

HOSTED_PROVIDERS: Mapping[str, Provider] = {
    "voyage": Provider(
        ("https://api.voyageai.com/v1", "/embeddings"), 120_000, True,
        ("input", "output_dimension"), "", {"truncation": True, "encoding_format": "base64"},
        ("usage", "total_tokens"),
        {
            "voyage-4-large": ModelFacts(1024, _VOYAGE, 32_000, 0.12),
            "voyage-4": ModelFacts(1024, _VOYAGE, 32_000, 0.06),
            "voyage-4-lite": ModelFacts(1024, _VOYAGE, 32_000, 0.02),
            "voyage-3-large": ModelFacts(1024, _VOYAGE, 32_000, 0.18),
            "voyage-3.5": ModelFacts(1024, _VOYAGE, 32_000, 0.06),
            "voyage-3.5-lite": ModelFacts(1024, _VOYAGE, 32_000, 0.02),
            "voyage-code-3": ModelFacts(1024, _VOYAGE, 32_000, 0.18),
            "voyage-finance-2": ModelFacts(1024, (), 32_000, 0.12),
            "voyage-law-2": ModelFacts(1024, (), 16_000, 0.12),
        },
    ),
    "openai": Provider(
        ("https://api.openai.com/v1", "/embeddings"), 300_000, False,
        ("input", "dimensions"), None, {"encoding_format": "base64"},
        ("usage", "total_tokens"),
        {
            "text-embedding-3-small": ModelFacts(1536, range(1, 1536), 8_192, 0.02),
            "text-embedding-3-large": ModelFacts(3072, range(1, 3072), 8_192, 0.13),
            "text-embedding-ada-002": ModelFacts(1536, (), 8_192, 0.10),
        },
    ),
    "cohere": Provider(
        ("https://api.cohere.com", "/v2/embed"), 128_000, True,
        ("texts", "output_dimension"), "search_",
        {"embedding_types": ["float"], "truncate": "END"},
        ("meta", "billed_units", "input_tokens"),
        {
            "embed-v4.0": ModelFacts(1536, (256, 512, 1024), 128_000, 0.12),
            "embed-english-v3.0": ModelFacts(1024, (), 512, None),
            "embed-multilingual-v3.0": ModelFacts(1024, (), 512, None),
            "embed-english-light-v3.0": ModelFacts(384, (), 512, None),
            "embed-multilingual-light-v3.0": ModelFacts(384, (), 512, None),
        },
    ),
}  # fmt: skip

# The configured model, and the file by which recall finds the model that made its snapshot even
# after the settings changed.

HOSTED_FILE = "hosted.json"
FORMAT_VERSION = formats.HOSTED_MODEL.version
UNKNOWN_MAX_TOKENS = 8_192  # of a model that is not listed: what all but the smallest read


@dataclass(frozen=True, slots=True)
class HostedModel:
    """A model behind a provider's interface."""

    provider: str
    name: str
    dimension: int
    url: str  # base URL instead of the provider's own, or empty
    api_key_variable: str

    @property
    def title(self) -> str:
        """Provider and model, as messages name it."""
        return f"{self.provider}:{self.name}"

    @property
    def form(self) -> Provider:
        """The interface of its provider."""
        return HOSTED_PROVIDERS[self.provider]

    @property
    def facts(self) -> ModelFacts:
        """Published facts; of an unlisted model the dimension is its own, as it is never asked."""
        unlisted = ModelFacts(self.dimension, (), UNKNOWN_MAX_TOKENS, None)
        return self.form.models.get(self.name, unlisted)

    def fingerprint(self) -> EncoderFingerprint:
        """Return the identity of the vectors: of provider, name and dimension, not the address."""
        weights = hash_text("hosted", self.provider, self.name, str(self.dimension))
        limit = self.facts.max_tokens
        return EncoderFingerprint(
            self.title, weights, self.dimension, HOSTED_POOLING, True, "", "", limit
        )

    def describe(self) -> dict[str, Any]:
        """Return the content of the model's file."""
        known = self.fingerprint().to_json()
        return {"format_version": FORMAT_VERSION, "fingerprint": known, "model": asdict(self)}


def hosted_model(settings: EncoderSettings) -> HostedModel:
    """Return the configured hosted model, or ConfigError; the provider must not be local."""
    try:
        if settings.url:
            require_web_address(settings.url)
    except ValueError as error:
        raise ConfigError(f"encoder.url: {error}") from None
    facts = HOSTED_PROVIDERS[settings.provider].models.get(settings.model)
    title, dimension = f"{settings.provider}:{settings.model}", settings.dimension
    if facts is None and not dimension:
        raise ConfigError(
            f"{title} is not a model that noctuary knows; set encoder.dimension to the length of "
            "its vectors"
        )
    if facts is not None and dimension not in (0, facts.dimension, *facts.lengths):
        lengths = ", ".join(str(n) for n in sorted({facts.dimension, *facts.lengths}))
        if isinstance(facts.lengths, range):
            lengths = f"{facts.lengths.start} to {facts.dimension}"
        raise ConfigError(
            f"encoder.dimension is {dimension}; {title} gives {lengths}. Choose one of these, or 0 "
            "for its own."
        )
    length = dimension or (facts.dimension if facts else 0)
    variable = settings.api_key_variable
    return HostedModel(settings.provider, settings.model, length, settings.url, variable)


def price_of(settings: EncoderSettings) -> float:
    """Return the USD of a million tokens, configured or published; ConfigError if unknown."""
    facts = HOSTED_PROVIDERS[settings.provider].models.get(settings.model)
    price = settings.usd_per_million_tokens or (facts and facts.usd_per_million_tokens)
    if not price:
        raise ConfigError(
            f"the price of {settings.provider}:{settings.model} is not known, so nothing can be "
            "estimated before it is paid: set encoder.usd_per_million_tokens"
        )
    return price


def write_description(directory: Path, model: HostedModel) -> None:
    """Write the model's file atomically."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / HOSTED_FILE, json.dumps(model.describe(), indent=1) + "\n")


def read_description(directory: Path) -> HostedModel:
    """Read the model of a directory; EncoderError if this version did not write its file."""
    path = directory / HOSTED_FILE
    try:
        value: Any = parse_json(path.read_text(encoding="utf-8"))
        model = HostedModel(**value["model"])
        if value != model.describe():
            raise ValueError("another version")  # noqa: TRY301
        if model.url:
            require_web_address(model.url)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise EncoderError(
            f"cannot read {path} ({type(error).__name__}): another version of noctuary wrote it, "
            "or it was changed by hand. Run the nightly job again."
        ) from None
    return model


# One request: texts in, unit vectors in their order out. No error holds a text, a key, or what a
# provider wrote, which may quote both.

MAX_ANSWER_BYTES = 64 * 1024 * 1024  # several of the largest: 96 vectors of 3,072 numbers as text
BLANK = "."  # instead of a text without a visible character, which providers refuse
TEXT_OVERHEAD_TOKENS = 16  # control tokens and the prompt that a provider puts before a text
# Bytes of a text that may be read, by its tokens: no prose has more than 8 a token; most has 4, so
# that 3 are rarely refused.
_READ_BYTES_PER_TOKEN, _SAFE_BYTES_PER_TOKEN = 8, 3


class ProviderDownError(EncoderError):
    """A provider gives no answer now; a later try may get one."""


class RequestRefusedError(EncoderError):
    """A provider refuses this request; shorter texts may fare better."""


class Batch(NamedTuple):
    """The unit vectors of one request, in the order of the texts, and the tokens paid for."""

    vectors: Floats
    tokens: int | None  # None if the provider does not say


class HostedClient:
    """Asks one model; safe to share between threads. The key is in no repr and no error."""

    def __init__(
        self, model: HostedModel, retries: int = 0, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.model = model
        self._retries, self._sleep = retries, sleep

    def embed(self, texts: Sequence[str], purpose: Purpose, timeout_s: float) -> Batch:
        """Return the vectors of texts that fit one request, or an EncoderError."""
        model, form = self.model, self.model.form
        texts_field, dimension_field = form.fields
        body = {"model": model.name, texts_field: list(texts), **form.constants}
        if form.purpose is not None:
            body["input_type"] = form.purpose + purpose
        if model.dimension != model.facts.dimension:
            body[dimension_field] = model.dimension
        try:
            answer = self._opened.ask(body, timeout_s)
        except RequestError as error:
            kind = ProviderDownError if error.may_pass else EncoderError
            kind = RequestRefusedError if error.status in REFUSED else kind
            raise kind(f"{model.title} gives no vectors: {error} (encoder.*)") from None
        return read_batch(answer, model, len(texts))

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        opened: JsonClient | None = self.__dict__.pop("_opened", None)
        if opened is not None:
            opened.close()

    def __del__(self) -> None:
        """Close the connections of an encoder that a cache has dropped."""
        self.close()

    @cached_property
    def _opened(self) -> JsonClient:
        form = self.model.form
        base, path = form.address
        try:
            key = read_api_key(self.model.api_key_variable, "encoder.api_key_variable")
        except ConfigError as error:
            raise EncoderError(f"{self.model.title} cannot be asked: {error}") from None
        return JsonClient(
            join_path(self.model.url or base, path),
            key,
            MAX_ANSWER_BYTES,
            retries=self._retries,
            longest_wait_s=MAX_RETRY_AFTER_S,
            sleep=self._sleep,
        )


def sent_text(text: str, model: HostedModel) -> str:
    """Return a text as it is sent: valid UTF-8, not blank, cut if it is too long."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if not text.strip():
        return BLANK
    per_token = _READ_BYTES_PER_TOKEN if model.form.truncates else _SAFE_BYTES_PER_TOKEN
    room = model.form.request_tokens - TEXT_OVERHEAD_TOKENS
    return cut_bytes(text, min(model.facts.max_tokens * per_token, room))


def cut_bytes(text: str, limit: int) -> str:
    """Return the longest start of a text that UTF-8 holds in `limit` bytes."""
    raw = text.encode("utf-8")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def read_batch(answer: Any, model: HostedModel, count: int) -> Batch:
    """Return the vectors of an answer, scaled to length 1; EncoderError if one is unusable."""
    try:
        rows: Any = answer.get("embeddings") or answer["data"]
        if isinstance(rows, dict):
            rows = list(enumerate(rows["float"]))
        else:
            rows = sorted((row["index"], row["embedding"]) for row in rows)
        vectors = np.array([_read_vector(raw) for _, raw in rows])
        if [place for place, _ in rows] != list(range(count)):
            raise ValueError(f"{len(rows)} rows")  # noqa: TRY301
        vectors = vectors.reshape(count, model.dimension)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        raise EncoderError(
            f"{model.title} did not answer {count} vectors of {model.dimension} numbers; check "
            "encoder.model and encoder.dimension"
        ) from None
    # What is not finite, zero or too large is reported once, below, and not by numpy's warnings.
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        unit = (vectors / lengths[:, None]).astype(np.float32)
        require_unit_rows(unit, range(count))
    tokens: Any = answer
    for name in model.form.paid_tokens:
        tokens = tokens.get(name) if isinstance(tokens, dict) else None
    # A gateway may report no number, or nonsense.
    is_count = type(tokens) in (int, float) and 0 <= tokens < 1e15
    return Batch(unit, int(tokens) if is_count else None)


def _read_vector(raw: Any) -> NDArray[np.float64]:
    if isinstance(raw, str):
        raw = np.frombuffer(base64.b64decode(raw, validate=True), dtype="<f4")
    return np.asarray(raw, dtype=np.float64)


# The build side: batches of vectors, estimated before they are paid for.

REQUEST_TIMEOUT_S = 60.0  # for one whole answer: a full batch takes seconds
RETRIES = 6  # of one request; with their waits they outlast about a minute of trouble
MAX_RETRY_AFTER_S = 120.0  # that a provider may ask for: limits are per minute, so two pass
MAX_TEXTS = 96  # of one request, the least that every provider takes

# What counts as one token: five Latin letters, two digits or two letters of another alphabet, else
# one character that is no space: 1.08 times WordPiece's tokens of prose, of code and of Markdown
# alike (docs/encoders.md). Longer pieces let nights begin that end at the budget.
_PIECE = re.compile(r"[A-Za-z]{1,5}|[0-9]{1,2}|[^\W\d_A-Za-z\u2e80-\u9fff\uac00-\ud7ff]{1,2}|\S")
_CONTROL_TOKENS = 2


class BudgetError(EncoderError):
    """Embedding would cost more than a night may spend."""


def estimate_tokens(texts: Sequence[str], max_tokens: int) -> int:
    """Estimate the tokens that are paid for texts, of each at most `max_tokens`."""
    pieces = (sum(1 for _ in _PIECE.finditer(text)) for text in texts)
    return sum(min(count + _CONTROL_TOKENS, max_tokens) for count in pieces)


@dataclass
class Spending:
    """What one night spends on vectors, over all of its stages."""

    budget_usd: float
    usd_per_million_tokens: float
    tokens: int = 0  # paid for, as the provider counts them; estimated if it does not say
    estimated_tokens: int = 0
    requests: int = 0  # answered

    def usd(self, tokens: int) -> float:
        """Return the price of tokens."""
        return tokens / 1_000_000 * self.usd_per_million_tokens

    def require_left(self, texts: int, tokens: int) -> None:
        """Raise BudgetError if these texts would cost more than is left."""
        spent, more = self.usd(self.tokens), self.usd(tokens)
        if self.budget_usd <= 0 or spent + more > self.budget_usd:
            raise BudgetError(
                f"embedding {texts:,} texts takes about {tokens:,} tokens and {_dollars(more)}; "
                f"{_dollars(spent)} of the night's {_dollars(self.budget_usd)} are spent. Nothing "
                "more was sent: raise encoder.budget_usd, or choose a cheaper model."
            )

    def to_notes(self) -> dict[str, int | float]:
        """Return the metadata of the night's asset."""
        return {
            "estimated_tokens": self.estimated_tokens,
            "estimated_usd": round(self.usd(self.estimated_tokens), 6),
            "paid_tokens": self.tokens,
            "paid_usd": round(self.usd(self.tokens), 6),
            "requests": self.requests,
        }


class HostedEncoder:
    """Embeds texts with a provider's model; one thread, one night, within one budget."""

    def __init__(
        self, client: HostedClient, spending: Spending, say: Callable[[str], None]
    ) -> None:
        self.client, self.model, self.spending = client, client.model, spending
        self.fingerprint = client.model.fingerprint()
        self._say = say

    def iter_document_batches(
        self, texts: Sequence[str], purpose: Purpose = "document"
    ) -> Iterator[tuple[list[int], Floats]]:
        """Yield places and unit vectors, request by request, after the budget was checked."""
        sent = [sent_text(text, self.model) for text in texts]
        spending, tokens = self.spending, estimate_tokens(sent, self.model.facts.max_tokens)
        spending.require_left(len(sent), tokens)
        spending.estimated_tokens += tokens
        self._say(
            f"{self.model.title} is asked for {len(sent):,} vectors: about {tokens:,} tokens, "
            f"{_dollars(spending.usd(tokens))} of {_dollars(spending.budget_usd)} at "
            f"{_dollars(spending.usd_per_million_tokens)} per million tokens"
        )
        for places in plan_requests(sent, self.model.form.request_tokens):
            yield places, self._embed([sent[place] for place in places], purpose)

    def _embed(self, texts: list[str], purpose: Purpose) -> Floats:
        """Return one request's vectors; if a text is too long, of each text by itself."""
        limit = self.model.facts.max_tokens
        estimate = estimate_tokens(texts, limit)
        self.spending.require_left(len(texts), estimate)
        try:
            found = self.client.embed(texts, purpose, REQUEST_TIMEOUT_S)
        except RequestRefusedError:
            cut = [cut_bytes(text, limit) for text in texts]
            if self.model.form.truncates or cut == texts:
                raise
            if len(texts) == 1:
                return self._embed(cut, purpose)
            return np.concatenate([self._embed([text], purpose) for text in texts])
        except ProviderDownError as error:
            raise ProviderDownError(
                f"{error}, after {RETRIES + 1} tries. Earlier vectors are kept: run the night "
                "again later, and it continues from there."
            ) from None
        self.spending.tokens += estimate if found.tokens is None else found.tokens
        self.spending.requests += 1
        return found.vectors


def open_hosted_encoder(settings: EncoderSettings, say: Callable[[str], None]) -> HostedEncoder:
    """Return the configured hosted encoder with a night's budget."""
    client = HostedClient(hosted_model(settings), RETRIES)
    return HostedEncoder(client, Spending(settings.budget_usd, price_of(settings)), say)


def plan_requests(texts: Sequence[str], request_tokens: int) -> Iterator[list[int]]:
    """Yield positions of texts that share a request; a byte counts as a token: none too large."""
    members: list[int] = []
    used = 0
    for position, text in enumerate(texts):
        size = len(text.encode("utf-8")) + TEXT_OVERHEAD_TOKENS
        if members and (len(members) == MAX_TEXTS or used + size > request_tokens):
            yield members
            members, used = [], 0
        members.append(position)
        used += size
    if members:
        yield members


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.6f}"


# The read side: one query, one vector, within the time that is left.

LONGEST_WAIT_S = 10.0  # for one query, also without a deadline: words alone can answer instead
WAIT_SHARE = 0.7  # of the time that a recall has left: the rest is for ranking and the way back
REST_S = 30.0  # without requests after a provider failed or was late
CACHED_QUERIES = 2048  # of 4 to 12 KB each: prompts repeat across scopes, hooks and arms


class HostedQueryEncoder:
    """Encodes queries with a provider's model; safe to share between threads."""

    def __init__(self, model: HostedModel, client: HostedClient | None = None) -> None:
        self.model = model
        self._client = client or HostedClient(model)
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Floats] = OrderedDict()
        self._rests_until = -math.inf
        self._failure = ""

    def encode_query(self, text: str, within_ms: float = math.inf) -> Floats:
        """Return the unit vector of a query, read-only; ProviderDownError without it in time.

        An answer that comes too late is kept for the next time.
        """
        with self._lock:
            if text in self._known:
                self._known.move_to_end(text)
                return self._known[text]
        left_s = self._rests_until - time.monotonic()
        if left_s > 0:
            raise ProviderDownError(f"{self._failure}; it is asked again in {left_s:.0f} s")
        wait_s = min(within_ms / 1000 * WAIT_SHARE, LONGEST_WAIT_S)
        if not wait_s > 0:
            raise ProviderDownError(f"no time is left to ask {self.model.title}")
        asked: Future[Floats] = Future()
        # A thread, because looking up a name knows no time limit; a daemon, because the process
        # does not wait for a late answer.
        threading.Thread(
            target=self._ask, args=(text, asked), name="noctuary-query", daemon=True
        ).start()
        try:
            return asked.result(wait_s)
        except TimeoutError:
            reason = f"{self.model.title} did not answer within {wait_s * 1000:.0f} ms"
            raise self._rest(ProviderDownError(reason)) from None

    def remember(self, text: str, vector: Floats) -> Floats:
        """Keep the vector of a query, and return it read-only; the oldest ones go."""
        vector.flags.writeable = False
        with self._lock:
            self._known[text] = vector
            self._known.move_to_end(text)
            while len(self._known) > CACHED_QUERIES:
                self._known.popitem(last=False)
        return vector

    def _ask(self, text: str, asked: Future[Floats]) -> None:
        try:
            batch = self._client.embed([sent_text(text, self.model)], "query", LONGEST_WAIT_S)
            vector = self.remember(text, batch.vectors[0].copy())
            self._rests_until = -math.inf
            asked.set_result(vector)
        except EncoderError as error:
            asked.set_exception(self._rest(error))
        # A thread's exception would be printed, and the waiting recall would time out.
        except Exception as error:
            failure = EncoderError(f"{self.model.title}: {type(error).__name__}")
            asked.set_exception(self._rest(failure))

    def _rest(self, error: EncoderError) -> EncoderError:
        """Ask no more for a while, and return the reason."""
        self._failure, self._rests_until = str(error), time.monotonic() + REST_S
        return error
