"""Phrases of a text, as written: contiguous words, or characters where spaces separate none.

What belongs here: where a phrase may begin and end, and which phrases of a text are the rarest.
What does not: which memories are asked for (exact_stratum.py).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from noctuary.text.fold import MARKS, normalize
from noctuary.text.scripts import UNSPACED, dominant_script, regex_class
from noctuary.text.stopwords import STOP_WORDS
from noctuary.text.tokens import NGRAM_CHARS

MIN_UNITS = 3
"""Units of the shortest phrase: two rare words are a keyword query, not a phrase."""
MAX_WORDS = 6
"""Words of the longest phrase: longer ones are found by any search, shorter ones are less often
unique."""
MAX_GRAMS = 11
"""The same for unspaced scripts, in overlapping n-grams: twelve characters, some six words."""
MIN_SALIENT = 2
"""Units of a phrase that are no stop words: with fewer, "of the Xyz" would be a phrase."""
MAX_PHRASE_CHARS = 120
"""Longer phrases hold URLs or encoded data, which nobody types."""

_JOINED = r"(?:[-_./:@'’]{w}+)*"
_ASCII_WORD = re.compile(r"\w+" + _JOINED.format(w=r"\w"), re.ASCII)
_BREAK = re.compile(r"[\n\r.!?;…。！？；，、\x00-\x08\ud800-\udfff]")
"""Between two words: a phrase does not run from one sentence or line into the next (Chinese and
Japanese: clause), nor over a character that cannot be stored."""


class Unit(NamedTuple):
    """A word, or an n-gram of an unspaced script: `text[start:end]` and its case-folded form."""

    start: int
    end: int
    key: str


def fold_text(text: str) -> str:
    """Return the form in which two texts are the same: NFKC, case-folded, single spaces."""
    # The check is far cheaper than normalizing what nearly always is normal already.
    if not (text.isascii() or unicodedata.is_normalized("NFKC", text)):
        text = normalize(text)
    return " ".join(text.casefold().split())


def read_keys(text: str) -> list[str]:
    """Return the case-folded units of a text in order, stop words among them."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    if not _unspaced().search(text):
        return [word.casefold() for word in _word().findall(text)]
    return [unit.key for unit in _units(text)]


def rank_phrases(text: str, rarity: Callable[[str], float]) -> Iterator[str]:
    """Yield the phrases of a text, the rarest first; equal ones in text order.

    A phrase lies within one sentence or line, is no longer than half of the text, and neither
    begins nor ends with a stop word if it can do without.

    Args:
        text: A memory as it was written.
        rarity: Of a unit's key, at least 0; summed over the phrase (idf). Stop words count as 0.
    """
    longest = _longest(text)
    if longest < MIN_UNITS:
        return
    windows = [window for run in _runs(text) for window in _windows(run, longest)]
    scored = [
        (sum(rarity(unit.key) for unit in window if unit.key not in STOP_WORDS), window)
        for window in windows
    ]
    scored.sort(key=lambda pair: -pair[0])
    for _, window in scored:
        kept = _trim(window)
        phrase = " ".join(text[kept[0].start : kept[-1].end].split())
        if len(phrase) <= MAX_PHRASE_CHARS and _is_salient(kept):
            yield phrase


def _longest(text: str) -> int:
    """Return the most units that a phrase of this text may have."""
    most = MAX_GRAMS if dominant_script(text) in UNSPACED else MAX_WORDS
    return min(most, len(read_keys(text)) // 2)


def _runs(text: str) -> Iterator[list[Unit]]:
    """Yield the units of a text in runs that no sentence or line end interrupts."""
    run: list[Unit] = []
    for unit in _units(text):
        # Grams overlap: the gap is then empty.
        if run and _BREAK.search(text, run[-1].end, max(unit.start, run[-1].end)):
            yield run
            run = []
        run.append(unit)
    if run:
        yield run


def _windows(run: Sequence[Unit], longest: int) -> Iterator[Sequence[Unit]]:
    """Yield every window of the longest length, or a shorter run as a whole."""
    size = min(longest, len(run))
    if size < MIN_UNITS:
        return
    for start in range(len(run) - size + 1):
        yield run[start : start + size]


def _trim(window: Sequence[Unit]) -> Sequence[Unit]:
    """Return the window without stop words at its ends, never below the shortest length."""
    first, stop = 0, len(window)
    while stop - first > MIN_UNITS and window[stop - 1].key in STOP_WORDS:
        stop -= 1
    while stop - first > MIN_UNITS and window[first].key in STOP_WORDS:
        first += 1
    return window[first:stop]


def _is_salient(window: Sequence[Unit]) -> bool:
    return sum(unit.key not in STOP_WORDS for unit in window) >= MIN_SALIENT


def _units(text: str) -> Iterator[Unit]:
    if text.isascii():
        for match in _ASCII_WORD.finditer(text):
            yield Unit(match.start(), match.end(), match.group().lower())
        return
    for match in _word_or_run().finditer(text):
        start, end = match.span()
        if match.lastgroup == "run":
            for at in range(start, max(end - NGRAM_CHARS, start) + 1):
                stop = min(at + NGRAM_CHARS, end)
                yield Unit(at, stop, text[at:stop])
        else:
            yield Unit(start, end, match.group().casefold())


# Compiled at the first text that is not ASCII.
@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(f"[{regex_class(UNSPACED)}]")


@cache
def _word() -> re.Pattern[str]:
    return re.compile(_word_source(rf"[\w{MARKS}]"))


@cache
def _word_or_run() -> re.Pattern[str]:
    unspaced = regex_class(UNSPACED)
    word = _word_source(rf"(?:[^\W{unspaced}]|[{MARKS}])")
    return re.compile(f"(?P<run>[{unspaced}]+)|(?P<word>{word})")


def _word_source(letter: str) -> str:
    return f"{letter}+" + _JOINED.format(w=letter)
