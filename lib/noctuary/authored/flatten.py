"""Text of Markdown blocks: white space, tables, and one text of a block with blocks inside.

What belongs here: from a parser's tokens to text. What does not: which block is a node (`blocks`).
Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it.token import Token

_LEADING_BLANK_LINES: Final = re.compile(r"\A(?:[^\S\n]*\n)+")
_CELL: Final = r"[ \t]*:?-+:?[ \t]*"
_TABLE_RULE: Final = re.compile(rf"\|?{_CELL}(?:\|{_CELL})*\|?\Z")


def collapse(text: str) -> str:
    """Return a text with every run of white space as one space, none at the ends."""
    return " ".join(text.split())


def trim(text: str) -> str:
    """Return a text without blank lines at its ends; the first line keeps its indentation."""
    return _LEADING_BLANK_LINES.sub("", text).rstrip()


def paragraph_lines(content: str) -> list[str]:
    """Return a paragraph as one line, or line by line where it holds a table; no blank ones."""
    lines = [collapse(line) for line in content.split("\n")] if _has_table(content) else [content]
    return [line for line in map(collapse, lines) if line]


def flatten(tokens: Sequence[Token], *, indent: str = "") -> str:
    """Return the blocks inside an item or a quote as one text, each on lines of its own.

    Items, quotes, headings and code inside keep their marks.

    Args:
        tokens: What is between the opening and the closing token; depth does not matter, nothing
            here calls itself.
        indent: What stands before every line but the first.
    """
    lines: list[str] = []
    # What stands before the next line of each open block, and before the lines after it.
    around: list[list[str]] = [["", indent]]
    for token in tokens:
        if token.type == "list_item_open":
            mark = f"{token.info}{token.markup} "
            around.append([mark, " " * len(mark)])
        elif token.type == "blockquote_open":
            around.append(["> ", "> "])
        elif token.type == "heading_open":
            around.append([f"{'#' * int(token.tag[1:])} ", ""])
        elif token.type in ("list_item_close", "blockquote_close", "heading_close"):
            around.pop()
        else:
            for line in _leaf_lines(token):
                before = "".join(block[0] for block in around)
                lines.append(f"{before}{line}" if line else before.rstrip())
                for block in around:
                    block[0] = block[1]
    return "\n".join(lines)


def _leaf_lines(token: Token) -> list[str]:
    """Return the lines of a token that holds text; none for any other."""
    match token.type:
        case "inline":
            return paragraph_lines(token.content)
        case "fence":
            inside = trim(token.content)
            fence = [f"{token.markup}{collapse(token.info)}", inside, token.markup]
            return "\n".join(fence).split("\n") if inside else []
        case "code_block":
            return [f"    {line}".rstrip() for line in trim(token.content).split("\n")]
        case "html_block":
            return [line.rstrip() for line in token.content.strip().split("\n")]
        case _:
            return []


def _has_table(content: str) -> bool:
    """Tell whether a line of dashes, with pipes or colons, follows another line, as in tables."""
    below = [line.strip() for line in content.split("\n")[1:]]
    return any(_TABLE_RULE.match(line) is not None for line in below)
