"""A mark: one pattern of a text, its name and what it counts.

What belongs here: how marks of a text are found and added up. What does not: the marks themselves
(`code_marks`, `technical`, `conversational`). Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Finder(NamedTuple):
    """Something to look for in a text.

    Attributes:
        pattern: Linear in the length of the text: no repetition inside a repetition without a
            bound.
        hint: A much cheaper pattern that is in every text that `pattern` is in; most prose is done
            with after it.
    """

    pattern: re.Pattern[str]
    hint: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        """Say whether it occurs."""
        return bool(self.hint.search(text) and self.pattern.search(text))

    def count(self, text: str) -> int:
        """Return how often it occurs, not overlapping."""
        return sum(1 for _ in self.pattern.finditer(text)) if self.hint.search(text) else 0


class Mark(NamedTuple):
    """What a signal looks for.

    Attributes:
        name: As the table and the commands show it.
        weight: What its presence, or each occurrence, adds; in (0, 1].
        finder: What it looks like.
    """

    name: str
    weight: float
    finder: Finder


class Weighed(NamedTuple):
    """What the marks of one signal found in a text.

    Attributes:
        total: A sum of weights, >= 0; capped where the function says so.
        names: Of the marks that are there, in the order of the list.
    """

    total: float
    names: tuple[str, ...]


def either(*patterns: str, flags: int = 0, hint: str = "") -> Finder:
    """Return a finder of any of several patterns; ^ and $ mean lines.

    Args:
        patterns: Regular expressions.
        flags: Of all of them, MULTILINE apart.
        hint: Regular expression of what no match is without; empty where there is none.
    """
    joined = "|".join(f"(?:{p})" for p in patterns)
    return Finder(re.compile(joined, flags | re.MULTILINE), re.compile(hint, flags))


def weigh_presence(marks: Sequence[Mark], text: str) -> Weighed:
    """Return the sum over the marks that are in a text, however often each is."""
    found = [mark for mark in marks if mark.finder.is_in(text)]
    return Weighed(sum(m.weight for m in found), tuple(m.name for m in found))


def weigh_occurrences(marks: Sequence[Mark], text: str) -> Weighed:
    """Return the sum over the marks of a text, each as often as it is there without overlapping."""
    counts = [(mark, mark.finder.count(text)) for mark in marks]
    return Weighed(
        sum(mark.weight * count for mark, count in counts),
        tuple(mark.name for mark, count in counts if count),
    )
