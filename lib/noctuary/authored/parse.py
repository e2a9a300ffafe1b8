"""Nodes of one document: the tier of every block.

What belongs here: from text to nodes. What does not: Markdown (`blocks`), YAML (`front_matter`),
files (`documents`).
"""

from __future__ import annotations

from typing import Final

from noctuary.authored.blocks import Block, read_blocks
from noctuary.authored.deontic import find_marks
from noctuary.authored.flatten import trim
from noctuary.authored.front_matter import (
    NO_FRONT_MATTER,
    FrontMatter,
    read_front_matter,
    split_front_matter,
)
from noctuary.authored.node import HARD, SOFT, VARIANT, Kind, Node, Tier, node_id

CORE_AUTHORITY: Final = 1.0
"""a(d) of documents that say who the agent is; they outrank what was merely remembered."""

_TIER_OF: Final[dict[Kind, Tier]] = {"item": HARD, "front_matter": HARD, "quote": SOFT}
_BYTE_ORDER_MARK: Final = "\ufeff"


def parse_document(text: str, source: str, *, core: bool = True) -> tuple[Node, ...]:
    """Return the nodes of a document, in the order of its text; equal texts give equal nodes.

    Every top-level block that is not blank is in exactly one node; of a list, every item. Thematic
    breaks ("---") have no text and give no node. The tiers are those of `Node.tier`.

    Args:
        text: Markdown (CommonMark), with YAML front matter or without; any line ends.
        source: The document's name, the first part of every id; not empty.
        core: Whether its variants have authority 1. Without, the front matter decides:
            `authority`, else 1 for `authored: true`, else 0.

    Raises:
        AuthoredFormatError: The front matter is no YAML mapping, or a key of it that is read here
            has a wrong value.
        ValueError: No source.

    Source: research/peers.md 1.3.
    """
    if not source:
        msg = "a document needs a source: its nodes are named after it"
        raise ValueError(msg)
    # As CommonMark has it, so that front matter and body agree on what a line is.
    lines = text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n")
    front_text, body = split_front_matter(lines)
    blocks: list[Block] = []
    front = NO_FRONT_MATTER
    if front_text is not None and front_text.strip():
        front = read_front_matter(front_text, source)
        blocks.append(Block("front_matter", trim(front_text), ""))
    blocks.extend(read_blocks(body))
    authority = CORE_AUTHORITY if core else front.authority
    return tuple(
        _node(block, source, place, authority, front) for place, block in enumerate(blocks)
    )


def _node(block: Block, source: str, ordinal: int, authority: float, front: FrontMatter) -> Node:
    marks = find_marks(block.said)
    tier = SOFT if marks else _TIER_OF.get(block.kind, VARIANT)
    return Node(
        id=node_id(source, ordinal),
        source=source,
        ordinal=ordinal,
        kind=block.kind,
        tier=tier,
        text=block.text,
        marks=marks,
        authority=authority,
        hop_targets=front.hop_targets if tier == VARIANT else (),
    )
