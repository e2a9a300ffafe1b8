"""The phrase that stands before or after a word: what a statement is about and what it says.

Belongs here: where a short name or noun phrase begins and ends. Does not belong here: which verbs
call for one (`patterns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noctuary.graph.fold import Word
from noctuary.graph.lexicon import (
    ADVERBS,
    ATTRIBUTES,
    BACKWARD_WORDS,
    CALENDAR_WORDS,
    DETERMINERS,
    FUNCTION_WORDS,
    LY_NOUNS,
    NAME_CONNECTORS,
    SAYING_WORDS,
)

PHRASE_MAX_WORDS = 5
"""Longest phrase in plain words; a longer one is a clause and names nothing."""

CAPITALISED_MAX_WORDS = 8
"""Longest capitalised phrase, as for names."""

QUOTED_MAX_WORDS = 8
"""Longest phrase between quotation marks, in words."""

GAP_MAX_CHARS = 3
"""Most characters between a verb and its object: a space and an opening mark or two."""

_INSIDE = frozenset({" ", "-", "_", "/", ".", "@", "&", " & ", "'", "’", "–", "\u00a0", "+"})
_INITIAL_GAP = ". "
_SHORT_TITLES = frozenset({"dr", "mr", "mrs", "ms", "st", "prof"})
_OPENING = {'"': '"', "“": "”", "«": "»", "「": "」", "`": "`", "'": "'", "‘": "’"}
_BEFORE_PHRASE = frozenset(" \t\u00a0*_([$€£¥")


class Phrase(NamedTuple):
    """A run of words.

    Attributes:
        first: Index of its first word.
        last: Index of its last word.
    """

    first: int
    last: int


def phrase_after(content: str, tokens: Sequence[Word], place: int, index: int) -> Phrase | None:
    """Return the phrase that begins at an offset, where the word of that index is the first there.

    Determiners are passed over. A phrase that begins with a capital and has no determiner ends with
    its last capitalised word ("Redis" of "Redis running here"); any other ends before a function
    word or a mark ("Memphis area" of "the Memphis area of").
    """
    opened = place
    while index < len(tokens) and _opens(content, place, tokens[index]):
        word = tokens[index]
        quoted = _quoted(content, tokens, place, index)
        if quoted is not None:
            return quoted
        if word.folded not in DETERMINERS and not _is_attribute(content, word):
            return _forward(content, tokens, index, bare=content[opened:place].strip() == "")
        place, index = word.end, index + 1
    return None


def phrase_before(content: str, tokens: Sequence[Word], index: int) -> Phrase | None:
    """Return the phrase that ends right before a word, adverbs and auxiliaries between them aside.

    A phrase that ends with a capital begins with its first capitalised word; any other begins after
    a function word, a mark or a verb of saying.
    """
    last = index - 1
    while last >= 0 and is_adverb(tokens[last]) and _follows(content, tokens, last):
        last -= 1
    if last < 0 or not _follows(content, tokens, last):
        return None
    if is_closed(tokens[last]) or tokens[last].folded in SAYING_WORDS:
        return None
    if _is_proper(content, tokens[last]):
        proper = _backward(content, tokens, last, proper=True)
        is_letter = proper is not None and tokens[last].end - tokens[proper.first].start == 1
        if proper is not None and not is_letter:
            return proper
    return _backward(content, tokens, last, proper=False)


def is_closed(word: Word) -> bool:
    """Say whether a word belongs to a closed class that ends every phrase."""
    return word.folded in FUNCTION_WORDS or word.folded in CALENDAR_WORDS


def is_adverb(word: Word) -> bool:
    """Say whether a word may stand between a subject and its verb."""
    folded = word.folded
    return folded in ADVERBS or (folded.endswith("ly") and folded not in LY_NOUNS)


def has_capital(content: str, tokens: Sequence[Word], phrase: Phrase) -> bool:
    """Say whether any word of the phrase begins with a capital."""
    return any(content[word.start].isupper() for word in tokens[phrase.first : phrase.last + 1])


def _opens(content: str, place: int, word: Word) -> bool:
    if word.start - place > GAP_MAX_CHARS:
        return False
    return all(mark in _BEFORE_PHRASE or mark in _OPENING for mark in content[place : word.start])


def _quoted(content: str, tokens: Sequence[Word], place: int, index: int) -> Phrase | None:
    closing = _OPENING.get(content[place : tokens[index].start][-1:])
    if closing is None:
        return None
    for last in range(index, min(index + QUOTED_MAX_WORDS, len(tokens))):
        after = tokens[last + 1].start if last + 1 < len(tokens) else len(content)
        gap = content[tokens[last].end : after]
        if closing in gap:
            return Phrase(index, last)
        if "\n" in gap:
            return None
    return None


def _forward(content: str, tokens: Sequence[Word], first: int, *, bare: bool) -> Phrase | None:
    if _ends_phrase(content, tokens[first]) or tokens[first].folded in BACKWARD_WORDS:
        return None
    proper = bare and _is_proper(content, tokens[first])
    last = index = first
    limit = first + (CAPITALISED_MAX_WORDS if proper else PHRASE_MAX_WORDS)
    while index + 1 < len(tokens) and _joined(content, tokens, index):
        if _ends_owner(content, tokens[index]) and proper:
            break
        index += 1
        if index >= limit:
            return None
        if proper:
            if _belongs(content, tokens[index], proper=True):
                last = index
            elif tokens[index].folded not in NAME_CONNECTORS:
                break
        elif not _ends_phrase(content, tokens[index]):
            last = index
        elif tokens[index].folded != "of":
            break
    return Phrase(first, last)


def _backward(content: str, tokens: Sequence[Word], last: int, *, proper: bool) -> Phrase | None:
    first = index = last
    limit = last - (CAPITALISED_MAX_WORDS if proper else PHRASE_MAX_WORDS)
    while index > 0 and _joined(content, tokens, index - 1):
        index -= 1
        word = tokens[index]
        if index <= limit:
            return None
        if _belongs(content, word, proper=proper):
            first = index
        elif not (proper and word.folded in NAME_CONNECTORS):
            break
    if proper and all(word.folded.isdigit() for word in tokens[first : last + 1]):
        return None
    if not proper and _is_attribute(content, tokens[first]):
        return Phrase(first + 1, last) if first < last else None
    return Phrase(first, last)


def _belongs(content: str, word: Word, *, proper: bool) -> bool:
    if _ends_phrase(content, word):
        return False
    return _is_proper(content, word) if proper else word.folded not in SAYING_WORDS


def _is_attribute(content: str, word: Word) -> bool:
    return word.folded in ATTRIBUTES and not content[word.start].isupper()


def _ends_phrase(content: str, word: Word) -> bool:
    # "New" in "New York" is part of a name, "new" in "new york office" is not.
    is_name = word.folded in ATTRIBUTES and content[word.start].isupper()
    return is_closed(word) and not is_name


def _joined(content: str, tokens: Sequence[Word], index: int) -> bool:
    left, right = tokens[index], tokens[index + 1]
    gap = content[left.end : right.start]
    if gap == ",":  # 1,500
        return left.folded.isdigit() and right.folded.isdigit()
    if gap == _INITIAL_GAP and content[left.start].isupper():
        return len(left.folded) == 1 or left.folded in _SHORT_TITLES
    return gap in _INSIDE


def _follows(content: str, tokens: Sequence[Word], index: int) -> bool:
    gap = content[tokens[index].end : tokens[index + 1].start]
    return gap.strip(" \u00a0\"”'`(*") in ("", ",") and "\n" not in gap


def _is_proper(content: str, word: Word) -> bool:
    return content[word.start].isupper() or content[word.start].isdigit()


def _ends_owner(content: str, word: Word) -> bool:
    return content[word.start : word.end].endswith(("'s", "’s"))
