"""Which script a character belongs to, by code point range.

What belongs here: the ranges and the small questions asked of them. What does not: what to do with
a script (noctuary.text.tokens). The ranges name letters only; punctuation of a script is OTHER.
Source: Unicode Standard, Blocks.txt (ranges of the living scripts, rare historic blocks left out).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache


class Script(StrEnum):
    """The scripts that the tokenizer, the language guess or a report tells apart."""

    LATIN = "latin"
    GREEK = "greek"
    CYRILLIC = "cyrillic"
    ARABIC = "arabic"
    HEBREW = "hebrew"
    HAN = "han"
    KANA = "kana"
    HANGUL = "hangul"
    SOUTHEAST_ASIAN = "southeast_asian"
    OTHER = "other"


CJK = frozenset({Script.HAN, Script.KANA, Script.HANGUL})
"""Scripts whose runs are indexed as character n-grams by every CJK analyser."""

UNSPACED = CJK | {Script.SOUTHEAST_ASIAN}
"""CJK plus Thai, Lao, Myanmar and Khmer: spaces do not separate words there."""

_RANGES: tuple[tuple[int, int, Script], ...] = (
    (0x0041, 0x005A, Script.LATIN),
    (0x0061, 0x007A, Script.LATIN),
    (0x00AA, 0x00AA, Script.LATIN),
    (0x00BA, 0x00BA, Script.LATIN),
    (0x00C0, 0x00D6, Script.LATIN),
    (0x00D8, 0x00F6, Script.LATIN),
    (0x00F8, 0x02B8, Script.LATIN),
    (0x0370, 0x03FF, Script.GREEK),
    (0x0400, 0x052F, Script.CYRILLIC),
    (0x05D0, 0x05F2, Script.HEBREW),
    (0x0620, 0x064A, Script.ARABIC),
    (0x066E, 0x06D3, Script.ARABIC),
    (0x06EE, 0x06FF, Script.ARABIC),
    (0x0750, 0x077F, Script.ARABIC),
    (0x08A0, 0x08C9, Script.ARABIC),
    (0x0E01, 0x0E3A, Script.SOUTHEAST_ASIAN),
    (0x0E40, 0x0E4E, Script.SOUTHEAST_ASIAN),
    (0x0E81, 0x0ECE, Script.SOUTHEAST_ASIAN),
    (0x1000, 0x103F, Script.SOUTHEAST_ASIAN),
    (0x1050, 0x109F, Script.SOUTHEAST_ASIAN),
    (0x1100, 0x11FF, Script.HANGUL),
    (0x1780, 0x17D3, Script.SOUTHEAST_ASIAN),
    (0x1C80, 0x1C8F, Script.CYRILLIC),
    (0x1D00, 0x1DBF, Script.LATIN),
    (0x1E00, 0x1EFF, Script.LATIN),
    (0x1F00, 0x1FFF, Script.GREEK),
    (0x2183, 0x2184, Script.LATIN),
    (0x2C60, 0x2C7F, Script.LATIN),
    (0x2DE0, 0x2DFF, Script.CYRILLIC),
    (0x2E80, 0x2FDF, Script.HAN),
    (0x3005, 0x3007, Script.HAN),
    (0x3021, 0x3029, Script.HAN),
    (0x3031, 0x3035, Script.KANA),
    (0x3041, 0x309A, Script.KANA),
    (0x309D, 0x309F, Script.KANA),
    (0x30A1, 0x30FA, Script.KANA),
    (0x30FC, 0x30FF, Script.KANA),
    (0x3105, 0x312F, Script.HAN),
    (0x3131, 0x318E, Script.HANGUL),
    (0x31A0, 0x31BF, Script.HAN),
    (0x31F0, 0x31FF, Script.KANA),
    (0x3400, 0x4DBF, Script.HAN),
    (0x4E00, 0x9FFF, Script.HAN),
    (0xA640, 0xA69F, Script.CYRILLIC),
    (0xA720, 0xA7FF, Script.LATIN),
    (0xA960, 0xA97C, Script.HANGUL),
    (0xAB30, 0xAB6F, Script.LATIN),
    (0xAC00, 0xD7A3, Script.HANGUL),
    (0xD7B0, 0xD7FB, Script.HANGUL),
    (0xF900, 0xFAD9, Script.HAN),
    (0xFB00, 0xFB06, Script.LATIN),
    (0xFB1D, 0xFB4F, Script.HEBREW),
    (0xFB50, 0xFDFB, Script.ARABIC),
    (0xFE70, 0xFEFC, Script.ARABIC),
    (0xFF21, 0xFF3A, Script.LATIN),
    (0xFF41, 0xFF5A, Script.LATIN),
    (0xFF66, 0xFF9D, Script.KANA),
    (0xFFA0, 0xFFDC, Script.HANGUL),
    (0x1B000, 0x1B16F, Script.KANA),
    (0x20000, 0x3134F, Script.HAN),
)
_STARTS = tuple(start for start, _, _ in _RANGES)


def script_of(char: str) -> Script:
    """Return the script of one character; OTHER for digits, punctuation, emoji, surrogates."""
    code = ord(char)
    index = bisect_right(_STARTS, code) - 1
    if index < 0:
        return Script.OTHER
    _, end, script = _RANGES[index]
    return script if code <= end else Script.OTHER


def is_cjk(char: str) -> bool:
    """Tell whether one character is Han, kana or Hangul."""
    return script_of(char) in CJK


def dominant_script(text: str) -> Script:
    """Return the script of most letters of a text; OTHER without any, the first on a tie."""
    counts: dict[Script, int] = {}
    for char in text:
        script = script_of(char)
        if script is not Script.OTHER:
            counts[script] = counts.get(script, 0) + 1
    return max(counts, key=counts.__getitem__) if counts else Script.OTHER


@lru_cache(maxsize=16)
def regex_class(scripts: frozenset[Script]) -> str:
    """Return the inside of a regex character class that matches the letters of the scripts."""
    return ranges_class((lo, hi) for lo, hi, script in _RANGES if script in scripts)


def ranges_class(ranges: Iterable[tuple[int, int]]) -> str:
    """Return the inside of a regex character class for inclusive code point ranges."""
    return "".join(f"\\U{lo:08x}-\\U{hi:08x}" for lo, hi in ranges)
