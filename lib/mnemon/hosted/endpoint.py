"""Where a model is reached, and what can be wrong with that.

What belongs here: the address, its validation, the faults of a conversation with it. What does not:
the conversation (chat.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

from mnemon.errors import MnemonError

DEFAULT_TIMEOUT_S = 120.0
"""Seconds for one whole answer. A batch on a local model takes a minute; longer waits only delay
the notice that an endpoint hangs."""
PATH = "/chat/completions"


class EndpointDownError(MnemonError):
    """An endpoint gives no answer now, or refuses to; asking it again tonight is pointless."""


class AnswerFault(StrEnum):
    """What is wrong with an answer; counted in the night's report."""

    NOT_JSON = "not JSON"
    NO_CONTENT = "no text in choices[0].message.content"
    TOO_LARGE = "too large"
    REFUSED = "the batch was refused (HTTP 400, 413 or 422)"
    WRONG_SHAPE = "no list of items"
    WRONG_TYPE = "an item without an id or a usable value"
    MISSING_ID = "an item was not answered"
    UNKNOWN_ID = "an id that was not asked about"
    DUPLICATE_ID = "an id that was answered twice"


class BadAnswerError(MnemonError):
    """An answer came and is of no use; the next batch may fare better.

    Attributes:
        fault: What is wrong with it.
    """

    def __init__(self, fault: AnswerFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model behind an OpenAI-compatible address.

    Attributes:
        url: Base URL, http or https, without "/chat/completions", e.g. "http://127.0.0.1:8080/v1".
        model: Its name there.
        api_key: Sent as a bearer token; None sends none. Never in a repr, a log or an error.
        timeout_s: Seconds for one whole answer, above 0.
        temperature: 0 makes a model as repeatable as it can be; None leaves it out, for models that
            accept no value but their own.
    """

    url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    temperature: float | None = 0.0

    def __post_init__(self) -> None:
        _check_url(self.url)
        if not self.model.strip():
            raise ValueError("an endpoint needs the name of a model, got an empty one")
        if not self.timeout_s > 0.0:
            raise ValueError(f"timeout_s must be above 0, got {self.timeout_s}")
        key = (self.api_key or "").strip()
        if not (key.isascii() and key.isprintable()):
            # Refused here because the HTTP library would quote the header, and so the key.
            raise ValueError("the API key holds characters that cannot stand in an HTTP header")
        object.__setattr__(self, "api_key", key or None)

    def completions_url(self) -> str:
        """Return the address that prompts are posted to."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + PATH, fragment=""))


def _check_url(url: str) -> None:
    # The URL is not quoted: it may hold a password.
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an endpoint's URL starts with http:// or https:// and names a host")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("an endpoint's URL holds characters that a URL cannot have; encode them")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an endpoint's URL holds a user or a password; pass an API key instead")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError("an endpoint's URL has a port that is no number up to 65535") from error
