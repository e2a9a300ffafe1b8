"""Does one text hold everything another one says: its words in their order, numbers and denials.

What belongs here: the comparison of two short texts that lets one stand for the other. What does
not: finding pairs that are worth it (`near`).

Stricter than any likeness: of two texts that a vector cannot tell apart, "port 8080" and "port
8081" differ in what they say.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from noctuary.text.fold import fold, normalize
from noctuary.text.stems import stem
from noctuary.text.stopwords import NEGATED_SUFFIX, is_stop_word

DENIALS = frozenset(
    {
        "not", "no", "never", "none", "nor", "neither", "without", "cannot", "hardly", "except",
        "unless", "stopped", "longer", "former", "formerly", "previously", "instead", "against",
    }
)  # fmt: skip
"""Words that turn round what they stand beside, or send it into the past: both texts must have the
same ones."""

MODALS = frozenset(
    {"may", "might", "could", "should", "would", "must", "will", "if", "maybe", "perhaps", "only"}
)
"""Words that say how surely something holds: both texts must have the same ones, too."""

_POSSESSIVE = "'s"
_WORD = re.compile(r"[^\W_]+(?:['’.,:/_@+-]+[^\W_]+)*[%+#]*")


class Words(NamedTuple):
    """What of a text counts.

    Attributes:
        content: Stems of the words that are no function words, in order.
        numbers: Words with a digit, in order.
        turns: Denials and modals, sorted.
    """

    content: tuple[str, ...]
    numbers: tuple[str, ...]
    turns: tuple[str, ...]


def words_of(text: str) -> Words:
    """Return the words of a text that count."""
    content: list[str] = []
    numbers: list[str] = []
    turns: list[str] = []
    for raw in _WORD.findall(normalize(text)):
        word = fold(raw.replace("’", "'"))
        if word in DENIALS or word in MODALS or word.endswith(NEGATED_SUFFIX):
            turns.append(word)
        elif any(char.isdigit() for char in word):
            numbers.append(word)
            content.append(word)
        elif not is_stop_word(word.removesuffix(_POSSESSIVE)):
            # "user's brother likes tea" does not hold "user likes tea".
            owner = word.endswith(_POSSESSIVE)
            content.append(stem(word.removesuffix(_POSSESSIVE)) + _POSSESSIVE * owner)
    return Words(tuple(content), tuple(numbers), tuple(sorted(turns)))


def why_not_held(older: str, newer: str) -> str | None:
    """Return what of the older text the newer one does not hold, or None where it holds all.

    A relation of texts: everything holds itself, and it is transitive for texts with the same
    numbers and denials.
    """
    ours, theirs = words_of(older), words_of(newer)
    if not ours.content:
        return "The older has no words to compare."
    if ours.numbers != theirs.numbers:
        return "They differ in numbers."
    if ours.turns != theirs.turns:
        return "They differ in denials or in how surely they speak."
    lost = (Counter(ours.content) - Counter(theirs.content)).total()
    if lost:
        return f"The newer lacks {lost} of the older's {len(ours.content)} words."
    rest = iter(theirs.content)
    # Membership of an iterator goes on from where the last word was found.
    if not all(word in rest for word in ours.content):
        return "The newer says the older's words in another order."
    return None
