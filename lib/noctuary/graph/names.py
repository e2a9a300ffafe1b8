"""Names, plain runs and the phrases around statements, as spans of a text."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from noctuary.graph.fold import Word, script_of
from noctuary.graph.word_lists import (
    ADVERBS,
    ATTRIBUTES,
    BACKWARD_WORDS,
    CALENDAR_WORDS,
    DETERMINERS,
    FUNCTION_WORDS,
    LY_NOUNS,
    NAME_CONNECTORS,
    SAYING_WORDS,
    STATING_WORDS,
)

# Names in a memory: capitalised runs and quoted strings. Spans only, no concepts.

QUOTED_MAX_CHARS = 80  # longest quoted string that is taken for a name; longer ones are speech
NAME_MAX_WORDS = 8  # longest capitalised run; longer ones are headlines in capitals

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
    """Return the strings between quotation marks, without the marks."""
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
    return [
        Span(tokens[first].start, tokens[last].end)
        for first, last in runs
        if first < last
        or not _starts_sentence(content, tokens, first)
        or tokens[first].folded in inside
        or any(
            c.isupper() or c.isdigit() for c in content[tokens[first].start + 1 : tokens[last].end]
        )
    ]


def _raw_runs(content: str, tokens: Sequence[Word]) -> Iterator[tuple[int, int]]:
    index = 0
    while index < len(tokens):
        if not content[tokens[index].start].isupper():
            index += 1
            continue
        last = _run_end(content, tokens, index)
        strong = [i for i in range(index, last + 1) if not _is_weak(content, tokens[i])]
        is_letter = len(strong) == 1 and len(tokens[strong[0]].folded) == 1
        if strong and strong[-1] - strong[0] < NAME_MAX_WORDS and not is_letter:
            yield strong[0], strong[-1]
        index = last + 1


def _run_end(content: str, tokens: Sequence[Word], first: int) -> int:
    last = index = first
    while index + 1 < len(tokens) and _joined(content, tokens[index], tokens[index + 1]):
        index += 1
        if _is_proper(content, tokens[index]):
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
    return not content.endswith(_OWNER_MARKS, left.start, left.end)


def _is_weak(content: str, word: Word) -> bool:
    is_initial = len(word.folded) == 1 and content[word.end : word.end + 1] == "."
    return not is_initial and is_closed(word)


def _starts_sentence(content: str, tokens: Sequence[Word], index: int) -> bool:
    if index == 0:
        return True
    between = content[tokens[index - 1].end : tokens[index].start]
    return _SENTENCE_END.search(between) is not None


# Stop-word-free runs: two or three adjacent plain words, after Rose et al. (RAKE).

RUN_MIN_WORDS = 2  # shortest run; single words are the keyword index's business

# Longest run. Of a longer stretch its last words count: an English phrase ends with its head.
RUN_MAX_WORDS = 3
# Runs taken per memory, the first ones; limits how much a pasted document adds to the graph.
RUNS_MAX = 24
# Words remembered as plain or not; trades a few MB for not deciding frequent words again.
_WORD_CACHE_SIZE = 1 << 16
_INSIDE = frozenset({" ", "-", "\u00a0"})
_STOP = FUNCTION_WORDS | CALENDAR_WORDS | SAYING_WORDS | STATING_WORDS
_OWNER_MARKS = ("'s", "’s")


_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


def fences(content: str) -> list[tuple[int, int]]:
    """Return the spans of fenced code; a fence that is never closed reaches to the end."""
    if "```" not in content:
        return []
    return [match.span() for match in _FENCE.finditer(content)]


def find_runs(content: str, tokens: Sequence[Word], taken: Sequence[tuple[int, int]]) -> list[Span]:
    """Return the stop-word-free runs of a text, left to right, not overlapping."""
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
    """Return whether a word may be in a run: no stop word, number or single letter; Latin."""
    if folded in _STOP or len(folded) == 1 or not folded.isalpha():
        return False
    if folded.isascii():
        return True
    script = script_of(folded[0])
    return script is not None and script.has_runs


# The phrase before or after a word: the subject and the value of a statement.

PHRASE_MAX_WORDS = 5  # longest phrase in plain words; a longer one is a clause and names nothing
CAPITALISED_MAX_WORDS = 8  # longest capitalised phrase, as for names
QUOTED_MAX_WORDS = 8  # longest phrase between quotation marks, in words

# Most characters between a verb and its object: a space and an opening mark or two.
GAP_MAX_CHARS = 3
_PHRASE_INSIDE = frozenset({" ", "-", "_", "/", ".", "@", "&", " & ", "'", "’", "–", "\u00a0", "+"})
_INITIAL_GAP = ". "
_SHORT_TITLES = frozenset({"dr", "mr", "mrs", "ms", "st", "prof"})
_PHRASE_OPENING = {'"': '"', "“": "”", "«": "»", "「": "」", "`": "`", "'": "'", "‘": "’"}
_BEFORE_PHRASE = frozenset(" \t\u00a0*_([$€£¥")


class Phrase(NamedTuple):
    """A run of words."""

    first: int  # index of its first word
    last: int


def phrase_after(content: str, tokens: Sequence[Word], place: int, index: int) -> Phrase | None:
    """Return the phrase that begins at an offset, where the word of that index is the first there.

    Determiners are passed over. A phrase that begins with a capital and has no determiner ends with
    its last capitalised word ("Redis" of "Redis running here"); any other ends before a function
    word or a mark ("Memphis area" of "the Memphis area of").
    """
    opened = place
    while index < len(tokens) and _opens(content, place, tokens[index]):
        word = tokens[index]
        quoted = _quoted(content, tokens, place, index)
        if quoted is not None:
            return quoted
        if word.folded not in DETERMINERS and not _is_attribute(content, word):
            return _forward(content, tokens, index, bare=content[opened:place].strip() == "")
        place, index = word.end, index + 1
    return None


def phrase_before(content: str, tokens: Sequence[Word], index: int) -> Phrase | None:
    """Return the phrase that ends right before a word, adverbs and auxiliaries passed over."""
    last = index - 1
    while last >= 0 and is_adverb(tokens[last]) and _follows(content, tokens, last):
        last -= 1
    if last < 0 or not _follows(content, tokens, last):
        return None
    if is_closed(tokens[last]) or tokens[last].folded in SAYING_WORDS:
        return None
    if _is_proper(content, tokens[last]):
        proper = _backward(content, tokens, last, proper=True)
        is_letter = proper is not None and tokens[last].end - tokens[proper.first].start == 1
        if proper is not None and not is_letter:
            return proper
    return _backward(content, tokens, last, proper=False)


def is_closed(word: Word) -> bool:
    """Return whether a word belongs to a closed class that ends every phrase."""
    return word.folded in FUNCTION_WORDS or word.folded in CALENDAR_WORDS


def is_adverb(word: Word) -> bool:
    """Return whether a word may come between a subject and its verb."""
    folded = word.folded
    return folded in ADVERBS or (folded.endswith("ly") and folded not in LY_NOUNS)


def has_capital(content: str, tokens: Sequence[Word], phrase: Phrase) -> bool:
    """Return whether any word of the phrase begins with a capital."""
    return any(content[word.start].isupper() for word in tokens[phrase.first : phrase.last + 1])


def _opens(content: str, place: int, word: Word) -> bool:
    if word.start - place > GAP_MAX_CHARS:
        return False
    return all(
        mark in _BEFORE_PHRASE or mark in _PHRASE_OPENING for mark in content[place : word.start]
    )


def _quoted(content: str, tokens: Sequence[Word], place: int, index: int) -> Phrase | None:
    closing = _PHRASE_OPENING.get(content[place : tokens[index].start][-1:])
    if closing is None:
        return None
    for last in range(index, min(index + QUOTED_MAX_WORDS, len(tokens))):
        after = tokens[last + 1].start if last + 1 < len(tokens) else len(content)
        gap = content[tokens[last].end : after]
        if closing in gap:
            return Phrase(index, last)
        if "\n" in gap:
            return None
    return None


def _forward(content: str, tokens: Sequence[Word], first: int, *, bare: bool) -> Phrase | None:
    if _ends_phrase(content, tokens[first]) or tokens[first].folded in BACKWARD_WORDS:
        return None
    proper = bare and _is_proper(content, tokens[first])
    last = index = first
    limit = first + (CAPITALISED_MAX_WORDS if proper else PHRASE_MAX_WORDS)
    while index + 1 < len(tokens) and _joined_words(content, tokens, index):
        if proper and content.endswith(_OWNER_MARKS, tokens[index].start, tokens[index].end):
            break
        index += 1
        if index >= limit:
            return None
        if proper:
            if _belongs(content, tokens[index], proper=True):
                last = index
            elif tokens[index].folded not in NAME_CONNECTORS:
                break
        elif not _ends_phrase(content, tokens[index]):
            last = index
        elif tokens[index].folded != "of":
            break
    return Phrase(first, last)


def _backward(content: str, tokens: Sequence[Word], last: int, *, proper: bool) -> Phrase | None:
    first = index = last
    limit = last - (CAPITALISED_MAX_WORDS if proper else PHRASE_MAX_WORDS)
    while index > 0 and _joined_words(content, tokens, index - 1):
        index -= 1
        word = tokens[index]
        if index <= limit:
            return None
        if _belongs(content, word, proper=proper):
            first = index
        elif not (proper and word.folded in NAME_CONNECTORS):
            break
    if proper and all(word.folded.isdigit() for word in tokens[first : last + 1]):
        return None
    if not proper and _is_attribute(content, tokens[first]):
        return Phrase(first + 1, last) if first < last else None
    return Phrase(first, last)


def _belongs(content: str, word: Word, *, proper: bool) -> bool:
    fits = _is_proper(content, word) if proper else word.folded not in SAYING_WORDS
    return fits and not _ends_phrase(content, word)


def _is_attribute(content: str, word: Word) -> bool:
    return word.folded in ATTRIBUTES and not content[word.start].isupper()


def _ends_phrase(content: str, word: Word) -> bool:
    # "New" in "New York" is part of a name, "new" in "new york office" is not.
    is_name = word.folded in ATTRIBUTES and content[word.start].isupper()
    return is_closed(word) and not is_name


def _joined_words(content: str, tokens: Sequence[Word], index: int) -> bool:
    left, right = tokens[index], tokens[index + 1]
    gap = content[left.end : right.start]
    if gap == ",":  # 1,500
        return left.folded.isdigit() and right.folded.isdigit()
    if gap == _INITIAL_GAP and content[left.start].isupper():
        return len(left.folded) == 1 or left.folded in _SHORT_TITLES
    return gap in _PHRASE_INSIDE


def _follows(content: str, tokens: Sequence[Word], index: int) -> bool:
    gap = content[tokens[index].end : tokens[index + 1].start]
    return gap.strip(" \u00a0\"”'`(*") in ("", ",") and "\n" not in gap


def _is_proper(content: str, word: Word) -> bool:
    return content[word.start].isupper() or content[word.start].isdigit()
