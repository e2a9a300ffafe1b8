"""A node: one block of an authored document, with its tier.

What belongs here: the shape and its constants. What does not: how nodes are made (`parse`), their
tokens and what a prompt has room for (`noctuary.context`). Standard library only.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

VARIANT: Final = 0
"""Found by a query and scored, like a memory (V)."""
HARD: Final = 1
"""In every prompt, whole (I1)."""
SOFT: Final = 2
"""In every prompt as far as the soft budget goes, from the first on (I2)."""

Tier = Literal[0, 1, 2]
Kind = Literal["item", "front_matter", "quote", "paragraph", "heading", "code", "html"]
Mark = Literal["obligation", "permitted", "forbidden"]


class Node(NamedTuple):
    """One block of an authored document.

    Attributes:
        id: "<source>#<ordinal>", the ordinal with at least six digits: "AGENTS.md#000017".
        source: The document's name.
        ordinal: Place among the document's nodes, from 0 without gaps, in the order of the text.
        kind: What the block is in Markdown.
        tier: `HARD` for items of lists and front matter, `SOFT` for quotes and for paragraphs with
            a mark, else `VARIANT`.
        text: What is written, never blank. The outermost mark of the block is left out ("- ", "> ",
            "## ", fences: `kind` says it); marks further inside stay, on lines of their own. Runs
            of white space are one space, except in code and HTML, which are only trimmed.
        marks: What a paragraph demands of a "you"; empty for every other kind.
        authority: a(d) of the document, in [0, 1]: 1 for core documents. Only variants are scored.
        hop_targets: Ids of nodes that come along with this one, of a variant; else empty. Whether
            they exist is not checked here.
    """

    id: str
    source: str
    ordinal: int
    kind: Kind
    tier: Tier
    text: str
    marks: frozenset[Mark]
    authority: float
    hop_targets: tuple[str, ...]


def node_id(source: str, ordinal: int) -> str:
    """Return the id of a node: "AGENTS.md#000017"."""
    return f"{source}#{ordinal:06d}"
