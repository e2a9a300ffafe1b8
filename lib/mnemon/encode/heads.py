"""How much of a long text has to be tokenized. A pure function of a token counter; no model code.

A model reads the first few hundred tokens. Tokenizing all of a 10 MB paste to throw the rest away
takes a minute, so only a head that certainly holds those tokens is tokenized.
"""

from __future__ import annotations

from collections.abc import Callable

CHARS_PER_TOKEN = 16
"""First guess of a head's length: texts shorter than 16 characters a token are left whole (4 on
average in English, 1-2 in Chinese). Smaller would count ordinary texts twice."""

MARGIN_TOKENS = 128
"""A cut word may fall into other tokens, at most 100 of them (longer words are one unknown token):
the head must hold this many tokens more than are read."""

_GROWTH = 4


def readable_head(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the text, or a beginning of it whose first max_tokens tokens are those of the text.

    Args:
        text: Any text.
        max_tokens: Tokens that the model reads.
        count: Tokens of a text.

    Returns:
        A prefix of the text. If it is not the whole text, it has more than max_tokens tokens.
    """
    size = CHARS_PER_TOKEN * max_tokens
    while size < len(text):
        head = text[:size]
        if count(head) > max_tokens + MARGIN_TOKENS:
            return head
        size *= _GROWTH
    return text
