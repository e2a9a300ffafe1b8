"""Things with a written form of their own: addresses, paths, tickets, versions, names in code."""

from __future__ import annotations

import re
from typing import NamedTuple

# Every repeat that could start anew at each word is bounded: reading stays linear in the text.
# The name of the group is the kind; the first alternative that fits wins.
_IDENTIFIER = re.compile(
    r"""
    (?P<url>https?://[^\s<>"')\]]+)
    | (?P<email>\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})
    | (?P<path>
        (?<![\w/.])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}                        # from a root
        | \b[A-Za-z]:\\(?:[\w.@+-]{1,64}\\){0,11}[\w.@+-]{1,64}            # from a drive
        | \b[\w-]{1,64}(?:/[\w.-]{1,64}){0,11}/[\w-]{1,64}\.[A-Za-z]\w{0,7}\b
        | \b[\w-]{1,64}(?:\.[\w-]{1,64}){0,4}?                             # file name by its ending
          \.(?:py|js|ts|tsx|go|rs|java|c|h|cpp|rb|sh|sql|md|json|ya?ml|toml|txt|csv|lock|env)\b)
    | (?P<ticket>\bCVE-\d{4}-\d{4,7}\b | \b[A-Z][A-Z0-9]+-\d+\b | (?<!\w)\#\d+\b)
    | (?P<version>\bv\d+(?:\.\d+)*\b | \b\d+\.\d+\.\d+(?:[-+.][\w.]+)?\b)
    | (?P<identifier>
        \b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b                         # snake_case
        | \b[a-z]+(?:[A-Z][a-z0-9]+)+\b                                    # camelCase
        | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b                  # UUID
        | \b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}\b)            # commit
    """,
    re.VERBOSE,
)
# No identifier holds a space, and each shows one of these; most words of a text are passed over.
_HINT = re.compile(r"[/@_#\\]|[a-z][A-Z]|\.\w|-\d|-[0-9a-f]{4}-|\bv\d|[a-f]\d|\d[a-f]")
_CHUNK = re.compile(r"\S+")


class Identifier(NamedTuple):
    """An identifier in a text: offsets into it, end exclusive.

    Attributes:
        start: First character.
        end: One past the last one.
        kind: "url", "email", "path", "ticket", "version" or "identifier".
    """

    start: int
    end: int
    kind: str


def find_identifiers(content: str) -> list[Identifier]:
    """Return the identifiers of a text, left to right, not overlapping."""
    if _HINT.search(content) is None:
        return []
    return [
        Identifier(*match.span(), match.lastgroup or "identifier")
        for chunk in _CHUNK.finditer(content)
        if _HINT.search(chunk.group())
        for match in _IDENTIFIER.finditer(content, *chunk.span())
    ]
