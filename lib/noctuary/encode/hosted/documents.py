"""The build side's face of a hosted model: batches of vectors, estimated first and paid for once.

`noctuary.vectors.embed` writes each batch to the memo as it arrives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.hosted.client import (
    TEXT_OVERHEAD_TOKENS,
    HostedClient,
    ProviderDownError,
    Purpose,
    RequestRefusedError,
    cut_bytes,
    sent_text,
)
from noctuary.encode.hosted.model import HostedModel, hosted_model, price_of
from noctuary.errors import EncoderError
from noctuary.hosted.client import NOT_INSTALLED
from noctuary.hosted.retrying import GaveUpError, Patience
from noctuary.settings.sections import EncoderSettings

REQUEST_TIMEOUT_S = 60.0
"""For one whole answer. A full batch takes seconds; longer waits only delay the retry."""
RETRIES = 6
"""Further tries of one request. With their waits they outlast about a minute of trouble."""
MAX_RETRY_AFTER_S = 120.0
"""Longest wait that a provider may ask for: limits are per minute, so two of them pass."""
NIGHT_PATIENCE_S = 1_200.0
"""Seconds that a whole night may spend waiting between tries. More outlasts longer outages and
keeps the store locked for as long."""
MAX_TEXTS = 128
"""Texts of one request, where the provider takes as many. More saves round trips; fewer loses less
to a kill, because a request is paid for and kept as a whole."""

_PIECE = re.compile(r"[A-Za-z]{1,5}|[0-9]{1,2}|[^\W\d_A-Za-z\u2e80-\u9fff\uac00-\ud7ff]{1,2}|\S")
"""What counts as one token: five Latin letters, two digits or two letters of another alphabet, else
one character that is no space: 1.08 times WordPiece's tokens of prose, of code and of Markdown
alike (docs/encoders.md). Longer pieces let nights begin that end at the budget."""
_CONTROL_TOKENS = 2


class BudgetError(EncoderError):
    """Embedding would cost more than a night may spend."""


def estimate_tokens(texts: Sequence[str], max_tokens: int) -> int:
    """Return about how many tokens are paid for texts as they are sent; of each at most so many."""
    pieces = (sum(1 for _ in _PIECE.finditer(text)) for text in texts)
    return sum(min(count + _CONTROL_TOKENS, max_tokens) for count in pieces)


@dataclass
class Spending:
    """What one night spends on vectors, over all of its stages.

    Attributes:
        budget_usd: What it may cost, at least 0.
        usd_per_million_tokens: The price, at least 0.
        tokens: Paid for, as the provider counts them; estimated where it does not say.
        estimated_tokens: Of all that was let through.
        requests: Answered.
    """

    budget_usd: float
    usd_per_million_tokens: float
    tokens: int = 0
    estimated_tokens: int = 0
    requests: int = 0

    def usd(self, tokens: int) -> float:
        """Return what so many tokens cost."""
        return tokens / 1_000_000 * self.usd_per_million_tokens

    def require_left(self, texts: int, tokens: int) -> None:
        """Refuse what would cost more than is left of the budget.

        Raises:
            BudgetError: With these texts of about so many tokens, it would.
        """
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
        """Take the connection, the budget, the patience, and who is shown estimates."""
        self.model = client.model
        self.fingerprint = client.model.fingerprint()
        self.spending = spending
        self._client = client
        self._patience = patience
        self._say = say

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places in `texts` and their unit vectors, shape (len(places), dimension).

        The estimate is shown and held against the budget before the first request.

        Raises:
            BudgetError: It would cost more than the budget, or turned out to.
            ProviderDownError: No answer came in time; what was yielded before stays good.
            ProviderRefusedError, BadVectorsError: The provider does not do what it is asked.
            EncoderError: httpx, tenacity or the key is missing.
        """
        return self.iter_batches(texts, "document")

    def iter_batches(
        self, texts: Sequence[str], purpose: Purpose
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield the same for texts of another purpose; see `iter_document_batches`."""
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

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _embed(self, texts: list[str], purpose: Purpose) -> NDArray[np.float32]:
        """Return the vectors of one request's texts; where one is too long, of each by itself.

        A text that is refused alone is cut to as many bytes as the model reads tokens, so a text's
        vector never depends on its neighbours.
        """
        limit = self.model.max_tokens
        try:
            return self._request(texts, purpose)
        except RequestRefusedError:
            if self.model.form.truncates or max(map(_size_bytes, texts)) <= limit:
                raise
        if len(texts) == 1:
            return self._request([cut_bytes(texts[0], limit)], purpose)
        return np.concatenate([self._embed([text], purpose) for text in texts])

    def _request(self, texts: list[str], purpose: Purpose) -> NDArray[np.float32]:
        estimate = estimate_tokens(texts, self.model.max_tokens)
        self.spending.require_left(len(texts), estimate)
        try:
            found = self._patience.ask(
                lambda: self._client.embed(texts, purpose, REQUEST_TIMEOUT_S)
            )
        except ImportError:
            raise EncoderError(f"{self.model.title} cannot be asked: {NOT_INSTALLED}") from None
        except GaveUpError as error:
            raise ProviderDownError(
                f"{self.model.title} gives no vectors: {error}. What came before is kept: run the "
                "night again later and it goes on from there."
            ) from None
        self.spending.tokens += estimate if found.tokens is None else found.tokens
        self.spending.requests += 1
        return found.vectors


def open_hosted_encoder(settings: EncoderSettings, say: Callable[[str], None]) -> HostedEncoder:
    """Return the configured hosted encoder with a night's budget and patience.

    Raises:
        ConfigError: As for `hosted_model`, or the price is not known.
    """
    client = HostedClient(hosted_model(settings))
    patience = Patience(RETRIES, MAX_RETRY_AFTER_S, spread=0.5, left_s=NIGHT_PATIENCE_S)
    return HostedEncoder(client, Spending(settings.budget_usd, price_of(settings)), patience, say)


def plan_requests(texts: Sequence[str], model: HostedModel) -> Iterator[list[int]]:
    """Yield positions of the texts that share a request, each once and in order.

    A byte is taken for a token, which no tokenizer exceeds: a request is never too large.
    """
    most = min(MAX_TEXTS, model.form.max_texts)
    members: list[int] = []
    used = 0
    for position, text in enumerate(texts):
        size = _size_bytes(text) + TEXT_OVERHEAD_TOKENS
        if members and (len(members) == most or used + size > model.request_tokens):
            yield members
            members, used = [], 0
        members.append(position)
        used += size
    if members:
        yield members


def _size_bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def _dollars(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.6f}"
