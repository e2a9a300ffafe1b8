from __future__ import annotations

import re
import unicodedata

import pytest

from noctuary.text.tokens import (
    UNSPACED,
    Script,
    dominant_script,
    regex_class,
    script_of,
)


@pytest.mark.parametrize(
    ("char", "script"),
    [
        ("a", Script.LATIN),
        ("Z", Script.LATIN),
        ("é", Script.LATIN),
        ("ř", Script.LATIN),
        ("ấ", Script.LATIN),
        ("λ", Script.GREEK),
        ("ё", Script.CYRILLIC),
        ("ї", Script.CYRILLIC),
        ("ש", Script.HEBREW),
        ("م", Script.ARABIC),
        ("漢", Script.HAN),
        ("𠀋", Script.HAN),
        ("ひ", Script.KANA),
        ("ー", Script.KANA),
        ("한", Script.HANGUL),
        ("ไ", Script.SOUTHEAST_ASIAN),
        ("ह", Script.OTHER),
        ("7", Script.OTHER),
        ("。", Script.OTHER),
        ("×", Script.OTHER),
        ("🎉", Script.OTHER),
        ("\x00", Script.OTHER),
        ("\ud800", Script.OTHER),
    ],
)
def test_script_of_a_character(char: str, script: Script) -> None:
    assert script_of(char) is script


@pytest.mark.parametrize(
    ("prefix", "script"),
    [
        ("CJK UNIFIED IDEOGRAPH", Script.HAN),
        ("CYRILLIC SMALL LETTER", Script.CYRILLIC),
        ("HIRAGANA LETTER", Script.KANA),
        ("KATAKANA LETTER", Script.KANA),
        ("HANGUL SYLLABLE", Script.HANGUL),
        ("HEBREW LETTER", Script.HEBREW),
        ("THAI CHARACTER", Script.SOUTHEAST_ASIAN),
        ("LATIN SMALL LETTER", Script.LATIN),
    ],
)
def test_ranges_agree_with_the_names_of_the_basic_plane(prefix: str, script: Script) -> None:
    letters = [
        char
        for char in map(chr, range(0x10000))
        if unicodedata.name(char, "").startswith(prefix) and char.isalpha()
    ]
    assert letters
    assert {script_of(char) for char in letters} == {script}


def test_regex_class_matches_exactly_the_letters_of_its_scripts() -> None:
    pattern = re.compile(f"[{regex_class(UNSPACED)}]")
    for code in range(0x20000 + 10):
        char = chr(code)
        assert bool(pattern.match(char)) is (script_of(char) in UNSPACED)


def test_dominant_script_counts_letters_only() -> None:
    assert dominant_script("我用 Python 写了很多很多代码") is Script.HAN
    assert dominant_script("2024-04-03 !!! 🎉") is Script.OTHER
    assert dominant_script("") is Script.OTHER
    assert dominant_script("ab вг") is Script.LATIN
