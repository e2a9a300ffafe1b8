"""Folding: the differences between spellings that recall must not see.

What belongs here: Unicode normal form, case, accents, vowel marks, invisible characters. What does
not: where a word begins and ends (noctuary.text.tokens).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from noctuary.text.scripts import ranges_class

_PIECE_CHARS = 512
"""Normalization sorts a run of marks in quadratic time; pieces bound what a hostile text can
cost."""
_MAX_MARKS = 8
"""Marks kept in a row: no language stacks more, and "zalgo" text stacks hundreds."""

_INVISIBLE = dict.fromkeys(
    (
        *(0x00AD, 0x034F, 0x061C, 0x0640, 0x180E, 0xFEFF),  # soft hyphen, joiners, tatweel, BOM
        *range(0x200B, 0x2010),  # zero-width space and joiners, direction marks
        *range(0x202A, 0x202F),  # direction embeddings
        *range(0x2060, 0x206A),  # word joiner, direction isolates
        *range(0xFE00, 0xFE10),  # variation selectors
    )
)
_LATIN_LETTERS = str.maketrans(
    {"ł": "l", "đ": "d", "ø": "o", "ı": "i", "ħ": "h", "æ": "ae", "œ": "oe"}
)
"""Letters that Unicode does not decompose although their readers type the plain one."""

_DROPPED_MARKS = ranges_class(
    (
        *((0x0300, 0x036F), (0x0483, 0x0487), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F)),
        *((0x0670, 0x0670), (0x06D6, 0x06ED), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F)),
    )
)
_KEPT_MARKS = ranges_class(
    (
        *((0x0900, 0x0963), (0x0971, 0x0DFF), (0x0F18, 0x0FBC), (0x1712, 0x1773), (0x1A17, 0x1C7F)),
        *((0x3099, 0x309A), (0xA802, 0xAAFF)),
    )
)
MARKS = _DROPPED_MARKS + _KEPT_MARKS
"""Inside of a character class: marks that belong to the word they stand in though `\\w` lacks them.

The blocks of the Indic scripts are taken whole: their vowel signs are marks, and a word cut at each
vowel is no word.
"""

_PIECE = re.compile(rf"\S{{1,{_PIECE_CHARS}}}|\s+")
_CYRILLIC_BREVE = re.compile("([\u0438\u0418])\u0306")


def normalize(text: str) -> str:
    """Return the text in NFKC without invisible characters; lone surrogates pass through."""
    if text.isascii():
        return text
    text = _mark_run().sub(r"\1", text.translate(_INVISIBLE))
    if len(text) <= _PIECE_CHARS:
        return unicodedata.normalize("NFKC", text)
    return "".join(unicodedata.normalize("NFKC", piece) for piece in _PIECE.findall(text))


def fold(word: str) -> str:
    """Return a normalized word without case, accents, stress marks and vowel points.

    Cyrillic "й" keeps its breve (it is a letter), "ё" becomes "е" as Russians write it.
    """
    if word.isascii():
        return word.lower()
    word = unicodedata.normalize("NFD", word.casefold())
    word = _dropped().sub("", _CYRILLIC_BREVE.sub("\u0439", word))
    return unicodedata.normalize("NFC", word).translate(_LATIN_LETTERS)


# Compiled at the first text that is not ASCII: most processes never need them.
@cache
def _mark_run() -> re.Pattern[str]:
    return re.compile(rf"([{_DROPPED_MARKS}]{{{_MAX_MARKS}}})[{_DROPPED_MARKS}]+")


@cache
def _dropped() -> re.Pattern[str]:
    return re.compile(f"[{_DROPPED_MARKS}]+")
