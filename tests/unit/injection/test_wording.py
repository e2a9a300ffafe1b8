from __future__ import annotations

import pytest

from noctuary.sources.injected import (
    ANCHOR_BYTES,
    HASH_BYTES,
    hash_anchor,
    hash_words,
    size_bytes,
    unescaped,
    words_of,
)

TEXT = 'Ana said: the spare key hangs in the "pantry", left of A & B <here>.'


@pytest.mark.parametrize(
    "copied",
    [
        "  Ana said:\n the spare key\thangs in the pantry,\nleft of A & B <here>",
        "- Ana said: the spare key hangs in the 'pantry', left of A &amp; B &lt;here&gt;.",
        "> **Ana said: the spare key hangs in the “pantry”, left of A & B <here>.**",
        "ana said - the spare key hangs in the «pantry», left of A &amp;amp; B &lt;here>",
        "Ana said: the _spare key_ hangs in the `pantry`, left of A & B <here>…",
        "Ana said: the spare\u00a0key hangs in the pan\u200btry, left of A & B <here>",
        "Ａna said: the spare key hangs in the pantry, left of A & B <here>",
    ],
)
def test_copying_changes_no_word(copied: str) -> None:
    assert words_of(copied) == words_of(TEXT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the limit is 5", "the limit is -5"),
        ("the key is there", "the key is there?"),
        ("written in C", "written in C++"),
        ("at 12:30", "at 1230"),
        ("v1.2", "v12"),
        ("snake_case", "snakecase"),
        ("2*3", "23"),
        ("a b", "ab"),
        ("Ñandú", "Nandu"),
    ],
)
def test_what_may_be_news_stays(one: str, other: str) -> None:
    assert words_of(one) != words_of(other)


def test_texts_without_words_have_none() -> None:
    assert words_of("") == words_of(' \n> - * "" … ``` ---') == []
    assert words_of("👍") == ["👍"]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("&lt;b&gt; &amp; c", "<b> & c"),
        ("&amp;amp;lt;", "<"),
        ("&amp;quot;", "&quot;"),
        ("AT&T; &", "AT&T; &"),
        ("nothing", "nothing"),
    ],
)
def test_escapes_are_read_however_deep(text: str, plain: str) -> None:
    assert unescaped(text) == plain


def test_hashes_depend_on_words_alone() -> None:
    assert hash_words(["a", "b"]) == hash_words(("a", "b"))
    assert hash_words(["a", "b"]) != hash_words(["ab"])
    assert len(hash_words(["a"])) == HASH_BYTES
    assert hash_anchor(["a", "b", "c", "d"]) == hash_anchor(["a", "b", "c", "e"])
    assert hash_anchor(["a", "b"]) != hash_anchor(["a", "b", "c"])
    assert len(hash_anchor(["a"])) == ANCHOR_BYTES


def test_size_counts_bytes_without_spaces() -> None:
    assert size_bytes(words_of("a bc.")) == 3
    assert size_bytes(words_of("钥匙")) == 6
