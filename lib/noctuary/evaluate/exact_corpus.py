"""What the exact stratum asks of a whole corpus, without a record of it in memory.

What belongs here: how often words occur, near duplicates and whether a phrase is a memory's own.
What does not: which memories are asked for and with which phrase (`exact_stratum`). Memory: the
folded texts as UTF-8, 4 bytes a content word and the vocabulary: some 500 bytes a memory.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.phrases import fold_text, read_keys
from noctuary.text.stopwords import STOP_WORDS
from noctuary.types import MemoryRecord

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
