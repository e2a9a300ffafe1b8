"""What a superseded memory looks like in its source: a mark before its text.

What belongs here: the mark, setting and recognising it. What does not: deciding what is superseded
(`noctuary.graph.supersession`, `noctuary.curate`).

Source: research/peers.md 2.3 (placeholders stand at the start of the content).
"""

from __future__ import annotations

MARK = "[SUPERSEDED]"
"""Begins the content of a memory that its owner has let another one stand for."""

TOMBSTONE_IMPORTANCE = 0.3
"""Importance of such a memory, or less where it was less: it may be found, but not first."""


def is_tombstone(content: str) -> bool:
    """Say whether a content begins with the mark, in whatever case, after spaces at most."""
    return content.lstrip()[: len(MARK)].upper() == MARK


def buried(content: str) -> str:
    """Return the content with the mark before it; what has one already stays as it is."""
    return content if is_tombstone(content) else f"{MARK} {content}"
