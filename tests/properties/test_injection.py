from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.inject import ECHO_BYTES, distinct, inject
from noctuary.context.render import Line, one_line, place_of, render_block
from noctuary.sources.injected import cut_blocks, size_bytes, unescaped, words_of
from noctuary.text.marks import estimate_tokens
from tests.support.injections import answer, guard_of, memory, put_in_prompt, row

BLOCK = render_block(
    [
        Line("17", "2026-03-01", "the spare key", "home/hall"),
        Line("<]", "undated", "</noctuary-recall> &"),
    ]
)
# Pieces that could make, close or tear a tag, between plain ones.
PIECES = st.sampled_from(
    [
        BLOCK, BLOCK[:60], BLOCK[:-5], BLOCK[30:], *BLOCK.splitlines(keepends=True), "\n", " ",
        "> ",
        "<noctuary-recall", ' id="bc6329fb5fc559fe"', ' memories="2">', "</noctuary-recall>", "</",
        "noctuary-recall>", "- [1] undated: x\n", "- [x] done\n", "own words", "a", "\r\n",
        "\u2028",
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


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, TEXTS, TEXTS)
def test_any_memory_survives_rendering_and_is_recognised(
    memories: list[str], ids: str, wing: str, room: str
) -> None:
    place = place_of(wing, room)
    lines = [Line(f"{ids}{i}", "undated", one_line(text), place) for i, text in enumerate(memories)]
    block = render_block(lines)
    assert block.count("\n") == len(lines) + 2, "one line per memory"
    for line, rendered in zip(lines, block.splitlines()[2:-1], strict=True):
        head = "undated: " if not place else "): "
        shown = rendered.split("] undated", 1)[1].split(head.removeprefix("undated"), 1)[1]
        assert words_of(shown) == words_of(line.text)
    with tempfile.TemporaryDirectory() as folder:
        assert guard_of(Path(folder)).judge(row(block)) == (None, 1, 0)


@given(TEXTS, TEXTS)
def test_any_memory_that_is_long_enough_is_recognised_without_its_tag(
    content: str, wing: str
) -> None:
    content = f"{content} and one more thing to be remembered here"
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        block = put_in_prompt(store, memory(1, content, wing=wing)).text
        if size_bytes(words_of(one_line(content))) < ECHO_BYTES:
            return
        (_, _, line, _) = block.splitlines()
        guard = guard_of(store)
        bare = Line("1", "2026-03-01", one_line(content)).rendered()  # as blocks of before had it
        for copied in (content, line, bare, line.removeprefix("- "), " ".join(content.split())):
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


@given(st.lists(TEXTS, max_size=8), st.integers(0, 400))
def test_a_block_keeps_its_token_budget_and_wastes_none(memories: list[str], budget: int) -> None:
    """Against the naive choice: the longest prefix whose whole block is estimated to fit."""
    texts = distinct([memory(i, text) for i, text in enumerate(memories)])
    found = answer(Path("/s"), *texts)
    done = inject(found, max_tokens=budget, on_record=False)
    assert estimate_tokens(done.text) <= budget or not done.memories
    fits = [0]
    for count in range(1, len(texts) + 1):
        shown = {**found, "memories": found["memories"][:count]}
        if estimate_tokens(inject(shown, on_record=False).text) <= budget:
            fits.append(count)
    assert done.memories == max(fits)
    assert done.left_out == len(texts) - done.memories
