from __future__ import annotations

import json
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.sources.injected import words_of
from noctuary.text.marks import unmarked, visible, visible_line
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
