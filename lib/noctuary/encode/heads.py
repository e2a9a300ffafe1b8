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

MAX_HEAD_CHARS = 1 << 18
"""Give up looking for more tokens here: what still holds too few is one blob (or blank), and a
tokenizer takes a minute for 10 MB of that. The rest of such a text is ignored, and counted so."""

_GROWTH = 4


def readable_head(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return the text, or a beginning of it that gives the same first max_tokens tokens.

    Args:
        text: Any text.
        max_tokens: Tokens that the model reads.
        count: Tokens of a text.

    Returns:
        A prefix of the text, at most MAX_HEAD_CHARS long.
    """
    size = CHARS_PER_TOKEN * max_tokens
    while size < min(len(text), MAX_HEAD_CHARS):
        head = text[:size]
        if count(head) > max_tokens + MARGIN_TOKENS:
            return head
        size *= _GROWTH
    return text[:MAX_HEAD_CHARS]
