"""Queries built from a corpus without a model: rare phrases and their memories."""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text
from noctuary.core.types import MemoryRecord
from noctuary.evaluate.labels import Query
from noctuary.text.tokens import (
    MARKS,
    NGRAM_CHARS,
    STOP_WORDS,
    UNSPACED,
    dominant_script,
    normalize,
    regex_class,
)

# Phrases of a text, as written: contiguous words, or characters where spaces separate none.


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
    most = MAX_GRAMS if dominant_script(text) in UNSPACED else MAX_WORDS
    longest = min(most, len(read_keys(text)) // 2)
    if longest < MIN_UNITS:
        return
    # Every window of the longest length, or a shorter run as a whole.
    windows = [
        run[start : start + longest]
        for run in _runs(text)
        if len(run) >= MIN_UNITS
        for start in range(max(len(run) - longest, 0) + 1)
    ]
    weights = [sum(rarity(u.key) for u in w if u.key not in STOP_WORDS) for w in windows]
    for place in sorted(range(len(windows)), key=lambda place: -weights[place]):
        kept = _trim(windows[place])
        phrase = " ".join(text[kept[0].start : kept[-1].end].split())
        salient = sum(unit.key not in STOP_WORDS for unit in kept)
        if len(phrase) <= MAX_PHRASE_CHARS and salient >= MIN_SALIENT:
            yield phrase


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


def _trim(window: Sequence[Unit]) -> Sequence[Unit]:
    """Return the window without stop words at its ends, never below the shortest length."""
    first, stop = 0, len(window)
    while stop - first > MIN_UNITS and window[stop - 1].key in STOP_WORDS:
        stop -= 1
    while stop - first > MIN_UNITS and window[first].key in STOP_WORDS:
        first += 1
    return window[first:stop]


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


# What the exact stratum asks of a whole corpus, without a record of it in memory.
#
# Memory: the folded texts as UTF-8, 4 bytes a content word and the vocabulary: some 500 bytes a
# memory.


NEAR_DUPLICATE = 0.8
"""Jaccard similarity of content words from which two memories answer the same query. Lower skips
memories that merely share a topic, higher punishes a search for finding the twin."""

_END = b"\n"
"""Between two folded texts, which hold single spaces only: no phrase runs over it."""


class ExactCorpus:
    """Which words stand in which memories, and their folded texts.

    Attributes:
        sizes: Distinct content words of every memory, shape (n,).
    """

    def __init__(self, records: Iterable[MemoryRecord]) -> None:
        """Read the whole corpus once.

        Args:
            records: In any order; their places number them below.
        """
        self._vocabulary: dict[str, int] = {}
        words, sizes, ends = array("i"), array("q"), array("q")
        folded = bytearray()
        for record in records:
            numbers = self._number(record.content)
            words.extend(numbers)
            sizes.append(len(numbers))
            # Keywords and tags are searched too: a phrase that stands there is not unique either.
            text = fold_text("\n".join((record.content, record.expanded_keywords, record.tags)))
            folded += _encoded(text) + _END
            ends.append(len(folded))
        self.sizes = np.frombuffer(sizes, dtype=np.int64) if sizes else np.zeros(0, np.int64)
        self._words = np.frombuffer(words, dtype=np.int32) if words else np.zeros(0, np.int32)
        self._starts = np.concatenate(([0], np.cumsum(self.sizes)))
        self._frequencies = np.bincount(self._words, minlength=len(self._vocabulary))
        self._folded, self._ends = folded, ends
        self._repeated = np.zeros(len(self.sizes), dtype=np.bool_)

    def rarity(self, key: str) -> float:
        """Return the inverse document frequency of a word, at least 0."""
        number = self._vocabulary.get(key)
        if number is None:
            return 0.0
        return math.log(len(self.sizes) / int(self._frequencies[number]))

    def has_near_duplicate(self, place: int) -> bool:
        """Tell whether another memory has nearly the same content words."""
        if not self._repeated[place]:
            words = self._words[self._starts[place] : self._starts[place + 1]]
            shared = self._shared(words)
            similar = shared / (self.sizes + len(words) - shared) >= NEAR_DUPLICATE
            if np.count_nonzero(similar) > 1:  # itself and another
                self._repeated |= similar
        return bool(self._repeated[place])

    def is_unique(self, phrase: str, place: int) -> bool:
        """Tell whether the phrase, case-folded, stands in this memory and in no other."""
        sought = _encoded(fold_text(phrase))
        start, end = self._ends[place - 1] if place else 0, self._ends[place]
        if self._folded.find(sought, start, end) < 0:
            return False  # folding joined a mark from outside of the phrase to it
        return self._folded.find(sought, 0, start) < 0 and self._folded.find(sought, end) < 0

    def _number(self, text: str) -> list[int]:
        """Return the numbers of the distinct content words of a text, new ones numbered."""
        known = self._vocabulary
        return [known.setdefault(key, len(known)) for key in set(read_keys(text)) - STOP_WORDS]

    def _shared(self, words: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return how many of some words each memory has, shape (n,)."""
        is_asked = np.zeros(len(self._vocabulary), dtype=np.bool_)
        is_asked[words] = True
        held = np.flatnonzero(is_asked[self._words])
        memories = np.searchsorted(self._starts, held, side="right") - 1
        return np.bincount(memories, minlength=len(self.sizes))


def _encoded(text: str) -> bytes:
    """Return a text as bytes that hold another's exactly where the text holds the other."""
    return text.encode("utf-8", "surrogatepass")


# Queries built from a corpus without a model: a rare phrase of one memory, as it is written there.
#
# **This stratum favours lexical search by construction.** A query repeats its memory's own rarest
# words, so a search by words finds it nearly always, and a good figure says nothing about
# questions in other words. It is a floor check and a guard against regressions: it can show that
# something broke or that a change costs literal lookups, never that one way of ranking is better
# than another. Reports that show it have to say so (hybrid-recall's own report, section 2.2, calls
# its lexical arm's recall on such queries circular).


STRATUM = "exact"
DEFAULT_QUERIES = 60
"""More find smaller drops and cost time every night; 50 is what rankings of systems take to settle
(Voorhees and Buckley 2002)."""
DEFAULT_SEED = 0
"""Another one chooses other memories; a fixed one keeps nights comparable."""

MIN_KEYS = 6
"""Distinct content words (n-grams in unspaced scripts) of the shortest memory that is asked for: of
a shorter one, every phrase is nearly the whole."""
PHRASES_TRIED = 8
"""Phrases of one memory that are looked up before it is given up: bounds time on corpora that
repeat themselves."""
EXAMINED_PER_QUERY = 10
"""Memories looked at for each query wanted: bounds time where nearly all are skipped, at the price
of fewer queries there."""


def build_exact_queries(
    records: Sequence[MemoryRecord], n: int = DEFAULT_QUERIES, seed: int = DEFAULT_SEED
) -> tuple[Query, ...]:
    """Build up to `n` queries that repeat a phrase of exactly one memory.

    Memories are taken in the order of a hash of their content, so that the choice depends neither
    on their order nor on their ids, and a memory that is added displaces at most one other (and may
    change a phrase by making one of its words less rare). Left out are memories of named users (a
    recall that names no user cannot see them), short ones, and those that say nearly what another
    one says or hold no phrase of their own.

    Args:
        records: The whole corpus, in any order; phrases are compared with all of it. Gone through
            twice, and of it only what may be asked for is held.
        n: Queries wanted, at least 0.
        seed: Chooses other memories.

    Returns:
        One per chosen memory, in the order of their ids (stratum "exact", id "exact-<memory_id>",
        relevant to that one memory). An empty corpus, or one that only repeats itself, gives fewer
        or none.

    Raises:
        ValueError: If `n` is negative.
    """
    if n < 0:
        raise ValueError(f"the number of queries starts at 0, got {n}")
    hashed = (
        (hash_text(str(seed), record.content), record.memory_id, place, record)
        for place, record in enumerate(records)
    )
    looked_at = heapq.nsmallest(n * EXAMINED_PER_QUERY, hashed, key=lambda found: found[:3])
    corpus = ExactCorpus(records if looked_at else ())
    asked = (
        Query(f"{STRATUM}-{memory_id}", phrase, STRATUM, (memory_id,))
        for _, memory_id, place, record in looked_at
        if (phrase := _own_phrase(corpus, place, record)) is not None
    )
    return tuple(sorted(islice(asked, n), key=lambda query: query.query_id))


def _own_phrase(corpus: ExactCorpus, place: int, record: MemoryRecord) -> str | None:
    """Return the rarest phrase that only this memory holds; None where it is not to be asked."""
    if record.user is not None or corpus.sizes[place] < MIN_KEYS:
        return None
    if corpus.has_near_duplicate(place):
        return None
    phrases = islice(rank_phrases(record.content, corpus.rarity), PHRASES_TRIED)
    return next((phrase for phrase in phrases if corpus.is_unique(phrase, place)), None)
