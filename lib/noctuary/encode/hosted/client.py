"""One request to a provider and its answer, over httpx.

What belongs here: HTTP, time limits, which status means what. What does not: trying again
(retrying.py), what an answer holds (answers.py).
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from noctuary.encode.hosted.answers import Batch, read_batch
from noctuary.encode.hosted.faults import PassingFaultError, ProviderRefusedError
from noctuary.encode.hosted.model import HostedModel
from noctuary.encode.hosted.shapes import SHAPES, Purpose, address_of
from noctuary.errors import EncoderError
from noctuary.settings.api_key import read_api_key, require_header_text

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Several times the largest answer (128 vectors of 3,072 numbers as text); protects memory from an
endpoint gone wrong."""

CONNECT_S = 10.0
"""Longest wait for a connection. A provider that is up takes well below one second."""

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_HINTS: Mapping[int, str] = {
    400: "it does not accept the request: check encoder.model and encoder.dimension",
    401: "it does not know the API key: check the variable that encoder.api_key_variable names",
    403: "the API key may not do this: check its rights and encoder.model",
    404: "it does not know the address or the model: check encoder.url and encoder.model",
    413: "the request is too large for it",
    422: "it does not accept the request: check encoder.model and encoder.dimension",
}


class HostedClient:
    """Asks one model; safe to share between threads. The key is in no repr and no error."""

    def __init__(self, model: HostedModel) -> None:
        """Take the model; nothing is read or opened before the first request."""
        self._opening = threading.Lock()
        self._opened: httpx.Client | None = None
        self.model = model

    def __repr__(self) -> str:
        return f"HostedClient({self.model.title})"

    def embed(self, texts: Sequence[str], purpose: Purpose, timeout_s: float) -> Batch:
        """Ask once for the vectors of some texts.

        Args:
            texts: As many as one request may hold.
            purpose: What they are: stored texts, or a query.
            timeout_s: For the whole answer, above 0. The provider may hold a last piece of it back
                for as long again.

        Raises:
            PassingFaultError: No answer, or one that a further try may better.
            ProviderRefusedError: The provider will not do this.
            BadVectorsError: The answer is not one vector per text.
            EncoderError: httpx is not installed, or no key is to be had.
        """
        shape = SHAPES[self.model.provider]
        content = json.dumps(shape.body(self.model, texts, purpose)).encode("ascii")
        body = self._post(self._client(), content, timeout_s)
        return read_batch(body, shape, len(texts), self.model.dimension)

    def close(self) -> None:
        """Close its connections; a later request opens new ones."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __del__(self) -> None:
        """Close what nobody else closes: of an encoder that a cache has dropped."""
        self.close()

    def _client(self) -> httpx.Client:
        with self._opening:
            if self._opened is None:
                self._opened = _open_client(self.model)
            return self._opened

    def _post(self, client: httpx.Client, content: bytes, timeout_s: float) -> bytes:
        """Post once and return the body of a success.

        Errors are replaced, not chained: neither bodies nor headers may reach a log.
        """
        import httpx

        deadline = time.monotonic() + timeout_s
        limits = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        try:
            address = address_of(self.model)
            with client.stream("POST", address, content=content, timeout=limits) as response:
                if response.status_code != 200:
                    raise _status_error(self.model, response.status_code, response.headers)
                return _read(response, deadline)
        except (httpx.TimeoutException, TimeoutError):
            raise PassingFaultError(f"it did not answer within {timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise PassingFaultError(
                f"it could not be reached, or broke off ({type(error).__name__})"
            ) from None


def _open_client(model: HostedModel) -> httpx.Client:
    """Return a client with the model's key; proxies and certificates come from the environment.

    Raises:
        EncoderError: httpx is not installed, or there is no key.
    """
    try:
        import httpx
    except ImportError as error:
        raise EncoderError(
            f"httpx is not installed, by which {model.provider} is asked: install noctuary[hosted]"
        ) from error
    try:
        key = read_api_key(model.api_key_variable, "encoder.api_key_variable") or ""
        require_header_text(key)
    except ValueError as error:  # ConfigError is one
        raise EncoderError(f"{model.title} cannot be asked: {error}") from None
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    # Without TLS there is nothing to verify, and reading the certificates takes 40 ms.
    verify = address_of(model).startswith("https:")
    # Redirects are not followed: the key would go along to whatever host they name.
    return httpx.Client(headers=headers, verify=verify, follow_redirects=False)


def _read(response: httpx.Response, deadline: float) -> bytes:
    """Read a body to its end, within the time and size that an answer may take."""
    parts: list[bytes] = []
    size = 0
    for chunk in response.iter_bytes():
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ProviderRefusedError(f"its answer is larger than {MAX_ANSWER_BYTES} bytes", 200)
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)


def _status_error(model: HostedModel, status: int, headers: Mapping[str, str]) -> Exception:
    if status in _RETRIED:
        return PassingFaultError(f"it answered HTTP {status}", _retry_after_s(headers))
    hint = _HINTS.get(status, "it will not do this")
    if 300 <= status < 400:
        hint = "redirects are not followed: set encoder.url to the address itself"
    return ProviderRefusedError(f"{model.title} answered HTTP {status}: {hint}", status)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait: a number or a date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "").strip()
    try:
        found = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
        except ValueError:
            return None
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        found = (until - datetime.now(UTC)).total_seconds()
    return max(found, 0.0) if math.isfinite(found) else None
