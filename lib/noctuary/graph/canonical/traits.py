"""What guards and spelling rules read off one name: words, case, numbers, versions, qualifier."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from noctuary.graph.canonical.keys import ARTICLE, singular
from noctuary.graph.canonical.lexicon import STAGES
from noctuary.graph.canonical.stats import NameStats
from noctuary.graph.fold import fold_name, fold_word, word_pattern
from noctuary.graph.lexicon import FUNCTION_WORDS, NAME_CONNECTORS, NUMBER_WORDS

ROMAN_MAX_CHARS = 5
"""Longest roman numeral read as a number (xviii): longer ones are words or years in stone."""

_ROMAN = re.compile(r"(?=[ivx])(x{0,3})(ix|iv|v?i{0,3})")
_ROMAN_VALUES = {"i": 1, "v": 5, "x": 10}
_DIGITS = re.compile(r"\d+")
_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_QUALIFIED = re.compile(r"\s*(.*\S)\s*[(（]([^()（）]+)[)）]\s*")


@dataclass(frozen=True, slots=True)
class Traits:
    """A name as the guards see it.

    Attributes:
        stats: The name itself.
        tokens: Its words.
        capitals: Words with a capital in every spelling; connectors and the article left out, other
            function words not: New South Wales is not South Wales.
        content: Its words in the singular, without function words.
        common: Some spelling writes its last word without a capital.
        proper: Every word that counts carries a capital in every spelling.
        numbers: Digit runs, roman numerals and number words, sorted.
        letters: One-letter words, sorted: plan a, plan b.
        versions: Dotted versions and words such as beta, sorted.
        base: Folded name without the parenthesis at its end; "" where none stands in each spelling.
        qualifier: What stands in that parenthesis, folded; "" as above.
    """

    stats: NameStats
    tokens: tuple[str, ...]
    capitals: frozenset[str]
    content: frozenset[str]
    common: bool
    proper: bool
    numbers: tuple[str, ...]
    letters: tuple[str, ...]
    versions: tuple[str, ...]
    base: str
    qualifier: str


def read_traits(stats: NameStats) -> Traits:
    """Return the traits of a name; pure."""
    tokens = tuple(stats.name.split())
    capitals, lower = _cases(stats.surfaces)
    named = capitals - lower
    counted = set(tokens) - NAME_CONNECTORS - FUNCTION_WORDS
    base, qualifier = _qualified(stats.surfaces)
    return Traits(
        stats=stats,
        tokens=tokens,
        capitals=frozenset((named & set(tokens)) - NAME_CONNECTORS - {ARTICLE}),
        content=frozenset(singular(token) for token in tokens if token not in FUNCTION_WORDS),
        common=tokens[-1] in lower,
        proper=bool(counted) and counted <= named,
        numbers=tuple(sorted(number for token in tokens for number in _numbers(token))),
        letters=tuple(sorted(token for token in tokens if len(token) == 1 and token.isalpha())),
        versions=_versions(stats.surfaces, tokens),
        base=base,
        qualifier=qualifier,
    )


def _cases(surfaces: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the words seen with a capital or a digit in front, and those seen without."""
    capitals: set[str] = set()
    lower: set[str] = set()
    for surface in surfaces:
        for text in word_pattern(surface).findall(surface):
            (capitals if _is_shaped(text) else lower).update(fold_word(text).split())
    return capitals, lower


def _is_shaped(word: str) -> bool:
    """Say whether a word has a capital anywhere or a digit in front."""
    first = word[0]
    return first.isupper() or first.isdigit() or (not word.islower() and _has_capital(word))


def _has_capital(word: str) -> bool:
    return any(char.isupper() for char in word)


def _numbers(token: str) -> list[str]:
    if token in NUMBER_WORDS:
        return [str(NUMBER_WORDS[token])]
    if len(token) <= ROMAN_MAX_CHARS and _ROMAN.fullmatch(token):
        return [str(_roman_value(token))]
    return [digits.lstrip("0") or "0" for digits in _DIGITS.findall(token)]


def _roman_value(token: str) -> int:
    values = [_ROMAN_VALUES[char] for char in token]
    following = [*values[1:], 0]
    return sum(
        -value if value < after else value for value, after in zip(values, following, strict=True)
    )


def _versions(surfaces: Sequence[str], tokens: Sequence[str]) -> tuple[str, ...]:
    dotted = {match for surface in surfaces for match in _VERSION.findall(surface)}
    return tuple(sorted(dotted | (STAGES & set(tokens))))


def _qualified(surfaces: Sequence[str]) -> tuple[str, str]:
    matches = [_QUALIFIED.fullmatch(surface) for surface in surfaces]
    found = {
        (fold_name(match.group(1)), fold_name(match.group(2)))
        for match in matches
        if match is not None
    }
    if len(found) != 1 or None in matches:
        return "", ""
    base, qualifier = found.pop()
    # A call, a plural in brackets ("term(s)") and a bare function word qualify nothing.
    if not base or len(qualifier) < 2 or qualifier in FUNCTION_WORDS:
        return "", ""
    return base, qualifier
