"""What belongs to whom: "my manager Dana", "Dana's role is lead". One construction, no other verbs.

The attribute is the subject (`user's manager`), its value the object, the relation `has`: the value
can then be replaced by a newer one without touching anything else of the same owner.
"""

from __future__ import annotations

from collections.abc import Iterator

from noctuary.graph.lexicon import ATTRIBUTES, NAME_CONNECTORS, VALUE_ATTRIBUTES
from noctuary.graph.phrases import is_closed, phrase_before
from noctuary.graph.reader import OWN_WORDS, USER, Reader, Side, Statement

ATTRIBUTE_MAX_WORDS = 3
"""Longest attribute ("favorite board game"); a longer one is mostly a clause."""

APPOSITION_MAX_WORDS = 2
"""Longest attribute that a name follows without a verb ("my manager Dana")."""

CUES = OWN_WORDS
"""Words that begin the construction; an owner's "'s" is the other beginning."""

_COPULAS = frozenset({"is", "are"})


def read_owned(reader: Reader, index: int) -> Iterator[Statement]:
    """Yield what the owner at a word is said to have, at most one statement."""
    owner = _owner(reader, index)
    last = _attribute_end(reader, index + 1)
    if owner is None or last < index + 1 or not reader.clauses.may_state(index):
        return
    thing = _value(reader, index + 1, last)
    if thing is None or thing.is_memory or thing.surface.endswith("ing"):
        return
    words = reader.content[reader.tokens[index + 1].start : reader.tokens[last].end]
    subject = Side(f"{owner.surface}'s {words}", owner.start, reader.tokens[last].end)
    yield Statement(subject, "has", thing, owner.start, thing.end)


def _owner(reader: Reader, index: int) -> Side | None:
    word = reader.tokens[index]
    if word.folded in OWN_WORDS:
        return reader.holder_at(index)
    if is_closed(word):
        return None
    phrase = (
        phrase_before(reader.content, reader.tokens, index + 1)
        if _has_next(reader, index)
        else None
    )
    if phrase is None or phrase.last != index:
        return None
    start, end = reader.tokens[phrase.first].start, word.end - 2
    surface = reader.content[start:end]
    is_name = surface[:1].isupper() or word.folded == USER
    return Side(surface, start, end) if is_name else None


def _attribute_end(reader: Reader, first: int) -> int:
    """Return the index of the attribute's last word, first - 1 where there is none."""
    last = first - 1
    while last + 1 < len(reader.tokens) and last - first + 1 < ATTRIBUTE_MAX_WORDS:
        word = reader.tokens[last + 1]
        gap = reader.content[reader.tokens[last].end : word.start]
        is_noun = word.folded in ATTRIBUTES or not is_closed(word)
        is_noun = is_noun and word.folded not in NAME_CONNECTORS
        if gap not in (" ", "-") or not is_noun or not reader.content[word.start].islower():
            break
        last += 1
    if last >= first and reader.tokens[last].folded in ATTRIBUTES:
        return first - 1
    return last


def _value(reader: Reader, first: int, last: int) -> Side | None:
    end = reader.tokens[last].end
    if reader.content.startswith(": ", end):
        return reader.object(end + 2)
    if not _has_next(reader, last) or reader.content[end : reader.tokens[last + 1].start] != " ":
        return None
    following = reader.tokens[last + 1]
    if following.folded in _COPULAS:
        return _after_copula(reader, first, last)
    is_name = reader.content[following.start].isupper() and not is_closed(following)
    is_noun = not reader.tokens[last].folded.endswith(("ed", "ing"))
    if is_name and is_noun and last - first < APPOSITION_MAX_WORDS:
        return reader.object(end)
    return None


def _after_copula(reader: Reader, first: int, last: int) -> Side | None:
    place = reader.tokens[last + 1].end
    thing = reader.object(place)
    if thing is None:
        return None
    attribute = {word.folded for word in reader.tokens[first : last + 1]}
    takes_plain = not attribute.isdisjoint(VALUE_ATTRIBUTES)
    if takes_plain or thing.surface[0].isupper() or thing.surface[0].isdigit():
        return thing
    between = reader.content[place : thing.start].strip().lower()
    return thing if between in ("a", "an", "the") else None


def _has_next(reader: Reader, index: int) -> bool:
    return index + 1 < len(reader.tokens)
