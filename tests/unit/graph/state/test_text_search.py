"""Searching the texts of a batch, against searching each by itself."""

from __future__ import annotations

from typing import Any

import pytest

from noctuary.graph.extract import Dictionary, Tokens, find_matches
from noctuary.graph.state import search_texts, word_code

NAMES = {"blue ridge": False, "redis": True, "ridge": False, "公司": False}
TEXTS: list[tuple[int, str, list[str]]] = [
    (100, "we saw Blue Ridge and redis", ["ridge"]),
    (101, "Redis on the ridge", ["redis"]),
    (102, "我的公司 and 公司", []),
    (103, "nothing here", []),
    (104, "", []),
]


@pytest.mark.parametrize("words", [True, False])
def test_a_batch_gives_what_each_text_gives(words: bool) -> None:
    dictionary = Dictionary(NAMES)
    found = search_texts(TEXTS, dictionary, words=words)
    matched: list[tuple[Any, ...]] = []
    codes: list[tuple[int, list[int]]] = []
    for mid, text, own in TEXTS:
        here = find_matches(text, dictionary, own)
        matched += [(mid, m.name, m.start, m.end, text[m.start : m.end]) for m in here]
        codes.append((mid, sorted({word_code(word) for word in Tokens(text).folded})))
    assert found == {"matched": matched, "word": codes if words else []}
    assert matched
