"""What a model is shown of a turn: long code, data URIs and hex runs give way to placeholders.

What belongs here: the rules of what is cut out. What does not: the stored turn, which stays as it
is, and the extractive summarizer, which shows a model nothing. Source: research/peers.md 1.7.
"""

from __future__ import annotations

import re

FENCE_MIN_CHARS = 240
FENCE_MIN_LINES = 8
"""A fenced block of so many characters or inner lines is left out: a model of 512 tokens would be
filled by it. Lower loses short snippets that are the point of a turn."""
DATA_URI_MIN_CHARS = 64
"""A line with a data URI and so many characters is left out."""
BLOB_LINE_MIN_CHARS = 96
BASE64_MIN_CHARS = 80
HEX_MIN_CHARS = 64
"""A line of so many characters is left out where it holds a base64-like or hexadecimal run of so
many. Lower would cut long words and URLs."""

CODE_PLACEHOLDER = "[code left out]"
DATA_URI_PLACEHOLDER = "[data left out]"
BLOB_PLACEHOLDER = "[encoded data left out]"

_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_BASE64 = re.compile(rf"[A-Za-z0-9+/_=-]{{{BASE64_MIN_CHARS},}}")
_HEX = re.compile(rf"[0-9A-Fa-f]{{{HEX_MIN_CHARS},}}")
_BLANK_RUN = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")


def sanitize(text: str) -> str:
    """Return a turn as a model is shown it; equal for a text without anything to leave out.

    Idempotent: placeholders are left alone. Runs of blank lines become one blank line.
    """
    lines = [_line(line) for line in _without_fences(text).split("\n")]
    return _BLANK_RUN.sub("\n\n", "\n".join(lines))


def _without_fences(text: str) -> str:
    """Replace long fenced blocks; a fence that is never closed reaches to the end."""
    parts: list[str] = []
    place = 0
    while (opening := _FENCE.search(text, place)) is not None:
        end, inner = _closed(text, opening)
        block = text[opening.start() : end]
        parts.append(text[place : opening.start()])
        long = len(block) >= FENCE_MIN_CHARS or inner.count("\n") + 1 >= FENCE_MIN_LINES
        parts.append(CODE_PLACEHOLDER if long else block)
        place = end
    return "".join(parts) + text[place:]


def _closed(text: str, opening: re.Match[str]) -> tuple[int, str]:
    """Return where a fenced block ends and what stands between its fences."""
    mark = opening["mark"]
    for fence in _FENCE.finditer(text, opening.end()):
        bare = fence.group().strip()
        if bare[0] == mark[0] and len(bare) >= len(mark) and not bare.strip(mark[0]):
            return fence.end(), text[opening.end() + 1 : fence.start() - 1]
    return len(text), text[opening.end() + 1 :]


def _line(line: str) -> str:
    if len(line) >= DATA_URI_MIN_CHARS and "data:" in line:
        return DATA_URI_PLACEHOLDER
    if len(line) >= BLOB_LINE_MIN_CHARS and (_BASE64.search(line) or _HEX.search(line)):
        return BLOB_PLACEHOLDER
    return line
