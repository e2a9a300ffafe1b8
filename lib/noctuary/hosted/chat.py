"""One prompt, one answer: POST {url}/chat/completions.

What belongs here: the envelope, and taking the text out of it. What does not: HTTP (client.py),
what the text means (answers.py).
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from noctuary.foreign_json import parse_json
from noctuary.hosted.client import NOT_INSTALLED, JsonClient, StatusError, TooLargeError
from noctuary.hosted.endpoint import (
    AnswerFault,
    BadAnswerError,
    Endpoint,
    EndpointDownError,
)
from noctuary.hosted.retrying import GaveUpError, Patience, Sleep

RETRIES = 3
"""Further tries after the first. More outlast longer overloads and delay a night that has none."""
MAX_RETRY_AFTER_S = 30.0
"""An endpoint may not hold the night up for longer than this per retry."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Some hundred times a batch's answer; protects memory from an endpoint gone wrong."""

_REFUSED = frozenset({400, 413, 422})
_HINTS = {401: "; check the API key", 403: "; check the API key", 404: "; check URL and model"}


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
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "stream": False,
    }
    if endpoint.temperature is not None:
        body["temperature"] = endpoint.temperature
    if with_logprobs:
        body["logprobs"] = True
    patience = Patience(RETRIES, MAX_RETRY_AFTER_S, sleep=sleep)
    try:
        client = JsonClient(endpoint.completions_url(), endpoint.api_key, MAX_ANSWER_BYTES)
        try:
            return _answer(patience.ask(lambda: client.post(body, endpoint.timeout_s)))
        finally:
            client.close()
    except ImportError:
        raise EndpointDownError(NOT_INSTALLED) from None
    except GaveUpError as error:
        raise EndpointDownError(str(error)) from None
    except TooLargeError:
        raise BadAnswerError(AnswerFault.TOO_LARGE) from None
    except StatusError as error:
        raise _status_error(error.status) from None


def _status_error(status: int) -> Exception:
    if status in _REFUSED:
        return BadAnswerError(AnswerFault.REFUSED)
    hint = "; redirects are not followed" if 300 <= status < 400 else _HINTS.get(status, "")
    return EndpointDownError(f"it answered HTTP {status}{hint}")


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
