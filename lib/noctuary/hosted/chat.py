"""One prompt, one answer: POST {url}/chat/completions with the standard library.

What belongs here: HTTP, time limits, retries, and taking the text out of the envelope. What does
not: what the text means (answers.py). Proxies are taken from the environment as urllib does.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException, HTTPMessage, HTTPResponse, IncompleteRead
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from noctuary.foreign_json import parse_json
from noctuary.hosted.endpoint import (
    AnswerFault,
    BadAnswerError,
    Endpoint,
    EndpointDownError,
)

RETRIES = 3
"""Further tries after the first. More outlast longer overloads and delay a night that has none."""
BACKOFF_S = (1.0, 2.0, 4.0)
"""Seconds before each retry, unless the endpoint names its own (`Retry-After`)."""
MAX_RETRY_AFTER_S = 30.0
"""An endpoint may not hold the night up for longer than this per retry."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Some hundred times a batch's answer; protects memory from an endpoint gone wrong."""

_CHUNK_BYTES = 1 << 16
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})

Sleep = Callable[[float], None]


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: urllib would carry the key over to whatever host it names."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class _TryAgainError(Exception):
    """A passing fault: its text, and how long the endpoint asks to wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Answer(NamedTuple):
    """What a model answered.

    Attributes:
        content: Its text.
        confidence: exp of the mean log probability of its tokens, in [0, 1]; None where the
            endpoint gave none.
        is_cut_off: It ended at a limit of length and not of its own accord.
    """

    content: str
    confidence: float | None
    is_cut_off: bool


def complete(endpoint: Endpoint, system: str, user: str, sleep: Sleep = time.sleep) -> str:
    """Return the text of the model's answer; see `ask`."""
    return ask(endpoint, system, user, sleep).content


def ask(
    endpoint: Endpoint,
    system: str,
    user: str,
    sleep: Sleep = time.sleep,
    *,
    with_logprobs: bool = False,
) -> Answer:
    """Return the model's answer to a system and a user message.

    Overload (429), server errors, timeouts and broken connections are tried again three times.

    Args:
        endpoint: The model.
        system: What it is to do.
        user: What with.
        sleep: Waits between tries.
        with_logprobs: Ask for log probabilities, which some endpoints refuse.

    Raises:
        EndpointDownError: If no try gives an answer, or the endpoint refuses for good.
        BadAnswerError: If an answer comes that is of no use.
    """
    request = _request(endpoint, system, user, with_logprobs)
    opener = build_opener(_NoRedirect)
    reason = ""
    for number in range(RETRIES + 1):
        try:
            body = _send(opener, request, endpoint.timeout_s)
        except _TryAgainError as error:
            reason = str(error)
            if number < RETRIES:
                sleep(BACKOFF_S[number] if error.wait_s is None else error.wait_s)
            continue
        return _answer(body)
    raise EndpointDownError(f"{reason}, {RETRIES + 1} times in a row")


def _request(endpoint: Endpoint, system: str, user: str, with_logprobs: bool) -> Request:
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "stream": False,
    }
    if endpoint.temperature is not None:
        body["temperature"] = endpoint.temperature
    if with_logprobs:
        body["logprobs"] = True
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if endpoint.api_key is not None:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    data = json.dumps(body).encode("ascii")
    return Request(endpoint.completions_url(), data=data, headers=headers, method="POST")


def _send(opener: OpenerDirector, request: Request, timeout_s: float) -> bytes:
    """Post once and return the body of a success.

    Errors are replaced, not chained: neither bodies nor headers may reach a log.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return _read(response, deadline)
    except HTTPError as error:
        with error:
            raise _status_error(error) from None
    except (OSError, HTTPException, ValueError) as error:  # URLError is an OSError
        raise _TryAgainError(_transport_reason(error, timeout_s)) from None


def _read(response: HTTPResponse, deadline: float) -> bytes:
    """Read a body to its end, within the time and size that an answer may take."""
    parts: list[bytes] = []
    size = 0
    while chunk := response.read1(_CHUNK_BYTES):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise BadAnswerError(AnswerFault.TOO_LARGE)
        if time.monotonic() > deadline:
            raise TimeoutError
    if response.length:  # announced and never sent
        raise IncompleteRead(b"", response.length)
    return b"".join(parts)


def _status_error(error: HTTPError) -> Exception:
    if error.code in _RETRIED:
        return _TryAgainError(f"it answered HTTP {error.code}", _retry_after(error.headers))
    if error.code in _REFUSED:
        return BadAnswerError(AnswerFault.REFUSED)
    hints = {401: "; check the API key", 403: "; check the API key", 404: "; check URL and model"}
    hint = "; redirects are not followed" if 300 <= error.code < 400 else hints.get(error.code, "")
    return EndpointDownError(f"it answered HTTP {error.code}{hint}")


def _retry_after(headers: Message) -> float | None:
    """Return the seconds that an endpoint asks to wait; dates are not worth reading."""
    value = str(headers.get("Retry-After", "")).strip()
    if not (value.isascii() and value.isdecimal()):
        return None
    return min(float(value), MAX_RETRY_AFTER_S)


def _transport_reason(error: Exception, timeout_s: float) -> str:
    cause = error.reason if isinstance(error, URLError) else error
    if isinstance(cause, TimeoutError):
        return f"it did not answer within {timeout_s:g} s"
    if isinstance(cause, HTTPException):
        return "it broke off its answer"
    return f"it could not be reached ({type(cause).__name__})"


def _answer(body: bytes) -> Answer:
    """Return the first choice."""
    try:
        envelope: Any = parse_json(body)
    except ValueError:
        raise BadAnswerError(AnswerFault.NOT_JSON) from None
    try:
        choice: dict[str, Any] = envelope["choices"][0]
        content: Any = choice["message"]["content"]
    except (LookupError, TypeError):
        raise BadAnswerError(AnswerFault.NO_CONTENT) from None
    if not isinstance(content, str):
        raise BadAnswerError(AnswerFault.NO_CONTENT)
    return Answer(content, _confidence(choice), choice.get("finish_reason") == "length")


def _confidence(choice: Any) -> float | None:
    """Return exp of the mean log probability; None where any is missing or no log probability."""
    try:
        values = [float(token["logprob"]) for token in choice["logprobs"]["content"]]
    except (LookupError, TypeError, ValueError):
        return None
    if not values or not all(value <= 0.0 for value in values):
        return None
    return math.exp(sum(values) / len(values))
