from __future__ import annotations

import pytest

from noctuary.embed.onnx import CHARS_PER_TOKEN, MARGIN_TOKENS, MAX_HEAD_CHARS, readable_head


def _words(text: str) -> int:
    return len(text.split())


def test_a_short_text_is_whole_and_not_even_counted() -> None:
    def refuse(text: str) -> int:
        raise AssertionError(text)

    text = "a" * (CHARS_PER_TOKEN * 10)
    assert readable_head(text, 10, refuse) is text


def test_a_long_text_is_cut_behind_the_margin() -> None:
    head = readable_head("ab " * 100_000, 256, _words)
    assert len(head) == CHARS_PER_TOKEN * 256
    assert _words(head) > 256 + MARGIN_TOKENS


@pytest.mark.parametrize("gap", [1_000, 30_000])
def test_the_head_grows_until_it_holds_enough_tokens(gap: int) -> None:
    head = readable_head(" " * gap + "ab " * 100_000, 256, _words)
    assert len(head) < 150_000
    assert _words(head) > 256 + MARGIN_TOKENS


def test_a_text_of_few_tokens_stays_whole() -> None:
    text = "x" * 100_000
    assert readable_head(text, 256, _words) is text


def test_a_huge_blob_is_cut_at_the_bound() -> None:
    assert len(readable_head("x" * 10_000_000, 256, _words)) == MAX_HEAD_CHARS
