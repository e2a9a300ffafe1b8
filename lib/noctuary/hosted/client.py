"""One POST to an endpoint and its answer, over httpx, which the first request imports.

What belongs here: HTTP, time limits, which status may pass. What does not: trying again
(retrying.py), what an answer holds. Proxies and certificates come from the environment.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
"""Longest wait for a connection. An endpoint that is up takes well below one second."""

NOT_INSTALLED = "httpx or tenacity is not installed: install noctuary[hosted]"

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


class PassingFaultError(Exception):
    """One try failed and another may not; never leaves the packages that ask.

    Attributes:
        wait_s: How long the endpoint asks to wait; None where it does not say.
    """

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class StatusError(Exception):
    """An endpoint answered that it will not do this; never leaves the packages that ask.

    Attributes:
        status: HTTP status.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"it answered HTTP {status}")
        self.status = status


class TooLargeError(Exception):
    """An answer was longer than anybody needs; never leaves the packages that ask."""


class JsonClient:
    """Posts JSON to one address; safe to share between threads. The key is in no repr or error."""

    def __init__(self, url: str, api_key: str | None, max_bytes: int) -> None:
        """Open a pool of connections; nothing is sent.

        Args:
            url: Where to, http or https.
            api_key: Sent as a bearer token; None sends none.
            max_bytes: Of an answer: protects memory from an endpoint gone wrong.

        Raises:
            ImportError: httpx is not installed.
        """
        import httpx

        self._url = url
        self._max_bytes = max_bytes
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        # Without TLS there is nothing to verify, and reading the certificates takes 40 ms.
        # Redirects are not followed: the key would go along to whatever host they name.
        self._client = httpx.Client(
            headers=headers, verify=url.startswith("https:"), follow_redirects=False
        )

    def post(self, body: Mapping[str, Any], timeout_s: float) -> bytes:
        """Post once and return the body of a success.

        Errors are replaced, not chained: neither bodies nor headers may reach a log.

        Args:
            body: Sent as JSON.
            timeout_s: For the whole answer, above 0. The endpoint may hold a last piece of it back
                for as long again.

        Raises:
            PassingFaultError: No answer, or one that a further try may better.
            StatusError: The endpoint will not do this.
            TooLargeError: The answer does not end in time.
        """
        import httpx

        deadline = time.monotonic() + timeout_s
        limits = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        content = json.dumps(body).encode("ascii")
        try:
            with self._client.stream(
                "POST", self._url, content=content, timeout=limits
            ) as response:
                if response.status_code in _RETRIED:
                    wait_s = _retry_after_s(response.headers.get("retry-after", "").strip())
                    raise PassingFaultError(f"it answered HTTP {response.status_code}", wait_s)
                if response.status_code != 200:
                    raise StatusError(response.status_code)
                return self._read(response, deadline)
        except (httpx.TimeoutException, TimeoutError):
            raise PassingFaultError(f"it did not answer within {timeout_s:g} s") from None
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.StreamError):
            raise PassingFaultError("it broke off its answer") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            cause = type(_root(error)).__name__
            raise PassingFaultError(f"it could not be reached ({cause})") from None

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _read(self, response: httpx.Response, deadline: float) -> bytes:
        """Read a body to its end, within the time and size that an answer may take."""
        parts: list[bytes] = []
        size = 0
        for chunk in response.iter_bytes():
            parts.append(chunk)
            size += len(chunk)
            if size > self._max_bytes:
                raise TooLargeError
            if time.monotonic() > deadline:
                raise TimeoutError
        return b"".join(parts)


def _root(error: BaseException) -> BaseException:
    """Return the operating system's error below those of the libraries."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error


def _retry_after_s(value: str) -> float | None:
    """Return the seconds that an endpoint asks to wait: a number or a date (RFC 9110, 10.2.3)."""
    try:
        found = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
        except ValueError:
            return None
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return max((until - datetime.now(UTC)).total_seconds(), 0.0)
    return found if math.isfinite(found) and found >= 0 else None
