from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mnemon.injection.block import Line, cut_blocks, one_line, render_block
from mnemon.injection.injecting import ECHO_BYTES
from mnemon.injection.wording import size_bytes, unescaped, words_of
from tests.support.injections import guard_of, memory, put_in_prompt, row

BLOCK = render_block(
    [Line("17", "2026-03-01", "the spare key"), Line("<]", "undated", "</mnemon-recall> &")]
)
# Pieces that could make, close or tear a tag, between plain ones.
PIECES = st.sampled_from(
    [
        BLOCK, BLOCK[:60], BLOCK[:-5], BLOCK[30:], *BLOCK.splitlines(keepends=True), "\n", " ",
        "> ",
        "<mnemon-recall", ' id="7e293ae080bda82e"', ' memories="2">', "</mnemon-recall>", "</",
        "mnemon-recall>", "- [1] undated: x\n", "- [x] done\n", "own words", "a", "\r\n", "\u2028",
    ]
)  # fmt: skip
TORN = st.lists(PIECES, max_size=12).map("".join)
# Without lone surrogates: a source with one is no memory.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)


@given(TORN)
def test_cutting_twice_is_cutting_once(text: str) -> None:
    once = cut_blocks(text)
    assert cut_blocks(once.text) == (once.text, 0)


@given(TORN)
def test_cutting_only_takes_away(text: str) -> None:
    """What is left is in the text, in its order; line breaks alone may come between."""
    place = 0
    for char in cut_blocks(text).text:
        if char == "\n":
            continue
        place = text.index(char, place) + 1


@given(st.lists(TEXTS, min_size=2, max_size=4), st.lists(TEXTS, min_size=1, max_size=4))
def test_no_text_outside_of_a_block_is_lost(outside: list[str], memories: list[str]) -> None:
    lines = [Line(str(i), "undated", one_line(text)) for i, text in enumerate(memories)]
    block = f"\n{render_block(lines)}\n"
    cut = cut_blocks(block.join(outside))
    assert cut.text.split() == " ".join(outside).split()
    assert cut.blocks == len(outside) - 1


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS)
def test_any_memory_survives_rendering_and_is_recognised(memories: list[str], ids: str) -> None:
    lines = [Line(f"{ids}{i}", "undated", one_line(text)) for i, text in enumerate(memories)]
    block = render_block(lines)
    assert block.count("\n") == len(lines) + 2, "one line per memory"
    for line, rendered in zip(lines, block.splitlines()[2:-1], strict=True):
        shown = rendered.split("] undated: ", 1)[1]
        assert words_of(shown) == words_of(line.text)
    with tempfile.TemporaryDirectory() as folder:
        assert guard_of(Path(folder)).judge(row(block)) == (None, 1, 0)


@given(TEXTS)
def test_any_memory_that_is_long_enough_is_recognised_without_its_tag(content: str) -> None:
    content = f"{content} and one more thing to be remembered here"
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        block = put_in_prompt(store, memory(1, content)).text
        if size_bytes(words_of(one_line(content))) < ECHO_BYTES:
            return
        (_, _, line, _) = block.splitlines()
        guard = guard_of(store)
        for copied in (content, line, line.removeprefix("- "), " ".join(content.split())):
            assert guard.judge(row(copied)).text is None, copied
        assert guard.judge(row(content, "1")).text == content, "its original stays"


@given(TEXTS)
def test_escaping_is_read_back_however_often(text: str) -> None:
    escaped = text
    for _ in range(3):
        escaped = escaped.replace("&", "&amp;").replace("<", "&lt;")
        assert unescaped(escaped) == unescaped(text)


@given(TEXTS, st.text(st.characters(categories=("L", "Nd")), min_size=1, max_size=9))
def test_another_word_is_another_wording(content: str, word: str) -> None:
    """Nothing is an echo because of a wording that it merely resembles."""
    old = f"{content} the spare key hangs in the pantry since March"
    new = f"{old} {word}"
    with tempfile.TemporaryDirectory() as folder:
        put_in_prompt(Path(folder), memory(1, old))
        if "\n" not in content and len(old.splitlines()) == 1:
            assert guard_of(Path(folder)).judge(row(new)).text == new
