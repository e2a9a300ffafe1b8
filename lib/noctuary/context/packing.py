"""Fitting a section into a budget: the longest prefix, at the price of exactly what is written.

What belongs here: prices of sections and the prefix rule. What does not: which order parts have.

A section costs its pieces and its tags, each counted by itself; an empty one costs nothing.

Source: libravdb mathematics section 3 (the ranking is fixed, so that a prefix is optimal) and 7.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noctuary.context.counting import TokenCounter
from noctuary.context.rendering import Frame, frame_of, frame_of_found
from noctuary.injection.block import Line


class Section(NamedTuple):
    """Pieces between their tags, with prices.

    Attributes:
        frame: The tags; two empty texts around nothing.
        pieces: In order.
        costs: Tokens of each piece.
        frame_tokens: Of the tags.
    """

    frame: Frame = Frame("", "")
    pieces: tuple[str, ...] = ()
    costs: tuple[int, ...] = ()
    frame_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The price of the whole."""
        return self.frame_tokens + sum(self.costs)

    @property
    def text(self) -> str:
        """The section as it is written."""
        return "".join((self.frame.opening, *self.pieces, self.frame.closing))


def price_section(name: str, pieces: Sequence[str], counter: TokenCounter) -> Section:
    """Return a section of documents or turns with its prices."""
    if not pieces:
        return Section()
    frame = frame_of(name)
    costs = tuple(counter.count(piece) for piece in pieces)
    return Section(frame, tuple(pieces), costs, price_frame(frame, counter))


def price_frame(frame: Frame, counter: TokenCounter) -> int:
    """Return what the tags cost."""
    return counter.count(frame.opening) + counter.count(frame.closing)


def fit_prefix(
    name: str, pieces: Sequence[str], counter: TokenCounter, room_tokens: int
) -> Section:
    """Return the section of the longest prefix that fits, empty if not even its first piece does.

    Pref of libravdb 7.2: pieces are neither skipped nor cut.
    """
    frame = frame_of(name)
    used = price_frame(frame, counter)
    taken = 0
    for piece in pieces:
        used += counter.count(piece)
        if used > room_tokens:
            break
        taken += 1
    return price_section(name, pieces[:taken], counter)


def fit_found(lines: Sequence[Line], counter: TokenCounter, room_tokens: int) -> Section:
    """Return the block of the longest prefix of lines that fits.

    The block's id depends on its lines and so may what its tags cost: both are priced anew with
    each line.
    """
    best = Section()
    pieces: list[str] = []
    costs: list[int] = []
    for count, line in enumerate(lines, start=1):
        pieces.append(f"{line.rendered()}\n")
        costs.append(counter.count(pieces[-1]))
        if sum(costs) > room_tokens:
            break
        frame = frame_of_found(lines[:count])
        priced = Section(frame, tuple(pieces), tuple(costs), price_frame(frame, counter))
        if priced.tokens > room_tokens:
            break
        best = priced
    return best
