"""Pre-scored BM25 postings, built once a night.

What belongs here: term statistics, weights and the arrays that hold them. What does not: reading
them (noctuary.lexical.search) and files (the snapshot's layout).

Every posting holds its final score, so a query only adds numbers: S. Robertson and H. Zaragoza, The
Probabilistic Relevance Framework (2009), in Lucene's form (idf never negative, no constant k1 + 1
in the numerator); scoring ahead of time as in X. H. Lu, BM25S (2024).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.bm25 import K1, B, idf, saturation


@dataclass(frozen=True)
class Postings:
    """An inverted index with scores. Postings of term t are the slice [starts[t], starts[t + 1]).

    Attributes:
        terms: Distinct tokens in code point order (the byte order of their UTF-8).
        starts: int64, shape (n_terms + 1,), ascending, first 0, last n_postings.
        positions: int32, shape (n_postings,), memory positions, ascending inside a term.
        scores: float32, shape (n_postings,), BM25 contribution, positive.
        n_memories: Number of memories, the empty ones included.
    """

    terms: list[str]
    starts: NDArray[np.int64]
    positions: NDArray[np.int32]
    scores: NDArray[np.float32]
    n_memories: int

    def ranges(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        """Return the posting range [start, stop) of each term, (0, 0) for an unknown one."""
        return [self._range(term) for term in terms]

    def _range(self, term: str) -> tuple[int, int]:
        index = bisect_left(self.terms, term)
        if index == len(self.terms) or self.terms[index] != term:
            return (0, 0)
        return int(self.starts[index]), int(self.starts[index + 1])


def build_postings(documents: Iterable[Sequence[str]], k1: float = K1, b: float = B) -> Postings:
    """Build the postings of token lists given in the order of their positions.

    score(t, d) = ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * |d| / mean
    |d|))

    Args:
        documents: One token list per memory; consumed once, not kept.
        k1: Term frequency saturation, >= 0.
        b: Length normalisation, in [0, 1].

    Raises:
        ValueError: k1 or b is out of range.
    """
    index = _count(documents, k1, b)
    return _weighed(index, idf(index.document_frequencies, len(index.lengths)), k1, b)


def build_postings_beside(
    documents: Iterable[Sequence[str]], corpus: Postings, k1: float = K1, b: float = B
) -> Postings:
    """Build the postings of texts that are searched together with those of a corpus.

    How rare a term is comes from the corpus, so that scores of both compare; how long a text is
    counts among its own kind: summaries are longer than the turns that they stand for, and measured
    by those they would all be long.

    score(t, s) = idf_corpus(t) * tf / (tf + k1 * (1 - b + b * |s| / mean |s|))

    Args:
        documents: One token list per text; consumed once.
        corpus: Postings of the corpus; a term that it lacks has a document frequency of 0.
        k1: As for `build_postings`.
        b: As for `build_postings`.

    Raises:
        ValueError: k1 or b is out of range.
    """
    index = _count(documents, k1, b)
    ranges = corpus.ranges(index.terms)
    frequencies = np.array([stop - start for start, stop in ranges], dtype=np.int64)
    return _weighed(index, idf(frequencies, corpus.n_memories), k1, b)


class _Counted(NamedTuple):
    """Texts as (term, position) pairs, before they are weighed."""

    terms: list[str]
    lengths: NDArray[np.int64]
    term_of: NDArray[np.int64]
    positions: NDArray[np.int64]
    frequencies: NDArray[np.int64]
    document_frequencies: NDArray[np.int64]


def _count(documents: Iterable[Sequence[str]], k1: float, b: float) -> _Counted:
    if not (0.0 <= k1 < float("inf") and 0.0 <= b <= 1.0):
        raise ValueError(
            f"expected k1 >= 0 and b in [0, 1], found k1={k1}, b={b}; see noctuary.lexical.postings"
        )
    terms, term_ids, lengths = _numbered(documents)
    term_of, positions, frequencies = _pairs(term_ids, lengths)
    held = np.bincount(term_of, minlength=len(terms))
    return _Counted(terms, lengths, term_of, positions, frequencies, held)


def _weighed(index: _Counted, rarity: NDArray[np.float64], k1: float, b: float) -> Postings:
    starts = np.zeros(len(index.terms) + 1, dtype=np.int64)
    np.cumsum(index.document_frequencies, out=starts[1:])
    weights = _saturations(index, k1, b)
    weights *= rarity[index.term_of]
    return Postings(
        terms=index.terms,
        starts=starts,
        positions=index.positions.astype(np.int32),
        scores=weights.astype(np.float32),
        n_memories=len(index.lengths),
    )


def _numbered(
    documents: Iterable[Sequence[str]],
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted vocabulary, every token's rank in it, and every document's length."""
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__
    lengths: list[int] = []

    def token_ids() -> Iterator[int]:
        for document in documents:
            lengths.append(len(document))
            for token in document:
                yield vocabulary[token]

    first_seen = np.fromiter(token_ids(), dtype=np.int64)
    terms = sorted(vocabulary)
    rank = np.empty(len(terms), dtype=np.int64)
    rank[[vocabulary[term] for term in terms]] = np.arange(len(terms))
    return terms, rank[first_seen], np.asarray(lengths, dtype=np.int64)


def _pairs(
    term_ids: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct (term, position) pairs in that order, with their frequencies."""
    n_memories = max(len(lengths), 1)
    keys = term_ids * n_memories + np.repeat(np.arange(len(lengths)), lengths)
    pairs, frequencies = np.unique(keys, return_counts=True)
    return pairs // n_memories, pairs % n_memories, frequencies


def _saturations(index: _Counted, k1: float, b: float) -> NDArray[np.float64]:
    if not len(index.positions):
        return np.zeros(0)
    lengths, mean = index.lengths[index.positions], float(index.lengths.mean())
    return saturation(index.frequencies, lengths, mean, k1, b)
