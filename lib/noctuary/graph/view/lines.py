"""The one line of a memory that shows why it is here. Texts only."""

from __future__ import annotations

from typing import NamedTuple

from noctuary.graph.view.display import ELLIPSIS, clean

BEFORE_CHARACTERS = 60
"""Kept of the line before the evidence; more shows more of the sentence, less keeps one row."""

LINE_CHARACTERS = 160
"""Longest line; of longer ones the part around the evidence is kept."""


class Line(NamedTuple):
    """A line of a memory.

    Attributes:
        text: At most about LINE_CHARACTERS, on one line, nothing that steers a terminal.
        start: First character of the evidence in it, or -1.
        end: One past its last character, or -1.
    """

    text: str
    start: int = -1
    end: int = -1


def evidence_line(content: str, start: int, end: int) -> Line:
    """Return the line of a content that holds a span; without one (start < 0), the first line."""
    if not 0 <= start < end <= len(content):
        return Line(_first_line(content))
    begin = content.rfind("\n", 0, start) + 1
    stop = content.find("\n", end)
    before = clean(content[begin:start] + "|")[:-1]
    inside = clean(content[start:end])
    after = clean("|" + content[end : len(content) if stop < 0 else stop])[1:]
    if len(before) > BEFORE_CHARACTERS:
        before = ELLIPSIS + before[-BEFORE_CHARACTERS:]
    room = max(0, LINE_CHARACTERS - len(before) - len(inside))
    if len(after) > room:
        after = after[:room].rstrip() + ELLIPSIS
    return Line(before + inside + after, len(before), len(before) + len(inside))


def _first_line(content: str) -> str:
    lines = content.split("\n")
    first = next((cleaned for line in lines if (cleaned := clean(line))), "")
    return first if len(first) <= LINE_CHARACTERS else first[:LINE_CHARACTERS].rstrip() + ELLIPSIS
