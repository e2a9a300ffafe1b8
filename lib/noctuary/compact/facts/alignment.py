"""Which source says what a piece of a summary says, by the content words they share.

What belongs here: the look-up. What does not: what the two sides disagree about (contradictions).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from noctuary.compact.facts.clauses import Piece

MIN_SHARED = 2
"""Content words that two pieces must share to speak of one thing. One shared word is chance; three
would leave out "Ann likes cats" against "Ann: I like cats" without a speaker."""

LOOSE_COVERAGE = 0.6
CLOSE_COVERAGE = 0.75
"""Share of a summary piece's content words that its source holds. Lower finds looser paraphrases
and takes unlike sentences for alike; what is not aligned is not compared. Loose for denials, which
are told by their clause; close for values and names, which a list has in every line."""

MIN_BACK_COVERAGE = 0.3
"""Share of a source piece's content words that the summary piece holds. Lower lets a few words of a
long sentence stand for all of it: "Have faith in yourself" is no denial of "it is hard to run a
business when you don't have faith in yourself"."""

NEAR_BEST = 0.15
"""Sources that cover so little less than the best one speak of the same thing too: one that agrees
is enough."""


class Aligned(NamedTuple):
    """A source piece that speaks of what a summary piece speaks of.

    Attributes:
        piece: The source piece.
        turn: Index of its source text.
        coverage: Share of the summary piece's content words that it holds, in (0, 1].
    """

    piece: Piece
    turn: int
    coverage: float


class SourceIndex:
    """Pieces of all sources, looked up by content word."""

    def __init__(self, sources: Sequence[str], cut: Callable[[str], list[Piece]]) -> None:
        self._pieces = [(piece, turn) for turn, text in enumerate(sources) for piece in cut(text)]
        self._holders: dict[str, list[int]] = defaultdict(list)
        for place, (piece, _) in enumerate(self._pieces):
            for token in piece.tokens | piece.speaker:
                self._holders[token].append(place)

    def align(self, tokens: frozenset[str], least: float) -> list[Aligned]:
        """Return the source pieces that speak of what some words speak of, best first.

        Args:
            tokens: Content words of a summary piece.
            least: Share of them that a source must hold, in (0, 1].

        Those that hold nearly as many as the best are kept; questions state nothing and are left
        out.
        """
        shared: Counter[int] = Counter()
        for token in sorted(tokens):
            shared.update(self._holders.get(token, ()))
        found = [
            Aligned(*self._pieces[place], count / len(tokens))
            for place, count in shared.items()
            if count >= least * len(tokens) and self._is_alike(tokens, place)
        ]
        best = max((aligned.coverage for aligned in found), default=0.0)
        near = [aligned for aligned in found if aligned.coverage >= best - NEAR_BEST]
        return sorted(near, key=lambda aligned: (-aligned.coverage, aligned.turn))

    def _is_alike(self, tokens: frozenset[str], place: int) -> bool:
        piece, _ = self._pieces[place]
        if piece.is_question:
            return False
        said = len(piece.tokens & tokens)
        return said >= MIN_SHARED and said >= MIN_BACK_COVERAGE * len(piece.tokens)
