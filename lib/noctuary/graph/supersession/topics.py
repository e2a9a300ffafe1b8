"""What a preference is about, read from its object: "tabs for python" is about python.

Folded names in, folded names out. A preference without a topic contradicts nothing: somebody may
prefer tea and short answers.
"""

from __future__ import annotations

from typing import NamedTuple

from noctuary.graph.lexicon import FUNCTION_WORDS

_CONTRASTS = ("over", "rather than", "instead of", "than")
_PURPOSES = ("for", "as", "when", "while", "during", "in")
_STARTS = tuple(f"{word} " for word in (*_CONTRASTS, *_PURPOSES))
_DENIALS = frozenset({"not", "no", "never", "without", "longer", "isnt", "off", "non"})


class Preference(NamedTuple):
    """A topic and what is preferred there.

    Attributes:
        topic: What two preferences must share to contradict each other.
        value: What is preferred.
        is_stated: False where the topic is only the last word ("dark theme", "light theme").
    """

    topic: str
    value: str
    is_stated: bool


def read_preference(name: str, after: str = "") -> Preference | None:
    """Return the topic and the value of a folded object, or None where it names no topic.

    Args:
        name: What is preferred.
        after: The folded rest of its clause, where the topic may stand instead.
    """
    whole = f"{name} {after}" if after.startswith(_STARTS) else name
    for word in _CONTRASTS:
        value, _, other = whole.partition(f" {word} ")
        if other:
            # Both ways round it is one question: tea or coffee.
            return Preference("|".join(sorted((value, other))), value, is_stated=True)
    for word in _PURPOSES:
        value, _, purpose = whole.partition(f" {word} ")
        if purpose:
            return Preference(f"{word} {purpose}", value, is_stated=True)
    value, _, head = name.rpartition(" ")
    if not value or head in FUNCTION_WORDS:
        return None
    return Preference(head, value, is_stated=False)


def same_head(one: str, other: str) -> bool:
    """Say whether two names end alike: "junior engineer" and "senior engineer"."""
    return one.rpartition(" ")[2] == other.rpartition(" ")[2]


def restates(one: str, other: str) -> bool:
    """Say whether two values agree: one holds all words of the other, and neither denies it.

    "acme" and "acme corp" agree; "green" and "not green" do not.
    """
    some, others = set(one.split()), set(other.split())
    return (some <= others or others <= some) and not (some ^ others) & _DENIALS
