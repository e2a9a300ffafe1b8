"""The build side's face of a hosted model: batches of vectors, paid for once.

What belongs here: estimate, requests, what is tried again. What does not: which texts, and keeping
the vectors: `noctuary.vectors.embed` writes each batch to the memo as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.hosted.client import HostedClient
from noctuary.encode.hosted.cost import Spending, describe_estimate, estimate_cost
from noctuary.encode.hosted.faults import ProviderRefusedError
from noctuary.encode.hosted.retrying import Patience, ask_patiently
from noctuary.encode.hosted.shapes import SHAPES, Purpose
from noctuary.encode.hosted.texts import cut_bytes, plan_requests, sent_text, size_bytes

REQUEST_TIMEOUT_S = 60.0
"""For one whole answer. A full batch takes seconds; longer waits only delay the retry."""

_TOO_LONG = frozenset({400, 413, 422})


def _say_nothing(_: str) -> None:
    """Show no line."""


class HostedEncoder:
    """Embeds texts with a provider's model; one thread, one night.

    Attributes:
        model: What is asked.
        fingerprint: Identity of its space.
        spending: What it cost so far; stays within its budget.
    """

    def __init__(
        self,
        client: HostedClient,
        spending: Spending,
        patience: Patience,
        say: Callable[[str], None] = _say_nothing,
    ) -> None:
        """Take the connection, the budget, the patience, and who is shown estimates."""
        self.model = client.model
        self.fingerprint: EncoderFingerprint = client.model.fingerprint()
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
            EncoderError: httpx or the key is missing.
        """
        return self.iter_batches(texts, "document")

    def iter_batches(
        self, texts: Sequence[str], purpose: Purpose
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield the same for texts of another purpose; see `iter_document_batches`."""
        sent = [sent_text(text, self.model) for text in texts]
        price = self.spending.usd_per_million_tokens
        whole = estimate_cost(sent, price, self.model.max_tokens)
        self.spending.allow(whole)
        self._say(describe_estimate(self.model.title, whole, self.spending))
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
        long = [place for place, text in enumerate(texts) if size_bytes(text) > limit]
        try:
            return self._request(texts, purpose)
        except ProviderRefusedError as error:
            cuts = SHAPES[self.model.provider].truncates
            if cuts or error.status not in _TOO_LONG or not long:
                raise
        vectors = np.empty((len(texts), self.model.dimension), dtype=np.float32)
        short = [place for place in range(len(texts)) if place not in set(long)]
        if short:
            vectors[short] = self._request([texts[place] for place in short], purpose)
        for place in long:
            try:
                vectors[place] = self._request([texts[place]], purpose)[0]
            except ProviderRefusedError as error:
                if error.status not in _TOO_LONG:
                    raise
                cut = cut_bytes(texts[place], limit)
                vectors[place] = self._request([cut], purpose)[0]
        return vectors

    def _request(self, texts: list[str], purpose: Purpose) -> NDArray[np.float32]:
        price = self.spending.usd_per_million_tokens
        estimate = estimate_cost(texts, price, self.model.max_tokens)
        self.spending.require_left(estimate)
        found = ask_patiently(
            lambda: self._client.embed(texts, purpose, REQUEST_TIMEOUT_S),
            self._patience,
            self.model.title,
        )
        tokens = estimate.tokens if found.tokens is None else found.tokens
        self.spending.pay(len(texts), tokens)
        return found.vectors
