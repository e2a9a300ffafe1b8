"""What numbers count: "3 black cats" counts cats and what is black.

What belongs here: numbers with the words behind them. What does not: their comparison
(contradictions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from noctuary.compact.facts.moments import find_moments
from noctuary.compact.facts.numerals import find_numerals, mask, plain_digits, spell_out
from noctuary.graph.fold import words
from noctuary.graph.identifiers import find_identifiers
from noctuary.text.stems import stem
from noctuary.text.stopwords import is_stop_word

WORDS_BEHIND = 2
"""Content words behind a number that it may count. More would reach the next thing."""

WINDOW_CHARS = 80
"""Text behind a number in which they are looked for; bounds the work per number."""

_BREAK = re.compile(r"[.!?,;:()\n。，、！？|]")


def counted_things(texts: Iterable[str], *, claims: bool) -> dict[str, set[str]]:
    """Return, by stem of what is counted, the values that count it in any of the texts."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for readings, things in count_phrases(text, claims=claims):
            for thing in things:
                found.setdefault(thing, set()).update(readings)
    return found


def count_phrases(text: str, *, claims: bool) -> list[tuple[frozenset[str], list[str]]]:
    """Return the readings of each number with the stems behind it; dates and times count nothing.

    Args:
        text: Any text.
        claims: Read as in a summary ("one" counts nothing) or as in a source.
    """
    plain = plain_digits(text)
    plain = mask(plain, [(found.start, found.end) for found in find_identifiers(plain)])
    plain = spell_out(plain, claims=claims)
    plain = mask(plain, [(m.start, m.end) for m in find_moments(plain, claims=claims)])
    numerals = find_numerals(plain)
    ends = [*(numeral.start for numeral in numerals[1:]), len(plain)]
    return [
        (numeral.readings, things)
        for numeral, end in zip(numerals, ends, strict=False)
        if (things := _things(plain[numeral.end : min(end, numeral.end + WINDOW_CHARS)]))
    ]


def _things(behind: str) -> list[str]:
    near = _BREAK.split(behind, maxsplit=1)[0]
    content = [word.folded for word in words(near) if not is_stop_word(word.folded)]
    return [stem(word) for word in content[:WORDS_BEHIND]]
