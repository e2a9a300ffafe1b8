"""Texts as they are sent: representable, never empty, and no longer than a provider takes.

What belongs here: changes to one text, and which texts share a request. What does not: HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noctuary.encode.hosted.model import HostedModel
from noctuary.encode.hosted.shapes import SHAPES

MAX_TEXTS = 128
"""Texts of one request, where the provider takes as many. More saves round trips; fewer loses less
to a kill, because a request is paid for and kept as a whole."""

BLANK = "."
"""Sent in the place of a text without a visible character, which providers refuse."""

_READ_BYTES_PER_TOKEN = 8
"""More bytes than this per token is no prose: a provider that cuts would not read further."""

_SAFE_BYTES_PER_TOKEN = 3
"""Of providers that refuse what is too long: prose has 4 and more, so this loses little and is
rarely refused. What is, is cut to one byte per token: no token is shorter."""

_TEXT_OVERHEAD_TOKENS = 16
"""Control tokens and the prompt that a provider puts before a text."""


def sent_text(text: str, model: HostedModel) -> str:
    """Return a text as it is sent: as UTF-8 can hold it, not blank, cut where it is too long.

    Depends on nothing but the text and the model, and so does its vector.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    if not text.strip():
        return BLANK
    per_token = _SAFE_BYTES_PER_TOKEN
    if SHAPES[model.provider].truncates:
        per_token = _READ_BYTES_PER_TOKEN
    room = model.request_tokens - _TEXT_OVERHEAD_TOKENS
    return cut_bytes(text, min(model.max_tokens * per_token, room))


def cut_bytes(text: str, limit: int) -> str:
    """Return the longest start of a text that UTF-8 holds in `limit` bytes."""
    raw = text.encode("utf-8")
    return text if len(raw) <= limit else raw[:limit].decode("utf-8", "ignore")


def size_bytes(text: str) -> int:
    """Return the length in UTF-8."""
    return len(text.encode("utf-8"))


def plan_requests(texts: Sequence[str], model: HostedModel) -> Iterator[list[int]]:
    """Yield positions of the texts that share a request, each once and in order.

    A byte is taken for a token, which no tokenizer exceeds: a request is never too large.

    Args:
        texts: As `sent_text` returns them.
        model: Where they go.
    """
    most = min(MAX_TEXTS, SHAPES[model.provider].max_texts)
    members: list[int] = []
    used = 0
    for position, text in enumerate(texts):
        size = size_bytes(text) + _TEXT_OVERHEAD_TOKENS
        if members and (len(members) == most or used + size > model.request_tokens):
            yield members
            members, used = [], 0
        members.append(position)
        used += size
    if members:
        yield members
