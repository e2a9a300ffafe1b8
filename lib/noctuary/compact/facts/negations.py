"""Which clauses deny what they say. What belongs here: negators and their scope."""

from __future__ import annotations

import re
from collections.abc import Sequence

from noctuary.compact.facts.lexicon import (
    CJK_IDLE,
    CJK_NEGATORS,
    DENYING,
    IDLE_NEGATIONS,
    JAPANESE_NEGATIONS,
    NEGATORS,
)
from noctuary.graph.fold import Word
from noctuary.text.stems import stem
from noctuary.text.stopwords import is_stop_word

_IDLE = frozenset(IDLE_NEGATIONS)
_CJK_IDLE = re.compile("|".join(map(re.escape, CJK_IDLE)))
_CJK_NEGATION = re.compile(f"[{CJK_NEGATORS}]|{'|'.join(JAPANESE_NEGATIONS)}")


def negators(folded: Sequence[str]) -> list[int]:
    """Return the places of the words that deny; those of idle pairs ("not only") deny nothing."""
    return [
        place
        for place, word in enumerate(folded)
        if word in NEGATORS
        and (word, folded[place + 1] if place + 1 < len(folded) else "") not in _IDLE
        and (folded[place - 1] if place else "", word) not in _IDLE
    ]


def is_negated(text: str, folded: Sequence[str]) -> bool:
    """Say whether a clause holds a negator of a language that is known here.

    Args:
        text: The clause.
        folded: Its words, folded.
    """
    if not text.isascii() and _CJK_NEGATION.search(_CJK_IDLE.sub("", text)):
        return True
    return bool(negators(folded))


def is_denying(folded: Sequence[str]) -> bool:
    """Say whether a clause holds a word that may deny without being a negator ("failed")."""
    return not DENYING.isdisjoint(folded)


def negated_words(tokens: Sequence[Word]) -> list[str]:
    """Return, per negator among the words of a text, the stem of the next content word."""
    folded = [word.folded for word in tokens]
    if NEGATORS.isdisjoint(folded):
        return []
    found: list[str] = []
    for place in negators(folded):
        content = (w for w in folded[place + 1 : place + 6] if not is_stop_word(w))
        word = next(content, None)
        if word is not None and word not in NEGATORS:
            found.append(stem(word))
    return found
