from __future__ import annotations

import pytest

from noctuary.text.marks import MAX_SPEAKER_CHARS, find_speaker


@pytest.mark.parametrize(
    ("content", "speaker"),
    [
        ("Caroline: Hey Mel!", "Caroline"),
        ("  Dr. Ana María : hola", "Dr. Ana María"),
        ("小明：你好", "小明"),
        ("user:\nlong text", "user"),
        ("no speaker here", None),
        ("https://example.org is: fine", None),
        ("12:30 we met", None),
        (": nobody", None),
        ("--: dashes", None),
        ("a line\nBob: text", None),
        ("x" * MAX_SPEAKER_CHARS + ": ok", "x" * MAX_SPEAKER_CHARS),
        ("x" * (MAX_SPEAKER_CHARS + 1) + ": too long", None),
        ("", None),
    ],
)
def test_speaker(content: str, speaker: str | None) -> None:
    assert find_speaker(content) == speaker
