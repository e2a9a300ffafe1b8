"""Stop-word-free runs: two or three plain words that stand together, after Rose et al. (RAKE).

Belongs here: which runs of one memory are candidates. Does not belong here: which of them become
concepts, which takes the counts of the whole corpus (`canonical`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from noctuary.graph.clauses import fences
from noctuary.graph.fold import Word
from noctuary.graph.lexicon import CALENDAR_WORDS, FUNCTION_WORDS, SAYING_WORDS, STATING_WORDS
from noctuary.graph.names import Span
from noctuary.graph.scripts import script_of

RUN_MIN_WORDS = 2
"""Shortest run; single words are the keyword index's business."""

RUN_MAX_WORDS = 3
"""Longest run. Of a longer stretch its last words count: an English phrase ends with its head."""

RUNS_MAX = 24
"""Runs taken per memory, the first ones; bounds what a pasted document adds to the graph."""

_WORD_CACHE_SIZE = 1 << 16
"""Words remembered as plain or not; trades a few MB for not deciding frequent words again."""

_INSIDE = frozenset({" ", "-", "\u00a0"})
_STOP = FUNCTION_WORDS | CALENDAR_WORDS | SAYING_WORDS | STATING_WORDS
_OWNER_MARKS = ("'s", "’s")


def find_runs(content: str, tokens: Sequence[Word], taken: Sequence[tuple[int, int]]) -> list[Span]:
    """Return the stop-word-free runs of a text, left to right, not overlapping.

    Args:
        content: The text.
        tokens: Its words.
        taken: Spans that are names already: their words end a run, like a stop word.
    """
    found: list[Span] = []
    blocked = sorted([*taken, *fences(content)])
    first, block, previous_end = 0, 0, 0
    for index, (start, end, folded) in enumerate(tokens):
        while block < len(blocked) and blocked[block][1] <= start:
            block += 1
        is_taken = block < len(blocked) and blocked[block][0] < end
        if is_taken or not _is_plain(folded) or content.startswith(_OWNER_MARKS, end - 2):
            _take(tokens, first, index, found)
            first = index + 1
        elif index > first and content[previous_end:start] not in _INSIDE:
            _take(tokens, first, index, found)
            first = index
        if len(found) >= RUNS_MAX:
            return found
        previous_end = end
    _take(tokens, first, len(tokens), found)
    return found


def _take(tokens: Sequence[Word], first: int, stop: int, found: list[Span]) -> None:
    if stop - first >= RUN_MIN_WORDS:
        first = max(first, stop - RUN_MAX_WORDS)
        found.append(Span(tokens[first].start, tokens[stop - 1].end))


@functools.lru_cache(maxsize=_WORD_CACHE_SIZE)
def _is_plain(folded: str) -> bool:
    """Say whether a word may stand in a run: no stop word, no number, no single letter, Latin."""
    if folded in _STOP or len(folded) == 1 or not folded.isalpha():
        return False
    if folded.isascii():
        return True
    script = script_of(folded[0])
    return script is not None and script.has_runs
