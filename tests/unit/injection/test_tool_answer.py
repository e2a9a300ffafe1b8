from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.mcp_view import RecallAnswer, plain
from noctuary.sources.injected import LOOKED_AT_CHARS, ORIGIN_FIELD, TAG, is_tool_answer

BEGINNING = f'{{"{ORIGIN_FIELD}":"{TAG}"'


def answer(query: str) -> str:
    found = RecallAnswer(query=query, memories=[], warnings=[], elapsed_ms=1.0)
    return json.dumps(plain(found), ensure_ascii=False, separators=(",", ":"))


@given(query=st.text(), cut=st.integers(min_value=len(BEGINNING), max_value=500))
def test_an_answer_is_known_whole_and_cut_and_indented(query: str, cut: int) -> None:
    text = answer(query)
    assert is_tool_answer(text)
    assert is_tool_answer(text[:cut])
    assert is_tool_answer("\n " + json.dumps(json.loads(text), indent=2))


@given(query=st.text())
def test_an_answer_is_known_in_the_list_that_agents_wrap_it_in(query: str) -> None:
    wrapped = {"content": [{"type": "text", "text": answer(query)}], "isError": False}
    assert is_tool_answer(json.dumps(wrapped))
    assert is_tool_answer(json.dumps(json.dumps(wrapped)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        BEGINNING[:-2],
        f'{{"query":"{ORIGIN_FIELD}","{ORIGIN_FIELD}":"{TAG}"}}',
        f'{{"{ORIGIN_FIELD}":"{TAG}er"}}',
        f'"{ORIGIN_FIELD}":"{TAG}"',
        "x" * LOOKED_AT_CHARS + BEGINNING,
    ],
)
def test_what_only_speaks_of_it_is_no_answer(text: str) -> None:
    assert not is_tool_answer(text)
