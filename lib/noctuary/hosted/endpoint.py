"""Where a model is reached, and what can be wrong with that.

What belongs here: the address, its validation, the faults of a conversation with it. What does not:
the conversation (chat.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from noctuary.errors import NoctuaryError
from noctuary.settings.api_key import require_header_text
from noctuary.settings.web_address import join_path, require_web_address

DEFAULT_TIMEOUT_S = 120.0
"""Seconds for one whole answer. A batch on a local model takes a minute; longer waits only delay
the notice that an endpoint hangs."""
PATH = "/chat/completions"


class EndpointDownError(NoctuaryError):
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


class BadAnswerError(NoctuaryError):
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
        require_web_address(self.url)
        if not self.model.strip():
            raise ValueError("an endpoint needs the name of a model, got an empty one")
        if not self.timeout_s > 0.0:
            raise ValueError(f"timeout_s must be above 0, got {self.timeout_s}")
        key = (self.api_key or "").strip()
        require_header_text(key)
        object.__setattr__(self, "api_key", key or None)

    def completions_url(self) -> str:
        """Return the address that prompts are posted to."""
        return join_path(self.url, PATH)
