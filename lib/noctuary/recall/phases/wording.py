"""How reasons quote text that is not ours, and count. Strings only."""

from __future__ import annotations

_BRACES = str.maketrans("{}", "()")


def quoted(text: str | None) -> str:
    """Return a name in quotes; its braces become parentheses, because {123} means a memory."""
    return "(none)" if text is None else f"'{text}'".translate(_BRACES)


def ordinal(number: int) -> str:
    """Return a rank as words have it: 1st, 2nd, 3rd, 11th, 37th."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
