"""Who says a turn: the `Speaker: text` convention of transcripts.

What belongs here: the label and what follows it. What does not: what a speaker is to a graph or a
session. Standard library only.
"""

from __future__ import annotations

import re

MAX_SPEAKER_CHARS = 40
"""Longest prefix that is a name: "Dr. Anna-Maria van der Berg (support)" fits."""

ROLES = frozenset(("agent", "ai", "assistant", "human", "me", "system", "tool", "user"))
"""Labels, folded, that are a role in a conversation and nobody's name."""

# The full-width colon needs no space after it; the ASCII one does, or "12:30" would speak.
_PREFIX = re.compile(rf"\s{{0,8}}([^\s:：][^\n:：]{{0,{MAX_SPEAKER_CHARS - 1}}})(?::(?=\s)|：)")


def find_speaker(content: str) -> str | None:
    """Return the name before the first colon of a turn, or None where there is no such prefix."""
    return split_speaker(content)[0]


def split_speaker(content: str) -> tuple[str | None, str]:
    """Return the name before the first colon of a turn and what follows the colon.

    Without such a prefix: None and the whole text.
    """
    match = _PREFIX.match(content)
    if match is None:
        return None, content
    name = match.group(1).strip()
    if not any(c.isalnum() for c in name):
        return None, content
    return name, content[match.end() :]
