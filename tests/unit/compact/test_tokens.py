from __future__ import annotations

import pytest

from mnemon.compact.tokens import chars_per_token, estimate_tokens


@pytest.mark.parametrize(
    ("text", "ratio", "tokens"),
    [
        ("", 4.0, 0),
        ("a", 4.0, 1),
        ("abcd", 4.0, 1),
        ("abcde", 4.0, 2),
        ("été à", 4.0, 2),
        ("привет", 2.5, 3),
        ("مرحبا", 2.5, 2),
        ("שלום", 2.5, 2),
        ("你好世界", 1.6, 3),
        ("ひらがな", 1.6, 3),
        ("カタカナ", 1.6, 3),
        ("한국어", 1.6, 2),
        ("ten ascii 你", 1.6, 7),
        ("привет 你", 1.6, 5),
    ],
)
def test_the_presence_of_a_script_decides_the_ratio(text: str, ratio: float, tokens: int) -> None:
    assert chars_per_token(text) == ratio
    assert estimate_tokens(text) == tokens


def test_length_counts_utf16_units() -> None:
    assert estimate_tokens("\U0001f600" * 4) == 2
    assert estimate_tokens("\ud800abc") == 1
