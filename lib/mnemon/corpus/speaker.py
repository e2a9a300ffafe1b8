"""Who says a turn: the `Speaker: text` convention of transcripts."""

from __future__ import annotations

import re

MAX_SPEAKER_CHARS = 40
"""Longest prefix that is a name: "Dr. Anna-Maria van der Berg (support)" fits."""

# The full-width colon needs no space after it; the ASCII one does, or "12:30" would speak.
_PREFIX = re.compile(rf"\s{{0,8}}([^\s:：][^\n:：]{{0,{MAX_SPEAKER_CHARS - 1}}})(?::(?=\s)|：)")


def find_speaker(content: str) -> str | None:
    """Return the name before the first colon of a turn, or None where there is no such prefix."""
    match = _PREFIX.match(content)
    if match is None:
        return None
    name = match.group(1).strip()
    return name if any(c.isalnum() for c in name) else None
