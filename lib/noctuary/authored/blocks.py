"""The top-level blocks of Markdown: what kind each is, and its text.

What belongs here: reading CommonMark with `markdown-it-py`, which is loaded when a text is parsed.
What does not: the text of blocks with blocks inside (`flatten`), tiers (`parse`).

Link reference definitions are not set apart: `[guide]: docs/guide.md` is a paragraph, so that what
an item refers to is in a node as well. Tables are paragraphs whose lines are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from noctuary.authored.flatten import collapse, flatten, paragraph_lines, trim
from noctuary.authored.node import Kind

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

MAX_LEVELS: Final = 64
"""Levels of nesting that are parsed, two for a list and one for a quote. What is nested deeper is a
plain text of its block. The parser calls itself for every level, so more needs a deeper stack."""

MAX_SAID_CHARS: Final = 20_000
"""Longest paragraph whose links and emphasis are resolved before marks are looked for. Longer ones,
which nobody writes by hand, are searched as they are; resolving takes up to a second for 100,000
brackets."""

_MAY_DEMAND: Final = re.compile(
    "(?=.*you).*(?:must|shall|required|should|may|never|not)", re.IGNORECASE | re.DOTALL
)


class Block(NamedTuple):
    """A top-level block, or an item of a top-level list.

    Attributes:
        kind: What it is.
        text: As `Node.text`; not blank.
        said: Of a paragraph that may hold a mark, what a reader sees: no URLs, HTML or escapes;
            else "".
    """

    kind: Kind
    text: str
    said: str


def read_blocks(text: str) -> Iterator[Block]:
    r"""Yield the blocks of Markdown that are not blank, in order.

    Thematic breaks have no text and are left out.

    Args:
        text: CommonMark without front matter.

    Source: research/peers.md 1.3; CommonMark 0.31.
    """
    for tokens in _top_level(_block_parser().parse(text)):
        block = _block(tokens)
        if block is not None and block.text:
            yield block


def _top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each top-level block; of a list, those of each item."""
    start = 0
    for place, token in enumerate(tokens):
        if token.level == 0 and token.type in ("bullet_list_open", "ordered_list_open"):
            start = place + 1
        elif (token.level == 0 and token.nesting <= 0) or (
            token.level == 1 and token.type == "list_item_close"
        ):
            yield tokens[start : place + 1]
            start = place + 1


def _block(tokens: Sequence[Token]) -> Block | None:
    """Return the block of some tokens; None for a thematic break."""
    first = tokens[0]
    match first.type:
        case "list_item_open":
            # Its second line is set in, so that "- " before the text gives the item again.
            return Block("item", flatten(tokens[1:-1], indent="  "), "")
        case "blockquote_open":
            return Block("quote", flatten(tokens[1:-1]), "")
        case "heading_open":
            return Block("heading", collapse(tokens[1].content), "")
        case "fence" | "code_block":
            return Block("code", trim(first.content), "")
        case "html_block":
            return Block("html", first.content.strip(), "")
        case "paragraph_open":
            content = tokens[1].content
            return Block("paragraph", "\n".join(paragraph_lines(content)), _said(content))
        case _:
            return None


def _said(content: str) -> str:
    if len(content) > MAX_SAID_CHARS:
        return content
    if _MAY_DEMAND.match(content) is None:
        return ""
    found: list[Token] = []
    parser = _inline_parser()
    parser.inline.parse(content, parser, {}, found)
    return "".join(_seen(token) for token in found)


def _seen(token: Token) -> str:
    """Return what a reader sees of an inline token; a space for what only separates."""
    if token.type in ("text", "text_special", "code_inline", "image"):
        return token.content
    # Emphasis may begin inside a word; line breaks and HTML do not.
    return " " if token.type in ("softbreak", "hardbreak", "html_inline") else ""


@cache
def _block_parser() -> MarkdownIt:
    """Return a parser of blocks alone; it keeps no state between texts."""
    from markdown_it import MarkdownIt

    # Never reached: a list opens two levels at once, the last one from the level below ours.
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_LEVELS + 2})
    parser.disable("reference")
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.block.ruler.before("code", "too_deep", _keep_as_text)
    return parser


@cache
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def _keep_as_text(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Take lines that are nested too deeply as one text, where the parser would drop them.

    Beyond its limit the parser skips to the end of the document.
    """
    if state.level < MAX_LEVELS or silent:
        return False
    line = start_line + 1
    # A line below 0 belongs to a quote without having its mark.
    while line < end_line and not 0 <= state.sCount[line] < state.blkIndent:
        line += 1
    state.line = line
    token = state.push("inline", "", 0)
    token.content = state.getLines(start_line, line, state.blkIndent, False).strip()
    token.map = [start_line, line]
    token.children = []
    return True
