"""What a memory names: capitalised runs and quoted strings. Spans only, no concepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from noctuary.graph.fold import Word
from noctuary.graph.lexicon import CALENDAR_WORDS, FUNCTION_WORDS, NAME_CONNECTORS

QUOTED_MAX_CHARS = 80
"""Longest quoted string that is taken for a name; longer ones are speech."""

NAME_MAX_WORDS = 8
"""Longest capitalised run; longer ones are headlines in capitals."""

_QUOTED = re.compile(
    rf"\"([^\"\n]{{2,{QUOTED_MAX_CHARS}}})\"|“([^”\n]{{2,{QUOTED_MAX_CHARS}}})”"
    rf"|«([^»\n]{{2,{QUOTED_MAX_CHARS}}})»|「([^」\n]{{2,{QUOTED_MAX_CHARS}}})」"
    rf"|`([^`\n]{{2,{QUOTED_MAX_CHARS}}})`|‘([^‘’\n]{{2,{QUOTED_MAX_CHARS}}})’(?!\w)"
    # Single marks are apostrophes too: only where no word touches them from outside.
    rf"|(?<![\w'])'(?!\s)([^'\n]{{2,{QUOTED_MAX_CHARS}}})(?<!\s)'(?![\w'])"
)
_SENTENCE_END = re.compile(r"[.!?…:。！？]|\n")
_INSIDE_RUN = frozenset({" ", "-", " & ", ". ", ".", "/", "\u00a0"})
_SHORT_TITLE_CHARS = 2  # J., Dr., St.


class Span(NamedTuple):
    """Offsets into the content, end exclusive."""

    start: int
    end: int


def quoted_strings(content: str) -> list[Span]:
    """Return what stands between quotation marks, without the marks."""
    return [Span(*match.span(match.lastindex or 0)) for match in _QUOTED.finditer(content)]


def capitalised_runs(content: str, tokens: Sequence[Word]) -> list[Span]:
    """Return runs of capitalised words, connectors allowed inside.

    The guard: a word that begins a sentence is capitalised anyway. It is dropped when it is a
    function word, and alone it counts only if the memory capitalises it elsewhere too or if it is
    shaped like a name (an acronym, inner capitals, digits).
    """
    runs = list(_raw_runs(content, tokens))
    inside = {
        tokens[i].folded
        for first, last in runs
        for i in range(first, last + 1)
        if not _starts_sentence(content, tokens, i)
    }
    kept: list[Span] = []
    for first, last in runs:
        begins = _starts_sentence(content, tokens, first)
        if first == last and begins and not _counts_alone(content, tokens[first], inside):
            continue
        kept.append(Span(tokens[first].start, tokens[last].end))
    return kept


def _raw_runs(content: str, tokens: Sequence[Word]) -> Iterator[tuple[int, int]]:
    index = 0
    while index < len(tokens):
        if not _is_capitalised(content, tokens[index]):
            index += 1
            continue
        last = _run_end(content, tokens, index)
        first = index
        while first <= last and _is_weak(content, tokens[first]):
            first += 1
        trimmed = last
        while trimmed >= first and _is_weak(content, tokens[trimmed]):
            trimmed -= 1
        if 0 <= trimmed - first < NAME_MAX_WORDS and not _is_letter(tokens, first, trimmed):
            yield first, trimmed
        index = last + 1


def _run_end(content: str, tokens: Sequence[Word], first: int) -> int:
    last = index = first
    while index + 1 < len(tokens) and _joined(content, tokens[index], tokens[index + 1]):
        index += 1
        if _is_capitalised(content, tokens[index]) or content[tokens[index].start].isdigit():
            last = index
        elif tokens[index].folded not in NAME_CONNECTORS:
            break
    return last


def _joined(content: str, left: Word, right: Word) -> bool:
    between = content[left.end : right.start]
    if between not in _INSIDE_RUN:
        return False
    # A full stop joins only after an initial or a short title, otherwise it ends the sentence.
    if between.startswith(".") and left.end - left.start > _SHORT_TITLE_CHARS:
        return False
    return not content[left.start : left.end].endswith(("'s", "’s"))


def _is_capitalised(content: str, word: Word) -> bool:
    return content[word.start].isupper()


def _is_weak(content: str, word: Word) -> bool:
    if _is_initial(content, word):
        return False
    return word.folded in FUNCTION_WORDS or word.folded in CALENDAR_WORDS


def _is_initial(content: str, word: Word) -> bool:
    return len(word.folded) == 1 and content[word.end : word.end + 1] == "."


def _is_letter(tokens: Sequence[Word], first: int, last: int) -> bool:
    return first == last and len(tokens[first].folded) == 1


def _starts_sentence(content: str, tokens: Sequence[Word], index: int) -> bool:
    if index == 0:
        return True
    between = content[tokens[index - 1].end : tokens[index].start]
    return _SENTENCE_END.search(between) is not None


def _counts_alone(content: str, word: Word, inside: set[str]) -> bool:
    surface = content[word.start : word.end]
    shaped = any(char.isupper() or char.isdigit() for char in surface[1:])
    return shaped or word.folded in inside
