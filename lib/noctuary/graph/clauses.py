"""Where a statement may stand: sentence bounds, and what keeps a sentence from stating anything.

Belongs here: questions, negation, wishes and conditions, fenced code. Does not belong here: what a
statement says (`patterns`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from noctuary.graph.fold import Word
from noctuary.graph.lexicon import HEDGE_WORDS, NEGATION_WORDS, QUESTION_WORDS

CLAUSE_MAX_WORDS = 24
"""Words read to the left for a negation or a condition; bounds the work per statement."""

OPENING_MAX_CHARS = 64
"""Longest key before a colon after which a statement may begin without its subject."""

_SENTENCE_END = re.compile(r"[.!?…](?=[\s\"'”’)\]*]|$)|[。！？]|\n|[】\]](?=\s)|;")
_QUESTION_MARKS = frozenset("?？")
_CLAUSE_END = re.compile(r"[,:;()—]|\s[-–]\s")
_CLAUSE_WORDS = frozenset({"but", "and", "so", "because", "as", "since"})
_OPENING = re.compile(r"[^:：]*[:：]\s*\Z|[\s\"'“‘(*•>-]*\Z")

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def fences(content: str) -> list[tuple[int, int]]:
    """Return the spans of fenced code; a fence that is never closed reaches to the end."""
    if "```" not in content:
        return []
    return [match.span() for match in _FENCE.finditer(content)]


class Clauses:
    """The sentences of one text, found once, and what may be stated at a word of it."""

    def __init__(self, content: str, tokens: Sequence[Word]) -> None:
        self._content = content
        self._tokens = tokens
        self._bounds = [match.end() for match in _SENTENCE_END.finditer(content)]
        self._fences = fences(content)
        self._fence_starts = [start for start, _ in self._fences]

    def may_state(self, index: int) -> bool:
        """Say whether the clause around a word states something as a fact of now."""
        place = self._tokens[index].start
        fence = bisect_right(self._fence_starts, place) - 1
        if fence >= 0 and place < self._fences[fence][1]:
            return False
        if self._is_question(index):
            return False
        return not self._is_denied_or_wished(index)

    def begins(self, index: int) -> bool:
        """Say whether a word opens its sentence, or what follows a colon at its start."""
        start = self._sentence_start(index)
        if self._tokens[index].start - start > OPENING_MAX_CHARS:
            return False
        return _OPENING.match(self._content[start : self._tokens[index].start]) is not None

    def _sentence_start(self, index: int) -> int:
        found = bisect_right(self._bounds, self._tokens[index].start)
        return self._bounds[found - 1] if found else 0

    def _is_question(self, index: int) -> bool:
        found = bisect_right(self._bounds, self._tokens[index].start)
        if found < len(self._bounds):
            end = self._bounds[found]
            if not _QUESTION_MARKS.isdisjoint(self._content[max(0, end - 2) : end]):
                return True
        start = self._sentence_start(index)
        first = index
        while first > 0 and self._is_inside(first - 1, start, index):
            first -= 1
        return first < index and self._tokens[first].folded in QUESTION_WORDS

    def _is_denied_or_wished(self, index: int) -> bool:
        start = self._sentence_start(index)
        in_clause = True
        left = index - 1
        while left >= 0 and self._is_inside(left, start, index):
            word = self._tokens[left]
            gap = self._content[word.end : self._tokens[left + 1].start]
            in_clause = in_clause and _CLAUSE_END.search(gap) is None
            if word.folded in HEDGE_WORDS or (in_clause and word.folded in NEGATION_WORDS):
                return True
            in_clause = in_clause and word.folded not in _CLAUSE_WORDS
            left -= 1
        return False

    def _is_inside(self, left: int, start: int, index: int) -> bool:
        return self._tokens[left].start >= start and index - left <= CLAUSE_MAX_WORDS
