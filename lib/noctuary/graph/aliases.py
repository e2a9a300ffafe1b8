"""Other names that one memory gives for the same thing: "also known as", initials, first names.

Belongs here: what can be read from one memory. Does not belong here: which names of a corpus are
merged, and what forbids it (`canonical`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from noctuary.graph.dates import Date
from noctuary.graph.extraction import Found
from noctuary.graph.fold import Word, fold_name
from noctuary.graph.lexicon import FUNCTION_WORDS, SPEAKER_KEYS
from noctuary.graph.phrases import Phrase, has_capital, phrase_after, phrase_before

ALIASES_MAX = 16
"""Aliases taken per memory; bounds what a glossary adds."""

INITIALS_MIN = 2
INITIALS_MAX = 8
"""Fewest and most initials of "X (ABC)"."""

FULL_NAME_MAX_WORDS = 3
"""Longest full name that its first word alone may stand for."""

_KNOWN_AS = re.compile(
    r"[,(]?\s?\(?(?:a\.k\.a\.|aka|(?:also|better|formerly|previously)\s(?:known\sas|called))"
    r"[:,]?(?=\s)",
    re.IGNORECASE,
)
_KNOWN_AS_HINT = re.compile(r"\b(?:aka|a\.k\.a|known as|called)\b", re.IGNORECASE)
_INITIALS = re.compile(rf"\s\(([A-Z][A-Z0-9&]{{{INITIALS_MIN - 1},{INITIALS_MAX - 1}}})s?\)")
_NAME_KINDS = frozenset({"leading", "speaker", "key", "label", "name", "title"})
_PERSONAL_PRONOUNS = frozenset({"he", "her", "him", "his", "she"})
_PARENTHESIS_LOOK_BACK = 84
_PARENTHESIS = re.compile(r"\s?\([^()\n]{0,80}\)\Z")


class Alias(NamedTuple):
    """Another name: both folded and never equal, and why, in a short phrase for people."""

    alias: str
    canonical: str
    detail: str


def aliases_of(
    content: str,
    tokens: Sequence[Word],
    found: Iterable[Found],
    dates: Sequence[Date] = (),
    people: Collection[str] = (),
) -> list[Alias]:
    """Return the aliases that one memory gives, sorted, at most ALIASES_MAX.

    Rules: "X (aka Y)", "X, also known as Y"; "X (ABC)" where ABC are the initials of X; a first
    name beside exactly one full name that begins with it, where the text says that one of them is
    a person; a date beside its ISO form. What belongs to somebody ("my manager Dana") is a
    statement and no alias: it changes with time.

    Args:
        content: The text.
        tokens: Its words.
        found: Its names so far.
        dates: Its dates.
        people: Folded names that statements of the text treat as persons.
    """
    pairs = [
        *_known_as(content, tokens),
        *_initials(content, tokens),
        *_first_names(found, people, has_pronoun=_has_pronoun(tokens)),
        *((content[date.start : date.end], date.iso, "same date") for date in dates),
    ]
    named = {Alias(fold_name(a), fold_name(c), detail) for a, c, detail in pairs}
    kept = sorted(item for item in named if item.alias and item.canonical != item.alias)
    return [item for item in kept if item.canonical][:ALIASES_MAX]


def _known_as(content: str, tokens: Sequence[Word]) -> Iterator[tuple[str, str, str]]:
    if _KNOWN_AS_HINT.search(content) is None:
        return
    starts = [word.start for word in tokens]
    for match in _KNOWN_AS.finditer(content):
        place = _before_parenthesis(content, match.start())
        name = phrase_before(content, tokens, bisect_left(starts, place))
        other = phrase_after(content, tokens, match.end(), bisect_left(starts, match.end()))
        if name is not None and other is not None and has_capital(content, tokens, name):
            detail = match.group().strip(" ,(")
            yield _text(content, tokens, other), _text(content, tokens, name), detail


def _before_parenthesis(content: str, place: int) -> int:
    """Return where a parenthesis begins that ends at an offset, else the offset."""
    low = max(0, place - _PARENTHESIS_LOOK_BACK)
    match = _PARENTHESIS.search(content[low:place])
    return place if match is None else low + match.start()


def _initials(content: str, tokens: Sequence[Word]) -> Iterator[tuple[str, str, str]]:
    if "(" not in content:
        return
    ends = {word.end: index for index, word in enumerate(tokens)}
    for match in _INITIALS.finditer(content):
        last = ends.get(match.start())
        first = None if last is None else _spelled_by(match.group(1), content, tokens, last)
        if first is not None and last is not None:
            name = content[tokens[first].start : tokens[last].end]
            yield match.group(1), name, f"initials ({match.group(1)})"


def _spelled_by(initials: str, content: str, tokens: Sequence[Word], last: int) -> int | None:
    """Return the first word of the phrase that has these initials, small words passed over."""
    wanted = [letter for letter in initials.lower() if letter.isalnum()]
    index = last + 1
    while wanted:
        index -= 1
        if (
            index < 0
            or last - index > 2 * INITIALS_MAX
            or "\n" in content[tokens[index].end : tokens[last].start]
        ):
            return None
        if tokens[index].folded[0] == wanted[-1]:
            wanted.pop()
        elif tokens[index].folded not in FUNCTION_WORDS:
            return None
    return index


def _first_names(
    found: Iterable[Found], people: Collection[str], *, has_pronoun: bool
) -> Iterator[tuple[str, str, str]]:
    items = [item for item in found if item.kind in _NAME_KINDS]
    names = {item.name for item in items}
    persons = set(people) | {
        i.name for i in items if has_pronoun and i.role in ("about", "speaker")
    }
    full: dict[str, set[str]] = {}
    for item in items:
        parts = item.surface.split()
        first = item.name.split(" ", 1)[0]
        is_full = 1 < len(parts) <= FULL_NAME_MAX_WORDS and first not in SPEAKER_KEYS
        if is_full and all(map(_is_name_part, parts)):
            full.setdefault(first, set()).add(item.name)
    for first, candidates in full.items():
        if first in names and len(candidates) == 1 and not persons.isdisjoint({first, *candidates}):
            yield first, next(iter(candidates)), "first name"


def _is_name_part(part: str) -> bool:
    return part[0].isupper() and part.rstrip(".").isalpha()


def _has_pronoun(tokens: Sequence[Word]) -> bool:
    return any(word.folded in _PERSONAL_PRONOUNS for word in tokens)


def _text(content: str, tokens: Sequence[Word], phrase: Phrase) -> str:
    return content[tokens[phrase.first].start : tokens[phrase.last].end]
