"""Properties of the partition over generated Markdown."""

from __future__ import annotations

import re
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.context.documents import HARD, SOFT, VARIANT, find_marks, parse_document

WORD = re.compile(r"w\d+w")
PIECES = [
    "W", "W", "W", "W W", "\n", "\n", "\n\n", "\n\n", "- ", "* ", "+ ", "1. ", "7) ", "> ", ">",
    "  ", "    ", "\t", "# ", "###### ", "\n```\n", "\n~~~~\n", "`", "***\n", "---\n", "===\n",
    "<div>", "</div>\n", "<!--", "-->", "<br/>", "| ", "|-|\n", "[", "](W)", "]: ", "\\", "&amp;",
    "you ", "must ", "never ", "\r\n", "\r", "\ufeff", "\u00a0", "[ ] ", "- - ", "> - ", "\n...\n",
]  # fmt: skip


@st.composite
def chaos(draw: st.DrawFn) -> str:
    """Marks of Markdown in any order; every word occurs once."""
    number = count()
    pieces = draw(st.lists(st.sampled_from(PIECES), max_size=40))
    repeat = draw(st.sampled_from([1, 1, 1, 1, 30, 70]))
    text = "".join(pieces[:3] * (repeat - 1) + pieces)
    # Front matter is no Markdown; it has tests of its own.
    text = "\n" + re.sub("W", lambda _: f"w{next(number)}w", text)
    # The language of a fence is no text of it. Words behind one would be.
    return re.sub(r"(```|~~~~)(?=[^\n\r])", r"\1\n", text)


@given(chaos())
@example("\n" + "- " * 40 + "w0w\n\nw1w")
@example("\n" + "> " * 70 + "w0w\nw1w\n\nw2w")
def test_every_word_is_in_exactly_one_node_in_order(text: str) -> None:
    nodes = parse_document(text, "a.md")
    found = [word for node in nodes for word in WORD.findall(node.text)]
    assert found == WORD.findall(text)


@given(chaos())
def test_nodes_are_in_order_and_have_one_tier_by_the_rules(text: str) -> None:
    nodes = parse_document(text, "a.md")
    assert nodes == parse_document(text, "a.md")
    assert [node.ordinal for node in nodes] == list(range(len(nodes)))
    assert len({node.id for node in nodes}) == len(nodes)
    for node in nodes:
        assert node.text.strip()
        expected = {"item": HARD, "quote": SOFT}.get(node.kind, SOFT if node.marks else VARIANT)
        assert node.tier == expected
        assert not node.marks or node.kind == "paragraph"


@given(chaos())
def test_crlf_is_a_line_end(text: str) -> None:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert parse_document(plain, "a.md") == parse_document(plain.replace("\n", "\r\n"), "a.md")
    assert parse_document(plain, "a.md") == parse_document(text, "a.md")


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    nodes = parse_document(f"\n{text}", "a.md")
    assert all(node.text.strip() for node in nodes)


def test_a_quote_that_ends_within_html_is_read() -> None:
    # The parser looks one character beyond a text that ends without a line break.
    assert parse_document("\n> - - <!--|-|\n> ", "a.md")


SENTENCE = st.sampled_from(
    ["plain words", "You must not.", "you **may**", "it `is` so", "see [a](b)", "Never do it.",
     "a  b", "You\nshould never"]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[tuple[str, int, str]]]:
    """A document of plain blocks, and the nodes that it was made from: the oracle."""
    blocks: list[str] = []
    expected: list[tuple[str, int, str]] = []
    for place, kind in enumerate(draw(st.lists(st.sampled_from("piqhcrx"), max_size=8))):
        said = draw(SENTENCE)
        flat = " ".join(said.split())
        match kind:
            case "p":
                blocks.append(said)
                expected.append(("paragraph", SOFT if find_marks(flat) else VARIANT, flat))
            case "i":
                inside = draw(st.lists(SENTENCE.map(str.split).map(" ".join), max_size=3))
                # Neighbouring lists of different marks are different lists.
                mark = "-+"[place % 2]
                nested = "".join(f"\n  * {line}" for line in inside)
                blocks.append(f"{mark} {flat}{nested}\n{mark} second {place}")
                text = flat + "".join(f"\n  * {line}" for line in inside)
                expected += [("item", HARD, text), ("item", HARD, f"second {place}")]
            case "q":
                blocks.append("\n".join(f"> {line}" for line in said.split("\n")))
                expected.append(("quote", SOFT, flat))
            case "h":
                blocks.append(f"## {flat}")
                expected.append(("heading", VARIANT, flat))
            case "c":
                blocks.append(f"```\n  {said}\n```")
                expected.append(("code", VARIANT, f"  {said}"))
            case "r":
                blocks.append("***")
            case _:
                blocks.append(f"<!-- {said} -->")
                expected.append(("html", VARIANT, f"<!-- {said} -->"))
    # A comment between blocks keeps quotes and lists apart, whatever stands beside them.
    apart = [piece for block in blocks for piece in (block, "<!-- -->")]
    return "\n\n".join(apart), expected


@given(documents())
def test_a_document_gives_back_the_blocks_it_was_made_of(
    made: tuple[str, list[tuple[str, int, str]]],
) -> None:
    text, expected = made
    nodes = parse_document(text, "a.md")
    shown = [(n.kind, n.tier, n.text) for n in nodes if n.text != "<!-- -->"]
    assert shown == expected
