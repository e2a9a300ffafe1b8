"""The read side's face of a hosted model: one query, one vector, within the time that is left."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.hosted.client import HostedClient, ProviderDownError, sent_text
from noctuary.encode.hosted.model import HostedModel
from noctuary.errors import EncoderError
from noctuary.hosted.client import PassingFaultError

LONGEST_WAIT_S = 10.0
"""For one query, without a deadline too. A provider that is well answers in a fraction of a second;
more makes a person wait for an answer that words alone can give."""
WAIT_SHARE = 0.7
"""Of the time that a recall has left: the rest is for ranking and the way back. More waits for
slower providers; less keeps what words alone find safely inside of the deadline."""
REST_S = 30.0
"""How long a provider is left alone after it failed or was late. Longer leaves out more vectors
once it is back; shorter makes more recalls wait for nothing."""
CACHED_QUERIES = 2048
"""Vectors kept; 4 to 12 KB each. Prompts repeat across scopes, hooks and evaluation arms."""

Vector = NDArray[np.float32]


class HostedQueryEncoder:
    """Encodes queries with a provider's model; safe to share between threads."""

    def __init__(self, model: HostedModel, client: HostedClient | None = None) -> None:
        """Take the model; nothing is read or opened before the first query."""
        self.model = model
        self._client = HostedClient(model) if client is None else client
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._rests_until = -math.inf
        self._failure = ""

    def encode_query(self, text: str, within_ms: float = math.inf) -> Vector:
        """Return the unit vector of a query, read-only; shape (dimension,).

        An answer that comes too late is kept for the next time the same is asked.

        Args:
            text: Any text; it is sent to the provider.
            within_ms: Time that is left for the whole answer; a part of it is waited, never more
                than LONGEST_WAIT_S.

        Raises:
            ProviderDownError: No answer in time, or the provider has just failed.
            EncoderError: httpx or the key is missing, or the provider refused or answered nonsense.
        """
        known = self.known_vector(text)
        if known is not None:
            return known
        left_s = self._rests_until - time.monotonic()
        if left_s > 0:
            raise ProviderDownError(f"{self._failure}; it is asked again in {left_s:.0f} s")
        wait_s = min(within_ms / 1000 * WAIT_SHARE, LONGEST_WAIT_S)
        if not wait_s > 0:
            raise ProviderDownError(f"no time is left to ask {self.model.title}")
        asked: Future[Vector] = Future()
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

    def known_vector(self, text: str) -> Vector | None:
        """Return the vector of a query that was asked before; None without asking anybody."""
        with self._lock:
            if text in self._known:
                self._known.move_to_end(text)
            return self._known.get(text)

    def remember(self, text: str, vector: Vector) -> Vector:
        """Keep the vector of a query, and return it read-only; the oldest ones go."""
        vector.flags.writeable = False
        with self._lock:
            self._known[text] = vector
            self._known.move_to_end(text)
            while len(self._known) > CACHED_QUERIES:
                self._known.popitem(last=False)
        return vector

    def _ask(self, text: str, asked: Future[Vector]) -> None:
        try:
            sent = sent_text(text, self.model)
            batch = self._client.embed([sent], "query", LONGEST_WAIT_S)
            vector = self.remember(text, batch.vectors[0].copy())
            self._rests_until = -math.inf
            asked.set_result(vector)
        except PassingFaultError as error:
            down = ProviderDownError(f"{self.model.title} gives no vector: {error}")
            asked.set_exception(self._rest(down))
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
