from __future__ import annotations

import pytest

from noctuary.text.marks import chars_per_token, estimate_tokens


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("plain English", 4.0),
        ("naïve café", 4.0),
        ("one 字 is enough", 1.6),
        ("カタカナ", 1.6),
        ("한국어", 1.6),
        ("один Привет", 2.5),
        ("שלום", 2.5),
        ("مرحبا", 2.5),
        ("Привет 字", 1.6),
    ],
)
def test_a_script_decides_by_being_there(text: str, ratio: float) -> None:
    assert chars_per_token(text) == ratio


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("word", 1), ("words", 2), ("字字字字", 3), ("Привет", 3), ("é" * 8, 2)],
)
def test_a_token_begun_counts_whole(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_length_is_in_utf16_units_and_a_lone_surrogate_is_one() -> None:
    assert estimate_tokens("\U0001f600" * 4) == 2
    assert estimate_tokens("\ud800abc") == 1
