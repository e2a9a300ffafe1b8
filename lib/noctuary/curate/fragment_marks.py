"""Reading "part 2 of 5" where it marks a memory as a piece of a longer text.

What belongs here: one content in, its mark out. What does not: which pieces belong together
(`fragments`). English and bare numbers ("[2/5]") are read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_PARTS = 99
"""Most parts of one text; more is a page number or a score."""

TITLE_MAX_CHARS = 120
"""Longest title before a mark; a mark further inside a text is part of a sentence."""

_NUMBERS = r"(\d{1,3})\s{0,2}(?:of|/)\s{0,2}(\d{1,3})"
_WORDED = re.compile(
    rf"(?P<open>[\[(]\s{{0,2}})?\b(?:part|chunk|piece|section|fragment)\s{{1,2}}#?{_NUMBERS}\b"
    r"(?(open)\s{0,2}[\])])",
    re.IGNORECASE,
)
_BARE = re.compile(rf"[\[(]\s{{0,2}}{_NUMBERS}\s{{0,2}}[\])]")
# What may follow a mark that no bracket closes: otherwise it belongs to a sentence ("part 2 of 3
# was better than the first").
_END = re.compile(r"\s*(?:[:.\-–—|]|\n|\Z)")
_SEPARATORS = " \t\r\n:.-–—|,;"


class FragmentMark(NamedTuple):
    """A content that says which part of how many it is.

    Attributes:
        number: From 1.
        of: How many parts there are, 2 to MAX_PARTS.
        title: What stands before the mark, as span [0, title_end); empty where title_end is 0.
        title_end: See above.
        start: First character of the part's own text.
        end: One past its last character; start where there is none.
        is_worded: It says "part", not numbers alone, which may be a date or a fraction.
    """

    number: int
    of: int
    title: str
    title_end: int
    start: int
    end: int
    is_worded: bool


def read_mark(content: str) -> FragmentMark | None:
    """Return the mark at the start (after a title at most) or at the very end of a content."""
    for pattern in (_WORDED, _BARE):
        for match in pattern.finditer(content):
            found = _judge(content, match, pattern is _WORDED)
            if found is not None:
                return found
    return None


def _judge(content: str, match: re.Match[str], is_worded: bool) -> FragmentMark | None:
    number, of = (int(group) for group in match.groups()[-2:])
    if not 1 <= number <= of or not 2 <= of <= MAX_PARTS:
        return None
    before, after = content[: match.start()], content[match.end() :]
    if not after.strip(_SEPARATORS) and before.strip(_SEPARATORS):
        return FragmentMark(number, of, "", 0, *_body(content, 0, match.start()), is_worded)
    if len(before) > TITLE_MAX_CHARS or "\n" in before.strip():
        return None
    is_closed = content[match.end() - 1] in ")]"
    if before.strip() and not is_closed and _END.match(after) is None:
        return None
    title_end = len(before.rstrip(_SEPARATORS))
    span = _body(content, match.end(), len(content))
    return FragmentMark(number, of, before[:title_end].strip(), title_end, *span, is_worded)


def _body(content: str, start: int, end: int) -> tuple[int, int]:
    """Return a stretch without outer space and the separators that belonged to the mark."""
    text = content[start:end]
    lead = len(text) - len(text.lstrip(_SEPARATORS)) if start else len(text) - len(text.lstrip())
    start += min(lead, len(text))
    return start, max(start, start + len(content[start:end].rstrip()))
