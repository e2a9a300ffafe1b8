"""Which concepts a query names: the longest known name at each word.

Read side: standard library only. Belongs here: the words of a query against the names of a
snapshot. Does not belong here: reading the snapshot's tables, what a named concept is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from noctuary.graph.fold import Word, words

QUERY_MAX_WORDS = 256
"""Words of a query that are looked at; a pasted document names too much to mean any of it."""


class Name(NamedTuple):
    """A name that a query may link to.

    Attributes:
        ordinal: The concept.
        weight: In [0, 1], how specific the name is; 0 where it links nothing.
        cased: Whether only a capital or a digit makes it a name.
    """

    ordinal: int
    weight: float
    cased: bool


class Link(NamedTuple):
    """A concept that the query names, and where (offsets into the query, end exclusive)."""

    ordinal: int
    weight: float
    start: int
    end: int


class NameTable(NamedTuple):
    """How names are looked up.

    Attributes:
        longest: Words -> length in words of the longest name that begins with it; absent words
            begin none.
        names: Folded names -> what they link to; unknown ones are absent.
    """

    longest: Callable[[Sequence[str]], Mapping[str, int]]
    names: Callable[[Sequence[str]], Mapping[str, Name]]


def link_query(query: str, table: NameTable) -> tuple[Link, ...]:
    """Return the concepts that a query names, left to right, not overlapping.

    At each word the longest name wins and uses its words up. Two look-ups in all.
    """
    tokens = words(query)[:QUERY_MAX_WORDS]
    if not tokens:
        return ()
    longest = table.longest(list(dict.fromkeys(token.folded for token in tokens)))
    runs = {
        (start, size): " ".join(token.folded for token in tokens[start : start + size])
        for start, token in enumerate(tokens)
        for size in range(1, min(longest.get(token.folded, 0), len(tokens) - start) + 1)
    }
    if not runs:
        return ()
    known = table.names(list(dict.fromkeys(runs.values())))
    links: list[Link] = []
    index = 0
    while index < len(tokens):
        size, name = _longest_at(query, tokens, index, longest, runs, known)
        if name is not None:
            end = tokens[index + size - 1].end
            links.append(Link(name.ordinal, name.weight, tokens[index].start, end))
        index += size
    return tuple(links)


def _longest_at(
    query: str,
    tokens: Sequence[Word],
    index: int,
    longest: Mapping[str, int],
    runs: Mapping[tuple[int, int], str],
    known: Mapping[str, Name],
) -> tuple[int, Name | None]:
    """Return how many words to go on by, and the name they are, if any."""
    for size in range(longest.get(tokens[index].folded, 0), 0, -1):
        name = known.get(runs.get((index, size), ""))
        if name is not None and (not name.cased or _shows_case(query, tokens[index])):
            return size, name
    return 1, None


def _shows_case(text: str, word: Word) -> bool:
    return any(char.isupper() or char.isdigit() for char in text[word.start : word.end])
