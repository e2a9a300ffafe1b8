from __future__ import annotations

import pytest

from mnemon.injection.block import (
    FRAME_CHARS,
    MAX_MEMORY_CHARS,
    NOTE,
    Line,
    cut_blocks,
    one_line,
    render_block,
)

LINES = [
    Line("17", "2026-03-01", "The spare key hangs in the pantry."),
    Line("104", "undated", "R&D uses <mnemon-recall> and </mnemon-recall>."),
]
BLOCK = render_block(LINES)


def test_the_block() -> None:
    assert BLOCK.splitlines() == [
        '<mnemon-recall id="7e293ae080bda82e" memories="2">',
        NOTE,
        "- [17] 2026-03-01: The spare key hangs in the pantry.",
        "- [104] undated: R&amp;D uses &lt;mnemon-recall> and &lt;/mnemon-recall>.",
        "</mnemon-recall>",
    ]
    assert len(BLOCK) <= FRAME_CHARS + sum(len(line.rendered()) + 1 for line in LINES)


def test_equal_memories_give_equal_bytes_and_others_another_id() -> None:
    assert render_block(list(LINES)) == BLOCK
    assert render_block(LINES[:1]).splitlines()[0] != BLOCK.splitlines()[0]
    assert render_block([]) == ""


def test_an_id_cannot_leave_its_brackets() -> None:
    line = Line("a]b\n<c", "undated", "x").rendered()
    assert line == "- [a&#93;b &lt;c] undated: x"


def test_a_long_memory_is_cut_at_a_space() -> None:
    assert one_line("a\n\n b\u2028c") == "a b c"
    assert one_line("x" * MAX_MEMORY_CHARS) == "x" * MAX_MEMORY_CHARS
    cut = one_line("word " * 1000)
    assert len(cut) <= MAX_MEMORY_CHARS
    assert cut.endswith("word ...")
    assert len(one_line("x" * 5000)) == MAX_MEMORY_CHARS


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (BLOCK, ""),
        (f"{BLOCK}\nwhere is it?", "where is it?"),
        (f"where is it?\n\n{BLOCK}\n", "where is it?"),
        (f"before {BLOCK} after", "before \n after"),
        (f"{BLOCK}\nmiddle\n{BLOCK}", "middle"),
        (f"{BLOCK}{BLOCK}", ""),
        (BLOCK.replace("\n", " ") + " go on", " go on"),
        (BLOCK.replace('"', '\\"').replace('\\"', "'") + "\ngo on", "go on"),
        ("> " + BLOCK.replace("\n", "\n> ") + "\ngo on", "> \ngo on"),
    ],
)
def test_blocks_are_cut_and_the_rest_stays(text: str, rest: str) -> None:
    cut = cut_blocks(text)
    assert cut.text.strip("\n") == rest
    assert cut.blocks == text.count("<mnemon-recall id=")


@pytest.mark.parametrize(
    "text",
    [
        "no tag at all",
        "it writes <mnemon-recall ...> and </mnemon-recall> around them",
        '<mnemon-recall id="short" memories="2">',
        "&lt;mnemon-recall id=&quot;4120174da0511342&quot; memories=&quot;2&quot;&gt;",
    ],
)
def test_who_writes_about_the_tag_keeps_the_text(text: str) -> None:
    assert cut_blocks(text) == (text, 0)


def test_a_transcript_that_was_cut_off_in_a_block_keeps_nothing_of_its_lines() -> None:
    pieces = {f"question\n{'</mnemon-recall>'[:n]}".strip() for n in range(16)}
    for chars in range(BLOCK.index(">") + 1, len(BLOCK)):
        assert cut_blocks(f"question\n{BLOCK[:chars]}").text in pieces


def test_a_torn_block_ends_where_its_lines_end() -> None:
    torn = BLOCK.removesuffix("\n</mnemon-recall>")
    for own in ("where is it?", "- [x] done", "- [17] is wrong", NOTE.lower()):
        assert cut_blocks(f"{torn}\n{own}").text == own
    third = "- [3] undated: one more than the tag says"
    assert cut_blocks(f"{torn}\n{third}").text == third


def test_a_transcript_that_begins_inside_a_block() -> None:
    tail = "\n".join(BLOCK.splitlines()[2:])
    cut = cut_blocks(f"the rest of a line\n{tail}\nquestion")
    assert cut == ("the rest of a line\nquestion", 1)
    assert cut_blocks(f"{tail}").text == ""
    assert cut_blocks("a\n</mnemon-recall>\nb") == ("a\nb", 1)


def test_a_torn_block_before_a_whole_one() -> None:
    torn = "\n".join(BLOCK.splitlines()[:3])
    assert cut_blocks(f"{torn}\nown words\n{BLOCK}\nmore") == ("own words\nmore", 2)
