from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.transcripts import Part, call_texts, render_tool, shorten


@given(st.text(max_size=3_000), st.integers(0, 500))
def test_a_shortened_text_is_one_line_within_its_bound(text: str, chars: int) -> None:
    short = shorten(text, chars)
    assert len(short) <= chars
    assert len(short.splitlines()) <= 1
    whole = " ".join(text.split())
    if len(whole) <= chars and len(text) <= 8 * chars:
        assert short == whole


def test_beginning_and_end_of_a_long_text_are_kept() -> None:
    short = shorten("begin " + "x" * 10_000 + " Error: no such table", 60)
    assert short.startswith("begin xxx")
    assert short.endswith("o such table")
    assert " ... " in short
    assert len(short) == 60


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ({"command": "ls -la"}, ("ls -la",)),
        ({"path": "a.py", "limit": 3}, ("path=a.py", "limit=3")),
        ({"todos": [{"id": 1}]}, ('[{"id": 1}]',)),
        ({}, ()),
        (None, ()),
        ('{"command": ["ls", "-la"]}', ('["ls", "-la"]',)),
        ("*** Begin Patch", ("*** Begin Patch",)),
        ("[1, 2]", ("[1, 2]",)),
    ],
)
def test_arguments_are_texts_in_their_order(arguments: object, texts: tuple[str, ...]) -> None:
    assert call_texts(arguments) == texts


def test_arguments_that_nest_too_deep_are_nothing_to_show() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert call_texts({"a": deep, "b": "x"}) == ("a=", "b=x")


def test_calls_and_results_are_named() -> None:
    call, result = Part("call:1", "call", "", ()), Part("result:1", "result", "", ())
    failed = result._replace(is_error=True)
    assert render_tool(call, "Bash", ("ls", "-la"), 20) == "[Bash: ls; -la]"
    assert render_tool(call, "Bash", ("ls -la",), 0) == "[Bash]"
    assert render_tool(call, "", (), 20) == "[tool]"
    assert render_tool(result, "Bash", ("a", "b"), 20) == "[Bash result: a b]"
    assert render_tool(failed, "Bash", ("boom",), 20) == "[Bash failed: boom]"
    assert render_tool(result, "Bash", ("a",), 0) == ""
