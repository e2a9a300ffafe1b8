"""Queries built from a corpus without a model: a rare phrase of one memory, as it is written there.

What belongs here: which memories are asked for, and that no other memory holds the phrase. What
does not: cutting a memory into phrases (phrases.py), asking, scoring.

**This stratum favours lexical search by construction.** A query repeats its memory's own rarest
words, so a search by words finds it nearly always, and a good figure says nothing about questions
in other words. It is a floor check and a guard against regressions: it can show that something
broke or that a change costs literal lookups, never that one way of ranking is better than another.
Reports that show it have to say so (hybrid-recall's own report, section 2.2, calls its lexical
arm's recall on such queries circular).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.phrases import fold_text, rank_phrases, read_keys
from mnemon.hashing import hash_text
from mnemon.text.stopwords import STOP_WORDS
from mnemon.types import MemoryRecord

STRATUM = "exact"
DEFAULT_QUERIES = 60
"""More find smaller drops and cost time every night; 50 is what rankings of systems take to settle
(Voorhees and Buckley 2002)."""
DEFAULT_SEED = 0
"""Another one chooses other memories; a fixed one keeps nights comparable."""

MIN_KEYS = 6
"""Distinct content words (n-grams in unspaced scripts) of the shortest memory that is asked for: of
a shorter one, every phrase is nearly the whole."""
NEAR_DUPLICATE = 0.8
"""Jaccard similarity of content words from which two memories answer the same query. Lower skips
memories that merely share a topic, higher punishes a search for finding the twin."""
PHRASES_TRIED = 8
"""Phrases of one memory that are looked up before it is given up: bounds time on corpora that
repeat themselves."""
EXAMINED_PER_QUERY = 10
"""Memories looked at for each query wanted: bounds time where nearly all are skipped, at the price
of fewer queries there."""


class Skip(StrEnum):
    """Why a memory is not asked for."""

    SHORT = "too short"
    OWNED = "belongs to a named user"
    NEAR_DUPLICATE = "another memory says nearly the same"
    NO_UNIQUE_PHRASE = "no phrase of its own"


@dataclass(frozen=True, slots=True)
class ExactStratum:
    """The queries and what was passed over to find them.

    Attributes:
        queries: One per chosen memory, in the order of their ids.
        examined: Memories looked at.
        skipped: How many of these were not used, by reason; only reasons that occurred.
    """

    queries: tuple[Query, ...] = ()
    examined: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])


def build_exact_queries(
    records: Sequence[MemoryRecord], n: int = DEFAULT_QUERIES, seed: int = DEFAULT_SEED
) -> ExactStratum:
    """Build up to `n` queries that repeat a phrase of exactly one memory.

    Memories are taken in the order of a hash of their content, so that the choice depends neither
    on their order nor on their ids, and a memory that is added displaces at most one other (and may
    change a phrase by making one of its words less rare). Memories of named users are left out: a
    recall that names no user cannot see them.

    Args:
        records: The whole corpus, in any order; phrases are compared with all of it.
        n: Queries wanted, at least 0.
        seed: Chooses other memories.

    Returns:
        The queries (stratum "exact", id "exact-<memory_id>", relevant to that one memory) and what
        was skipped. An empty corpus, or one that only repeats itself, gives fewer or none.

    Raises:
        ValueError: If `n` is negative.
    """
    if n < 0:
        raise ValueError(f"the number of queries starts at 0, got {n}")
    corpus = _Corpus(records)
    found: list[Query] = []
    skipped: Counter[str] = Counter()
    for place in _in_hash_order(records, seed)[: n * EXAMINED_PER_QUERY]:
        if len(found) == n:
            break
        asked = _ask_for(corpus, place)
        if isinstance(asked, Skip):
            skipped[asked.value] += 1
        else:
            found.append(_query(records[place], asked))
    queries = tuple(sorted(found, key=lambda query: query.query_id))
    return ExactStratum(queries, len(found) + skipped.total(), dict(sorted(skipped.items())))


def _in_hash_order(records: Sequence[MemoryRecord], seed: int) -> list[int]:
    hashes = [
        (hash_text(str(seed), record.content), record.memory_id, place)
        for place, record in enumerate(records)
    ]
    return [place for _, _, place in sorted(hashes)]


def _query(record: MemoryRecord, phrase: str) -> Query:
    return Query(
        query_id=f"{STRATUM}-{record.memory_id}",
        text=phrase,
        stratum=STRATUM,
        relevant_ids=(record.memory_id,),
    )


def _ask_for(corpus: _Corpus, place: int) -> str | Skip:
    """Return the rarest phrase that only this memory holds, or why there is none."""
    record = corpus.records[place]
    if record.user is not None:
        return Skip.OWNED
    if corpus.sizes[place] < MIN_KEYS:
        return Skip.SHORT
    if corpus.has_near_duplicate(place):
        return Skip.NEAR_DUPLICATE
    phrases = rank_phrases(record.content, corpus.rarity)
    for phrase in islice(phrases, PHRASES_TRIED):
        if corpus.is_unique(phrase, place):
            return phrase
    return Skip.NO_UNIQUE_PHRASE


class _Corpus:
    """Which words stand in which memories, and their folded texts.

    Attributes:
        records: As given.
        sizes: Distinct content words of every memory, shape (n,).
    """

    def __init__(self, records: Sequence[MemoryRecord]) -> None:
        self.records = records
        self._vocabulary: dict[str, int] = {}
        rows = [self._number(record.content) for record in records]
        self.sizes = np.array([len(row) for row in rows], dtype=np.int64)
        self._starts = np.concatenate(([0], np.cumsum(self.sizes)))
        self._words = np.array([word for row in rows for word in row], dtype=np.int64)
        self._repeated = np.zeros(len(rows), dtype=np.bool_)
        memories = np.repeat(np.arange(len(rows)), self.sizes)
        self._postings = memories[np.argsort(self._words, kind="stable")]
        self._frequencies = np.bincount(self._words, minlength=len(self._vocabulary))
        self._posting_starts = np.concatenate(([0], np.cumsum(self._frequencies)))
        # Keywords and tags are searched too: a phrase that stands there is not unique either.
        self._folded = [
            fold_text("\n".join((record.content, record.expanded_keywords, record.tags)))
            for record in records
        ]

    def rarity(self, key: str) -> float:
        """Return the inverse document frequency of a word, at least 0."""
        number = self._vocabulary.get(key)
        if number is None:
            return 0.0
        return math.log(len(self.records) / int(self._frequencies[number]))

    def has_near_duplicate(self, place: int) -> bool:
        """Tell whether another memory has nearly the same content words."""
        if not self._repeated[place]:
            words = self._words[self._starts[place] : self._starts[place + 1]]
            holders = [self._holders(int(word)) for word in words]
            shared = np.bincount(np.concatenate(holders), minlength=len(self.records))
            similar = shared / (self.sizes + len(words) - shared) >= NEAR_DUPLICATE
            if np.count_nonzero(similar) > 1:  # itself and another
                self._repeated |= similar
        return bool(self._repeated[place])

    def is_unique(self, phrase: str, place: int) -> bool:
        """Tell whether the phrase, case-folded, stands in this memory and in no other."""
        folded = fold_text(phrase)
        if folded not in self._folded[place]:
            return False  # folding joined a mark from outside of the phrase to it
        before, after = self._folded[:place], self._folded[place + 1 :]
        return not any(folded in text for text in before) and not any(
            folded in text for text in after
        )

    def _number(self, text: str) -> list[int]:
        """Return the numbers of the distinct content words of a text, new ones numbered."""
        known = self._vocabulary
        return [known.setdefault(key, len(known)) for key in set(read_keys(text)) - STOP_WORDS]

    def _holders(self, word: int) -> NDArray[np.int64]:
        return self._postings[self._posting_starts[word] : self._posting_starts[word + 1]]
