"""Queries built from a corpus without a model: a rare phrase of one memory, as it is written there.

What belongs here: which memories are asked for, and with which phrase. What does not: cutting a
memory into phrases (phrases.py), what other memories hold (exact_corpus.py), asking, scoring.

**This stratum favours lexical search by construction.** A query repeats its memory's own rarest
words, so a search by words finds it nearly always, and a good figure says nothing about questions
in other words. It is a floor check and a guard against regressions: it can show that something
broke or that a change costs literal lookups, never that one way of ranking is better than another.
Reports that show it have to say so (hybrid-recall's own report, section 2.2, calls its lexical
arm's recall on such queries circular).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from noctuary.evaluate.exact_corpus import ExactCorpus
from noctuary.evaluate.labels.queries import Query
from noctuary.evaluate.phrases import rank_phrases
from noctuary.hashing import hash_text
from noctuary.types import MemoryRecord

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
        records: The whole corpus, in any order; phrases are compared with all of it. Gone through
            twice, and of it only what may be asked for is held.
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
    looked_at = _first_by_hash(records, n * EXAMINED_PER_QUERY, seed)
    corpus = ExactCorpus(records if looked_at else ())
    found: list[Query] = []
    skipped: Counter[str] = Counter()
    for place, record in looked_at:
        if len(found) == n:
            break
        asked = _ask_for(corpus, place, record)
        if isinstance(asked, Skip):
            skipped[asked.value] += 1
        else:
            found.append(_query(record, asked))
    queries = tuple(sorted(found, key=lambda query: query.query_id))
    return ExactStratum(queries, len(found) + skipped.total(), dict(sorted(skipped.items())))


def _first_by_hash(
    records: Sequence[MemoryRecord], count: int, seed: int
) -> list[tuple[int, MemoryRecord]]:
    """Return the memories that are looked at, with their places, in order."""
    hashed = (
        (hash_text(str(seed), record.content), record.memory_id, place, record)
        for place, record in enumerate(records)
    )
    first = heapq.nsmallest(count, hashed, key=lambda found: found[:3])
    return [(place, record) for _, _, place, record in first]


def _query(record: MemoryRecord, phrase: str) -> Query:
    return Query(
        query_id=f"{STRATUM}-{record.memory_id}",
        text=phrase,
        stratum=STRATUM,
        relevant_ids=(record.memory_id,),
    )


def _ask_for(corpus: ExactCorpus, place: int, record: MemoryRecord) -> str | Skip:
    """Return the rarest phrase that only this memory holds, or why there is none."""
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
