"""Numbers as a text writes them, in digits or words, reduced to their values.

What belongs here: numerals of any script's digits, English number words, grouping, scales. What
does not: dates and times (moments), what a number counts (pairs).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from noctuary.compact.facts.lexicon import (
    ORDINALS,
    SCALES,
    SUFFIX_SCALES,
    TENS,
    UNITS,
    VAGUE_NUMBERS,
)
from noctuary.text.scripts import UNSPACED, regex_class

_MASK = "|"
"""Stands where something was read already: no letter, digit or mark of a number."""

MAX_DIGITS = 30
"""Longer runs of digits are read as text: no quantity has them."""

_SMALL = {**UNITS, **TENS, **ORDINALS}
_NAMES = "|".join(sorted((*_SMALL, *SCALES), key=len, reverse=True))
_WORD_RUN = re.compile(rf"\b(?:{_NAMES})(?:(?:\s+and\s+|\s+|-)(?:{_NAMES}))*\b", re.IGNORECASE)
_NUMBER_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_MAYBE_WORD = re.compile(
    r"\b(?:zero|one|tw|th|f[io]|s[ie]|ei|ni|te|el|hu|mi|bi|la|cr)", re.IGNORECASE
)

_NUMERAL = re.compile(
    r"(?<![\w.,])(?P<digits>\d{1,3}(?:(?P<group>[,.'’ \u00a0\u202f])\d{3}(?!\d)"
    r"(?:(?P=group)\d{3}(?!\d))*)(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    r"(?:\s?(?P<scale>hundred|thousand|million|billion|lakh|crore)\b"
    r"|(?P<suffix>k|m|mn|bn)(?![^\W\d_])|\s?(?P<cjk>[百千万萬亿億])|(?:st|nd|rd|th)\b)?",
    re.IGNORECASE,
)
_CJK_SCALES = {"百": 100, "千": 1_000, "万": 10_000, "萬": 10_000, "亿": 10**8, "億": 10**8}
_CJK_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "兩": 2, "〇": 0}
_CJK_NUMERAL = re.compile(
    "(?=[零〇一二两兩三四五六七八九十]*[十百千万萬])[一二两兩三四五六七八九十][零〇一二两兩三四五六七八九十百千万萬]+"
)
"""At least two characters with a scale among them: "十二", "五万"; "一一" and "万一" are words."""

_LETTERS = re.compile(r"[^\W\d_]+")
_CJK_RUN = re.compile("[零〇一二两兩三四五六七八九十百千万萬]+")


class Numeral(NamedTuple):
    """A number in a text.

    Attributes:
        start: First character.
        end: One past the last one, scale included.
        readings: Canonical values it may have: "1.000" is 1 or 1000.
    """

    start: int
    end: int
    readings: frozenset[str]


def plain_digits(text: str) -> str:
    """Return the text with the decimal digits of every script as 0 to 9, set apart from letters.

    Only from letters of scripts without spaces, where "12份" would else be one word; offsets
    change.
    """
    if text.isascii():
        return text
    digits = "".join(
        str(unicodedata.decimal(c)) if c.isdecimal() and not c.isascii() else c for c in text
    )
    return _unspaced_seam().sub(" ", digits)


@cache
def _unspaced_seam() -> re.Pattern[str]:
    letters = regex_class(UNSPACED)
    return re.compile(f"(?<=[{letters}])(?=[0-9A-Za-z])|(?<=[0-9A-Za-z])(?=[{letters}])")


def mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with a mark in place of each character of some spans; offsets stay."""
    parts: list[str] = []
    last = 0
    for start, end in sorted(spans):
        parts += (text[last:start], _MASK * (end - start))
        last = end
    return "".join(parts) + text[last:] if parts else text


def spell_out(text: str, *, claims: bool) -> str:
    """Return the text with English number words as digits: "twenty-five" becomes "25".

    Args:
        text: Any text; offsets change.
        claims: True leaves "one", "first" and "second" alone, which mostly count nothing.
    """
    if _MAYBE_WORD.search(text) is None:
        return text

    def spelled(match: re.Match[str]) -> str:
        # "1.5 million" is one number already.
        before = text[max(match.start() - 2, 0) : match.start()].rstrip()
        is_scale = before[-1:].isdigit() and match.group().split()[0].lower() in SCALES
        return match.group() if is_scale else _digits_of(match.group(), claims)

    return _WORD_RUN.sub(spelled, text)


def find_numerals(text: str) -> list[Numeral]:
    """Return the numbers written in digits, left to right.

    Args:
        text: What `plain_digits` and `spell_out` made of a text.
    """
    found: list[Numeral] = []
    for match in _NUMERAL.finditer(text):
        digits = match["digits"]
        if len(digits) <= MAX_DIGITS:
            values = _scaled(_readings(digits, match["group"]), match)
            found.append(Numeral(match.start(), match.end(), frozenset(map(_canonical, values))))
    if not text.isascii():
        for match in _CJK_NUMERAL.finditer(text):
            value = frozenset({str(_cjk_value(match.group()))})
            found.append(Numeral(match.start(), match.end(), value))
    return sorted(found)


def loose_numbers(text: str) -> set[str]:
    """Return what else in a source may stand for a number.

    Parts of numerals, vague words, number words of languages other than English, CJK numerals.
    """
    found = {_canonical(Decimal(run)) for run in re.findall(rf"\d{{1,{MAX_DIGITS}}}", text)}
    for word in _LETTERS.findall(text.casefold()):
        found.update(VAGUE_NUMBERS.get(word, ()))
    for run in _CJK_RUN.findall(text):
        found.add(str(_cjk_value(run)))
    return found


def _digits_of(run: str, claims: bool) -> str:
    words = [word for word in map(str.lower, _NUMBER_WORD.findall(run)) if word != "and"]
    if len(words) == 1 and claims and words[0] in VAGUE_NUMBERS:
        return run
    values: list[int] = []
    place = 0
    while place < len(words):
        value, place = _number(words, place)
        values.append(value)
    return " ".join(map(str, values)) + ("th" if words[-1] in ORDINALS else "")


def _number(words: Sequence[str], place: int) -> tuple[int, int]:
    """Read one number from `place` on: its value and the place behind it."""
    total = 0
    while True:
        value, place = _below_thousand(words, place)
        if place == len(words) or SCALES.get(words[place], 0) < 1_000:
            return total + (value or 0), place
        total += (1 if value is None else value) * SCALES[words[place]]
        place += 1
        if place == len(words) or words[place] in SCALES:
            return total, place


def _below_thousand(words: Sequence[str], place: int) -> tuple[int | None, int]:
    value, place = _below_hundred(words, place)
    if place < len(words) and words[place] == "hundred":
        more, place = _below_hundred(words, place + 1)
        return (1 if value is None else value) * 100 + (more or 0), place
    return value, place


def _below_hundred(words: Sequence[str], place: int) -> tuple[int | None, int]:
    if place == len(words) or words[place] in SCALES:
        return None, place
    value = _SMALL[words[place]]
    place += 1
    if words[place - 1] in TENS and place < len(words):
        unit = _SMALL.get(words[place], 0)
        if 1 <= unit <= 9:
            return value + unit, place + 1
    return value, place


def _readings(digits: str, group: str | None) -> list[Decimal]:
    if group is None:
        return [Decimal(digits.replace(",", "."))]
    whole, *rest = re.split(r"[.,](?=\d+$)", digits) if _has_fraction(digits, group) else [digits]
    bare = Decimal(re.sub(r"\D", "", whole) + ("." + rest[0] if rest else ""))
    # One group after a point or a comma may be a fraction: 1.000 is 1 or 1000.
    if not rest and group in ".," and digits.count(group) == 1:
        return [bare, Decimal(digits.replace(",", "."))]
    return [bare]


def _has_fraction(digits: str, group: str) -> bool:
    last = max(digits.rfind("."), digits.rfind(","))
    return last >= 0 and digits[last] != group


def _scaled(values: Sequence[Decimal], match: re.Match[str]) -> list[Decimal]:
    if match["scale"]:
        return [value * SCALES[match["scale"].lower()] for value in values]
    if match["cjk"]:
        return [value * _CJK_SCALES[match["cjk"]] for value in values]
    if match["suffix"]:
        # "5m" is five metres or five million.
        return [*values, *(value * SUFFIX_SCALES[match["suffix"].lower()] for value in values)]
    return list(values)


def _canonical(value: Decimal) -> str:
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text.lstrip("0") or "0"


def _cjk_value(run: str) -> int:
    total = current = 0
    for char in run:
        if char in _CJK_DIGITS:
            current = _CJK_DIGITS[char]
        elif char == "十":
            total, current = total + (current or 1) * 10, 0
        else:
            total, current = (total + current or 1) * _CJK_SCALES[char], 0
    return total + current
