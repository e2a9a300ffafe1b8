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
from typing import Any, Literal, NamedTuple, get_type_hints

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
    require_unit_rows,
)
from noctuary.work.http import (
    NOT_INSTALLED,
    GaveUpError,
    JsonClient,
    PassingFaultError,
    Patience,
    StatusError,
    TooLargeError,
    read_api_key,
    require_header_text,
)

Floats = NDArray[np.float32]
Purpose = Literal["document", "query"]

# What is known of the providers: addresses, fields, models, limits, prices. Read on 2026-11-22 at
# docs.voyageai.com/reference/embeddings-api and /docs/pricing, mongodb.com/docs/voyageai/models,
# developers.openai.com/api/reference/resources/embeddings, docs.cohere.com/reference/embed (v2) and
# /docs/cohere-embed; embed-v4.0's price as gateways list it, those of v3 are not published.


class ModelFacts(NamedTuple):
    """Published facts of one model."""

    dimension: int  # where none is asked for
    lengths: tuple[int, ...] | range  # that may be asked for as well (Matryoshka prefixes)
    max_tokens: int  # of one text that it reads
    request_tokens: int  # of all texts of one request
    usd_per_million_tokens: float | None  # None where it has to be configured


class Provider(NamedTuple):
    """How one provider is talked to."""

    address: tuple[str, str]  # its base URL, and the path below it
    max_texts: int  # of one request
    request_tokens: int  # of a model that is not listed: the least that its own models take
    truncates: bool  # a text that is too long; False where it refuses the request
    fields: tuple[str, str]  # names of the texts' and of the dimension's field
    purpose: str | None  # before "document" or "query" in `input_type`; None: no such field
    constants: Mapping[str, Any]  # fields that are the same in every request
    paid_tokens: tuple[str, ...]  # where in an answer the tokens stand that are paid for
    models: Mapping[str, ModelFacts]


_VOYAGE = (256, 512, 2048)

HOSTED_PROVIDERS: Mapping[str, Provider] = {
    "voyage": Provider(
        ("https://api.voyageai.com/v1", "/embeddings"), 1_000, 120_000, True,
        ("input", "output_dimension"), "", {"truncation": True, "encoding_format": "base64"},
        ("usage", "total_tokens"),
        {
            "voyage-4-large": ModelFacts(1024, _VOYAGE, 32_000, 120_000, 0.12),
            "voyage-4": ModelFacts(1024, _VOYAGE, 32_000, 320_000, 0.06),
            "voyage-4-lite": ModelFacts(1024, _VOYAGE, 32_000, 1_000_000, 0.02),
            "voyage-3-large": ModelFacts(1024, _VOYAGE, 32_000, 120_000, 0.18),
            "voyage-3.5": ModelFacts(1024, _VOYAGE, 32_000, 320_000, 0.06),
            "voyage-3.5-lite": ModelFacts(1024, _VOYAGE, 32_000, 1_000_000, 0.02),
            "voyage-code-3": ModelFacts(1024, _VOYAGE, 32_000, 120_000, 0.18),
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

# One hosted model as it is configured, and the file by which recall finds the model that made its
# snapshot, whatever the settings say by then: never a key.

HOSTED_FILE = "hosted.json"
FORMAT_VERSION = formats.HOSTED_MODEL.version
UNKNOWN_MAX_TOKENS = 8_192  # of a model that is not listed: what all but the smallest read


@dataclass(frozen=True, slots=True)
class HostedModel:
    """A model behind a provider's interface."""

    provider: str
    name: str
    dimension: int
    asks_dimension: bool  # whether a request names that length, which is not the model's own
    max_tokens: int  # of one text that it reads
    request_tokens: int
    url: str  # base URL in the place of the provider's own; empty: the provider's
    api_key_variable: str

    @property
    def title(self) -> str:
        """Provider and model, as messages name it."""
        return f"{self.provider}:{self.name}"

    @property
    def form(self) -> Provider:
        """How its provider is talked to."""
        return HOSTED_PROVIDERS[self.provider]

    @property
    def address(self) -> str:
        """Where its requests are posted to."""
        base, path = self.form.address
        return join_path(self.url or base, path)

    def fingerprint(self) -> EncoderFingerprint:
        """Return the identity of the space, as far as it can be known from outside.

        No weights are seen, so their hash is of provider, name and dimension; a gateway may move.
        """
        weights = hash_text("hosted", self.provider, self.name, str(self.dimension))
        return EncoderFingerprint(
            self.title, weights, self.dimension, HOSTED_POOLING, True, "", "", self.max_tokens
        )

    def describe(self) -> dict[str, Any]:
        """Return what the model's file says."""
        known = self.fingerprint().to_json()
        return {"format_version": FORMAT_VERSION, "fingerprint": known, "model": asdict(self)}


def hosted_model(settings: EncoderSettings) -> HostedModel:
    """Return the configured hosted model; for settings whose provider is not the local one."""
    try:
        if settings.url:
            require_web_address(settings.url)
    except ValueError as error:
        raise ConfigError(f"encoder.url: {error}") from None
    form = HOSTED_PROVIDERS[settings.provider]
    facts = form.models.get(settings.model)
    title, dimension = f"{settings.provider}:{settings.model}", settings.dimension
    if facts is None:
        if not dimension:
            raise ConfigError(
                f"{title} is not a model that noctuary knows; set encoder.dimension to the length "
                "of its vectors"
            )
        # Many gateways refuse a length that is asked for: of an unlisted model none is.
        facts = ModelFacts(dimension, (), UNKNOWN_MAX_TOKENS, form.request_tokens, None)
    if dimension not in (0, facts.dimension, *facts.lengths):
        lengths = ", ".join(str(n) for n in sorted({facts.dimension, *facts.lengths}))
        if isinstance(facts.lengths, range):
            lengths = f"{facts.lengths.start} to {facts.dimension}"
        raise ConfigError(
            f"encoder.dimension is {dimension}; {title} gives {lengths}. Choose one of these, or 0 "
            "for its own."
        )
    return HostedModel(
        provider=settings.provider,
        name=settings.model,
        dimension=dimension or facts.dimension,
        asks_dimension=dimension not in (0, facts.dimension),
        max_tokens=facts.max_tokens,
        request_tokens=facts.request_tokens,
        url=settings.url,
        api_key_variable=settings.api_key_variable,
    )


def price_of(settings: EncoderSettings) -> float:
    """Return what a million tokens cost, in USD, as configured or published; else ConfigError."""
    if settings.usd_per_million_tokens > 0:
        return settings.usd_per_million_tokens
    facts = HOSTED_PROVIDERS[settings.provider].models.get(settings.model)
    if facts is None or facts.usd_per_million_tokens is None:
        raise ConfigError(
            f"the price of {settings.provider}:{settings.model} is not known, so nothing can be "
            "estimated before it is paid: set encoder.usd_per_million_tokens"
        )
    return facts.usd_per_million_tokens


def write_description(directory: Path, model: HostedModel) -> None:
    """Replace the model's file atomically; the directory is made."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(model.describe(), indent=1, sort_keys=True)
    write_text(directory / HOSTED_FILE, f"{text}\n")


def read_description(directory: Path) -> HostedModel:
    """Return the model of a directory; EncoderError if this version wrote no such file."""
    path = directory / HOSTED_FILE
    try:
        told: Any = parse_json(path.read_text(encoding="utf-8"))
        for name, expected in get_type_hints(HostedModel).items():
            if type(told["model"][name]) is not expected:
                raise TypeError(name)  # noqa: TRY301
        model = HostedModel(**told["model"])
        if model.provider not in HOSTED_PROVIDERS or model.dimension < 1:
            raise ValueError(model.provider)  # noqa: TRY301
        if model.url:
            require_web_address(model.url)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"cannot read {path} ({type(error).__name__}); expected what a night writes of a "
            "hosted model. Run the nightly job again."
        ) from None
    if told != model.describe():
        raise EncoderError(
            f"{path} is of another version of noctuary, or was changed by hand. Run the nightly "
            "job again."
        )
    return model


# One request to a provider: texts in, unit vectors in their order out, or why there are none. No
# error holds a text, a key, or what a provider wrote: its words may quote both.

MAX_ANSWER_BYTES = 64 * 1024 * 1024  # several of the largest: 128 vectors of 3,072 numbers as text
BLANK = "."  # in the place of a text without a visible character, which providers refuse
TEXT_OVERHEAD_TOKENS = 16  # control tokens and the prompt that a provider puts before a text
# A provider that cuts would not read further than so many bytes a token: more is no prose. Of those
# that refuse longer texts: prose has 4 and more; what is refused is cut to one.
_READ_BYTES_PER_TOKEN, _SAFE_BYTES_PER_TOKEN = 8, 3

_UNREADABLE = "it does not accept the request: check encoder.model and encoder.dimension"
_HINTS = {
    400: _UNREADABLE,
    401: "it does not know the API key: check the variable that encoder.api_key_variable names",
    403: "the API key may not do this: check its rights and encoder.model",
    404: "it does not know the address or the model: check encoder.url and encoder.model",
    413: "the request is too large for it",
    422: _UNREADABLE,
}


class ProviderDownError(EncoderError):
    """A provider gives no answer now; a later try may get one. Earlier vectors are kept."""


class ProviderRefusedError(EncoderError):
    """A provider answered that it will not do this; trying the same again is pointless."""


class RequestRefusedError(ProviderRefusedError):
    """It will not take this request; a shorter text may fare better."""


class BadVectorsError(EncoderError):
    """An answer came that is not one usable vector per text."""


class Batch(NamedTuple):
    """The unit vectors of one request in the order of the texts, and the tokens paid for."""

    vectors: Floats
    tokens: int | None  # None where the provider does not say


class HostedClient:
    """Asks one model; safe to share between threads. The key is in no repr and no error."""

    def __init__(self, model: HostedModel) -> None:
        self.model = model

    def __repr__(self) -> str:
        return f"HostedClient({self.model.title})"

    def embed(self, texts: Sequence[str], purpose: Purpose, timeout_s: float) -> Batch:
        """Ask once; PassingFaultError where a further try may fare better, else an EncoderError."""
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
                f"{self.model.provider} needs httpx, which is missing: install noctuary[hosted]"
            ) from error


def sent_text(text: str, model: HostedModel) -> str:
    """Return a text as it is sent: as UTF-8 can hold it, not blank, cut where it is too long."""
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
    """Read the answer to a request of `count` texts; vectors are scaled to length 1.

    PassingFaultError if it is no JSON (something on the way broke it), BadVectorsError if it holds
    not exactly one usable vector per text.
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
    vectors = np.array([_numbers(by_place[place], place, model) for place in range(count)])
    # What is not finite, zero or too large is reported below, once, and not by numpy's warnings.
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        unit = (vectors / lengths[:, None]).astype(np.float32)
        bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
    if bad.size:
        raise BadVectorsError(
            f"the vector of text {int(bad[0])} holds numbers that are not finite, or only zeros"
        )
    require_unit_rows(unit, range(count))
    tokens: Any = answer
    for name in model.form.paid_tokens:
        tokens = tokens.get(name) if isinstance(tokens, dict) else None
    # A gateway of one's own may tell nothing, or nonsense.
    is_told = type(tokens) in (int, float) and 0 <= tokens < 1e15
    return Batch(unit, int(tokens) if is_told else None)


def _numbers(raw: Any, place: int, model: HostedModel) -> NDArray[np.float64]:
    try:
        if isinstance(raw, str):
            raw = np.frombuffer(base64.b64decode(raw, validate=True), dtype="<f4")
        vector = np.asarray(raw, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise BadVectorsError(f"the vector of text {place} is not a list of numbers") from None
    if vector.shape != (model.dimension,):
        raise BadVectorsError(
            f"the vector of text {place} has the shape {vector.shape}; expected "
            f"({model.dimension},). Check encoder.model and encoder.dimension."
        )
    return vector


# The build side's face of a hosted model: batches of vectors, estimated first and paid for once.

REQUEST_TIMEOUT_S = 60.0  # for one whole answer: a full batch takes seconds
RETRIES = 6  # of one request; with their waits they outlast about a minute of trouble
MAX_RETRY_AFTER_S = 120.0  # that a provider may ask for: limits are per minute, so two pass
NIGHT_PATIENCE_S = 1_200.0  # that a whole night may wait between tries; the store is locked
MAX_TEXTS = 128  # of one request, where the provider takes as many: it is paid for and kept as one

# What counts as one token: five Latin letters, two digits or two letters of another alphabet, else
# one character that is no space: 1.08 times WordPiece's tokens of prose, of code and of Markdown
# alike (docs/encoders.md). Longer pieces let nights begin that end at the budget.
_PIECE = re.compile(r"[A-Za-z]{1,5}|[0-9]{1,2}|[^\W\d_A-Za-z\u2e80-\u9fff\uac00-\ud7ff]{1,2}|\S")
_CONTROL_TOKENS = 2


class BudgetError(EncoderError):
    """Embedding would cost more than a night may spend."""


def estimate_tokens(texts: Sequence[str], max_tokens: int) -> int:
    """Return about how many tokens are paid for texts as they are sent; of each at most so many."""
    pieces = (sum(1 for _ in _PIECE.finditer(text)) for text in texts)
    return sum(min(count + _CONTROL_TOKENS, max_tokens) for count in pieces)


@dataclass
class Spending:
    """What one night spends on vectors, over all of its stages."""

    budget_usd: float
    usd_per_million_tokens: float
    tokens: int = 0  # paid for, as the provider counts them; estimated where it does not say
    estimated_tokens: int = 0  # of all that was let through
    requests: int = 0  # answered

    def usd(self, tokens: int) -> float:
        """Return what so many tokens cost."""
        return tokens / 1_000_000 * self.usd_per_million_tokens

    def require_left(self, texts: int, tokens: int) -> None:
        """Raise BudgetError where these texts would cost more than is left."""
        spent, more = self.usd(self.tokens), self.usd(tokens)
        if self.budget_usd <= 0 or spent + more > self.budget_usd:
            raise BudgetError(
                f"embedding {texts:,} texts takes about {tokens:,} tokens and {_dollars(more)}; "
                f"{_dollars(spent)} of the night's {_dollars(self.budget_usd)} are spent. Nothing "
                "more was sent: raise encoder.budget_usd, or choose a cheaper model."
            )

    def to_notes(self) -> dict[str, int | float]:
        """Return what the night's asset says of it."""
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
        self,
        client: HostedClient,
        spending: Spending,
        patience: Patience,
        say: Callable[[str], None],
    ) -> None:
        self.client, self.model, self.spending = client, client.model, spending
        self.fingerprint = client.model.fingerprint()
        self._patience, self._say = patience, say

    def iter_document_batches(
        self, texts: Sequence[str], purpose: Purpose = "document"
    ) -> Iterator[tuple[list[int], Floats]]:
        """Yield places and unit vectors; what it will cost is said, and held against the budget."""
        sent = [sent_text(text, self.model) for text in texts]
        spending, tokens = self.spending, estimate_tokens(sent, self.model.max_tokens)
        spending.require_left(len(sent), tokens)
        spending.estimated_tokens += tokens
        self._say(
            f"{self.model.title} is asked for {len(sent):,} vectors: about {tokens:,} tokens, "
            f"{_dollars(spending.usd(tokens))} of {_dollars(spending.budget_usd)} at "
            f"{_dollars(spending.usd_per_million_tokens)} per million tokens"
        )
        for places in plan_requests(sent, self.model):
            yield places, self._embed([sent[place] for place in places], purpose)

    def _embed(self, texts: list[str], purpose: Purpose) -> Floats:
        """Return one request's vectors; where a text is too long, each by itself."""
        limit = self.model.max_tokens
        estimate = estimate_tokens(texts, limit)
        self.spending.require_left(len(texts), estimate)
        try:
            found = self._patience.ask(lambda: self.client.embed(texts, purpose, REQUEST_TIMEOUT_S))
        except RequestRefusedError:
            cut = [cut_bytes(text, limit) for text in texts]
            if self.model.form.truncates or cut == texts:
                raise
            if len(texts) == 1:
                return self._embed(cut, purpose)
            return np.concatenate([self._embed([text], purpose) for text in texts])
        except ImportError:
            raise EncoderError(f"{self.model.title} cannot be asked: {NOT_INSTALLED}") from None
        except GaveUpError as error:
            raise ProviderDownError(
                f"{self.model.title} gives no vectors: {error}. Earlier vectors are kept: run the "
                "night again later, and it continues from there."
            ) from None
        self.spending.tokens += estimate if found.tokens is None else found.tokens
        self.spending.requests += 1
        return found.vectors


def open_hosted_encoder(settings: EncoderSettings, say: Callable[[str], None]) -> HostedEncoder:
    """Return the configured hosted encoder with a night's budget and patience."""
    client = HostedClient(hosted_model(settings))
    patience = Patience(RETRIES, MAX_RETRY_AFTER_S, spread=0.5, left_s=NIGHT_PATIENCE_S)
    return HostedEncoder(client, Spending(settings.budget_usd, price_of(settings)), patience, say)


def plan_requests(texts: Sequence[str], model: HostedModel) -> Iterator[list[int]]:
    """Yield positions of texts that share a request; a byte counts as a token: none too large."""
    most = min(MAX_TEXTS, model.form.max_texts)
    members: list[int] = []
    used = 0
    for position, text in enumerate(texts):
        size = len(text.encode("utf-8")) + TEXT_OVERHEAD_TOKENS
        if members and (len(members) == most or used + size > model.request_tokens):
            yield members
            members, used = [], 0
        members.append(position)
        used += size
    if members:
        yield members


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.6f}"


# The read side's face of a hosted model: one query, one vector, within the time that is left.

LONGEST_WAIT_S = 10.0  # for one query, without a deadline too: words alone can answer instead
WAIT_SHARE = 0.7  # of the time that a recall has left: the rest is for ranking and the way back
REST_S = 30.0  # that a provider is left alone after it failed or was late: without vectors
CACHED_QUERIES = 2048  # of 4 to 12 KB each: prompts repeat across scopes, hooks and arms


class HostedQueryEncoder:
    """Encodes queries with a provider's model; safe to share between threads."""

    def __init__(self, model: HostedModel, client: HostedClient | None = None) -> None:
        self.model = model
        self._client = HostedClient(model) if client is None else client
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Floats] = OrderedDict()
        self._rests_until = -math.inf
        self._failure = ""

    def encode_query(self, text: str, within_ms: float = math.inf) -> Floats:
        """Return the unit vector of a query, read-only; ProviderDownError without it in time.

        An answer that comes too late is kept for the next time.
        """
        if (known := self.known_vector(text)) is not None:
            return known
        left_s = self._rests_until - time.monotonic()
        if left_s > 0:
            raise ProviderDownError(f"{self._failure}; it is asked again in {left_s:.0f} s")
        wait_s = min(within_ms / 1000 * WAIT_SHARE, LONGEST_WAIT_S)
        if not wait_s > 0:
            raise ProviderDownError(f"no time is left to ask {self.model.title}")
        asked: Future[Floats] = Future()
        # A thread, because looking up a name knows no time limit; a daemon, because nobody waits
        # for an answer that is late.
        threading.Thread(
            target=self._ask, args=(text, asked), name="noctuary-query", daemon=True
        ).start()
        try:
            return asked.result(wait_s)
        except TimeoutError:
            reason = f"{self.model.title} did not answer within {wait_s * 1000:.0f} ms"
            raise self._rest(ProviderDownError(reason)) from None

    def known_vector(self, text: str) -> Floats | None:
        """Return the vector of a query that was asked before; None without asking anybody."""
        with self._lock:
            if text in self._known:
                self._known.move_to_end(text)
            return self._known.get(text)

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
        except PassingFaultError as error:
            said = f"{self.model.title} gives no vector: {error}"
            asked.set_exception(self._rest(ProviderDownError(said)))
        except EncoderError as error:
            asked.set_exception(self._rest(error))
        # A thread's exception would be printed, and the waiting recall would time out.
        except Exception as error:
            said = f"{self.model.title}: {type(error).__name__}"
            asked.set_exception(self._rest(EncoderError(said)))

    def _rest(self, error: EncoderError) -> EncoderError:
        """Leave the provider alone for a while, and return why."""
        self._failure, self._rests_until = str(error), time.monotonic() + REST_S
        return error
