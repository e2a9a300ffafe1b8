from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.prompt import ESTIMATE, TokenCounter, vocabulary_counter
from noctuary.embed.lean import WordPiece
from noctuary.text.marks import estimate_tokens

VOCABULARY = WordPiece(
    "\n".join(
        ["[UNK]", "[CLS]", "[SEP]", "the", "key", "##s", "un", "##lock", ".", "门", "-"]
    ).encode()
)
pieces = st.text(max_size=40).map(lambda text: f"{text}\n")


@pytest.fixture
def counter() -> TokenCounter:
    return vocabulary_counter("tiny", VOCABULARY)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" \n\t", 0),
        ("The KEYS.", 4),
        ("unlock the key", 4),
        ("门门", 2),
        ("zzz", 3),
        ("x" * 5_000, 5_000),
        ("[CLS]", 5),
        ("keyz", 4),
    ],
)
def test_pieces_are_counted_and_what_cannot_be_spelled_by_its_characters(
    counter: TokenCounter, text: str, tokens: int
) -> None:
    assert counter.count(text) == tokens


@given(st.lists(pieces, max_size=6))
def test_the_tokens_of_a_text_are_the_sum_of_those_of_its_pieces(texts: list[str]) -> None:
    counter = vocabulary_counter("tiny", VOCABULARY)
    assert counter.count("".join(texts)) == sum(map(counter.count, texts))


@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=40), max_size=6))
def test_the_sum_of_estimates_is_never_below_the_estimate_of_the_whole(texts: list[str]) -> None:
    counter = ESTIMATE
    assert sum(map(counter.count, texts)) >= counter.count("".join(texts))


@given(st.text())
def test_the_estimate_is_that_of_the_project(text: str) -> None:
    assert ESTIMATE.count(text) == estimate_tokens(text)


def test_each_says_what_counts() -> None:
    assert ESTIMATE.label == "estimate"
    assert vocabulary_counter("all-MiniLM-L6-v2", VOCABULARY).label == "tokenizer:all-MiniLM-L6-v2"
