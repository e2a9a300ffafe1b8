"""What a paragraph demands of a "you": obligation, permission, prohibition.

What belongs here: the marks of a plain text. What does not: which texts are asked (`parse`).
Standard library only.

Words decide, not grammar: sentences are not told apart, "should not" is an obligation as the rule
has it, and "Never reveal it", which names no "you", demands nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from noctuary.authored.node import Mark

REACH_WORDS: Final = 3
"""How many words after a "you" are looked at. More finds demands that belong to others."""

_OBLIGATION: Final[Mark] = "obligation"
_PERMITTED: Final[Mark] = "permitted"
_FORBIDDEN: Final[Mark] = "forbidden"

_MARK_OF: Final[dict[str, Mark]] = {
    "must": _OBLIGATION,
    "shall": _OBLIGATION,
    "required": _OBLIGATION,
    "should": _OBLIGATION,
    "may": _PERMITTED,
    "never": _FORBIDDEN,
    "cannot": _FORBIDDEN,
}
_TURNED_BY_NOT: Final = frozenset({"must", "shall", "required", "may", "can"})

# What follows an apostrophe belongs to its word and is no word of its own: "you're" is a "you" and
# "mustn't" no "must".
_WORD: Final = re.compile("([A-Za-z0-9_]+)(?:['\u2019][A-Za-z]+)*")


def find_marks(text: str) -> frozenset[Mark]:
    """Return what a text demands of a "you", as words say it; empty if nothing.

    Looked at are the `REACH_WORDS` words after each "you": must, shall, required are an obligation,
    or forbidden where the next word is "not"; should is an obligation; may is permitted, "may not"
    forbidden; never, cannot and "can not" are forbidden. Words are runs of ASCII letters, digits
    and underscores; case does not matter.

    Source: research/peers.md 1.3, deontic promotion.
    """
    words = [found[1].lower() for found in _WORD.finditer(text)]
    marks: set[Mark] = set()
    for place, word in enumerate(words):
        if word == "you":
            reached = range(place + 1, min(place + 1 + REACH_WORDS, len(words)))
            marks.update(mark for at in reached if (mark := _mark_at(words, at)) is not None)
    return frozenset(marks)


def _mark_at(words: Sequence[str], place: int) -> Mark | None:
    word = words[place]
    if word in _TURNED_BY_NOT and words[place + 1 : place + 2] == ["not"]:
        return _FORBIDDEN
    return _MARK_OF.get(word)
