from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.sources.injected import words_of
from noctuary.text.marks import (
    QUESTION_MARKS,
    asking_share,
    chars_per_token,
    estimate_tokens,
    unmarked,
    visible,
    visible_line,
)
from tests.support.terminal import BIDI, H

HOSTILE = f"{H}\r\ud800{BIDI}"
TEXTS = st.text(st.characters() | st.sampled_from(HOSTILE), max_size=40)


@given(TEXTS)
@example(HOSTILE)
def test_nothing_that_steers_is_left(text: str) -> None:
    for shown in (visible(text), visible_line(text)):
        left = {c for c in shown.replace("\r\n", "") if unicodedata.category(c) in ("Cc", "Cs")}
        assert left <= {"\n", "\t"}
        assert not set(shown) & set(BIDI)
        shown.encode("utf-8")
    assert not set(visible_line(text)) & set("\r\n\t")
    assert visible(visible(text)) == visible(text)


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_marked_json_holds_the_same_text(value: object) -> None:
    written = json.dumps(value, ensure_ascii=False, indent=1)
    # Two surrogates in a row are one character to every JSON reader.
    assert json.loads(visible(written)) == json.loads(json.dumps(value))


@given(TEXTS)
def test_a_marked_copy_is_the_same_wording(text: str) -> None:
    assert words_of(visible(text)) == words_of(text)
    assert visible(unmarked(visible(text))) == visible(unmarked(text))


def test_what_scripts_and_emoji_need_stays() -> None:
    for text in ("👩‍👩‍👧 ❤️ 🏳️‍🌈", "می‌خواهم", "क्‍ष", "葛󠄀城", "ភាសា​ខ្មែរ", "a\tb\n", "a\r\nb", "—“é"):
        assert visible(text) == text


def test_a_mark_is_the_character_as_json_writes_it() -> None:
    assert visible("\x1b[31m") == "\\u001b[31m"
    assert visible("a\U000e0041") == "a\\udb40\\udc41"
    assert visible("x\ufe0f\ufe01\U000e0100") == "x\ufe0f\\ufe01\\udb40\\udd00"


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


@pytest.mark.parametrize(
    ("turn", "share"),
    [
        ("Ana: Where did you go?", 1.0),
        ("Ana: Why?", 1.0),  # her name is no part of what she says
        ("We went to the lake. Did you swim?", 13 / 33),
        ("说完了。你去了吗？", 5 / 9),
        ('She asked "why?" (twice) and left.', 0.0),
        ("So the answer is 12.5?", 1.0),
        ("We went to the lake.", 0.0),
        ("", 0.0),
        ("?", 1.0),
    ],
)
def test_a_turn_asks_as_far_as_its_sentences_do(turn: str, share: float) -> None:
    assert asking_share(turn) == pytest.approx(share)


@given(TEXTS | st.text("a.!?？。: \n", max_size=30))
def test_what_asks_is_a_part_of_the_turn(turn: str) -> None:
    share = asking_share(turn)
    assert 0.0 <= share <= 1.0
    assert share == 0.0 or any(mark in turn for mark in QUESTION_MARKS)
    assert (
        turn.strip() == ""
        or asking_share("".join(c for c in turn if c not in QUESTION_MARKS)) == 0.0
    )
