"""Pre-scored BM25 postings, built once a night."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text
from noctuary.lexical.search import K1, B, idf, saturation
from noctuary.sources.corpus import iter_batches
from noctuary.text.tokens import TOKENIZER_VERSION, document_tokens, encode_tokens
from noctuary.work.content import KEY_BYTES
from noctuary.work.shards import BatchFunction, RecordBatch, open_table

# The tokens of memories as a task over record batches.


TOKENS_KIND = f"tokens:{TOKENIZER_VERSION}"
"""Kind of the fragments: another tokenizer's are not found."""

_KEYED = ("content", "tags", "expanded_keywords", "category")
"""What tokens depend on, in the order of the key."""


@dataclass(frozen=True, slots=True)
class TokenizeMemories:
    """Gives `key` and `value` (as `encode_tokens`) for rows of `key` and the indexed fields."""

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "tokens"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`; measured on turns and notes of 190 characters."""
        return 0.03

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`."""
        return _tokenize


def tokens_key(content: str, tags: str, expanded_keywords: str, category: str) -> bytes:
    """Return the key of a memory's tokens: the SHA-256 of the fields that are indexed."""
    return bytes.fromhex(hash_text(content, tags, expanded_keywords, category))


def iter_keyed(memories: Path) -> Iterator[RecordBatch]:
    """Yield what the task reads of every memory, in the order of positions.

    Args:
        memories: memories.parquet.

    Raises:
        StoreError: It is missing or damaged.
    """
    import pyarrow as pa

    for batch in iter_batches(memories, _KEYED):
        columns = [column.to_pylist() for column in batch.columns]
        keys = [tokens_key(*row) for row in zip(*columns, strict=True)]
        named = [pa.array(keys, pa.binary(KEY_BYTES)), *batch.columns]
        yield pa.RecordBatch.from_arrays(named, names=["key", *_KEYED])


def _tokenize(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    fields: list[list[str]] = [batch.column(name).to_pylist() for name in _KEYED]
    values = [encode_tokens(document_tokens(*row)) for row in zip(*fields, strict=True)]
    made: list[Any] = [batch.column("key"), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(made, names=["key", "value"])


# Postings of a part of the corpus, not yet weighed: a task over record batches.


@dataclass(frozen=True, slots=True)
class CountTerms:
    """Gives a row per distinct term of a batch for rows of `position` and `value`.

    In: `position` int32, ascending; `value` binary, as `encode_tokens`. Out: `term` string,
    `positions` and `frequencies` list<int32>, positions ascending, frequencies at least 1.
    """

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "postings"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`; some 25 tokens a row, split and numbered by Arrow."""
        return 0.005

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`."""
        return _count


def _count(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute
    # A memory without tokens would be split into one empty token.
    batch = batch.filter(pc.greater(pc.binary_length(batch.column("value")), 0))
    split = pc.split_pattern(batch.column("value").cast(pa.string()), "\n")
    numbered = pc.list_flatten(split).dictionary_encode()
    places = np.asarray(batch.column("position"), dtype=np.int64)
    rows = max(len(places), 1)
    pairs = np.asarray(numbered.indices, dtype=np.int64) * rows
    pairs += np.asarray(pc.list_parent_indices(split), dtype=np.int64)
    pairs, frequencies = np.unique(pairs, return_counts=True)
    held = np.bincount(pairs // rows, minlength=len(numbered.dictionary))
    ends = pa.array(np.concatenate(([0], np.cumsum(held))), pa.int32())
    lists = (
        pa.ListArray.from_arrays(ends, pa.array(values.astype(np.int32)))
        for values in (places[pairs % rows], frequencies)
    )
    return pa.RecordBatch.from_arrays(
        [numbered.dictionary, *lists], names=["term", "positions", "frequencies"]
    )


# Pre-scored BM25 postings, built once a night.
#
# Every posting holds its final score, so a query only adds numbers: S. Robertson and H. Zaragoza,
# The Probabilistic Relevance Framework (2009), in Lucene's form (idf never negative, no constant
# k1 + 1 in the numerator); scoring ahead of time as in X. H. Lu, BM25S (2024).


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
    index = _count_terms(documents, k1, b)
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
    index = _count_terms(documents, k1, b)
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


def _count_terms(documents: Iterable[Sequence[str]], k1: float, b: float) -> _Counted:
    if not (0.0 <= k1 < float("inf") and 0.0 <= b <= 1.0):
        raise ValueError(
            f"expected k1 >= 0 and b in [0, 1], found k1={k1}, b={b}; see noctuary.lexical.build"
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


# From the counted parts of a corpus to its postings, without a list of its tokens.
#
# Memory: 16 bytes a posting, 8 a memory, the vocabulary, and one part.


Ints = NDArray[np.int64]


class _Part(NamedTuple):
    """Counted batches: a row per term of each, their postings one after the other.

    Attributes:
        terms: pyarrow.Array of strings.
        sizes: Postings of each term, at least 1, shape (n_terms,).
        positions: Shape (sizes.sum(),).
        frequencies: As many.
    """

    terms: Any
    sizes: Ints
    positions: Ints
    frequencies: Ints


class _Vocabulary(NamedTuple):
    """The terms of all parts in code point order, and which of them each part's rows are."""

    terms: list[str]
    ranks: list[NDArray[np.int32]]
    frequencies: Ints


def merge_postings(
    paths: Sequence[Path], n_memories: int, k1: float = K1, b: float = B
) -> Postings:
    """Return what `build_postings` gives for the same memories, bit for bit.

    Args:
        paths: Fragments of `CountTerms`, in the order of positions.
        n_memories: Those without tokens included.
        k1: As for `build_postings`, like `b`.
        b: In [0, 1].
    """
    vocabulary, lengths = _read_vocabulary(paths, n_memories)
    starts = np.zeros(len(vocabulary.terms) + 1, dtype=np.int64)
    np.cumsum(vocabulary.frequencies, out=starts[1:])
    rarity = idf(vocabulary.frequencies, n_memories)
    mean = float(lengths.mean()) if n_memories else 0.0
    positions = np.empty(starts[-1], dtype=np.int32)
    scores = np.empty(starts[-1], dtype=np.float32)
    free = starts[:-1].copy()
    for part, ranks in zip(_iter_parts(paths), vocabulary.ranks, strict=True):
        places = _places(ranks, part.sizes, free)
        weights = saturation(part.frequencies, lengths[part.positions], mean, k1, b)
        weights *= np.repeat(rarity[ranks], part.sizes)
        positions[places] = part.positions
        scores[places] = weights
    return Postings(vocabulary.terms, starts, positions, scores, n_memories)


def _read_vocabulary(paths: Sequence[Path], n_memories: int) -> tuple[_Vocabulary, Ints]:
    """Return all terms, and how many tokens every memory has, shape (n_memories,)."""
    numbers: dict[str, int] = {}
    found: list[NDArray[np.int32]] = []
    sizes: list[Ints] = []
    lengths = np.zeros(n_memories, dtype=np.int64)
    for part in _iter_parts(paths):
        terms: list[str] = part.terms.to_pylist()
        numbered = (numbers.setdefault(term, len(numbers)) for term in terms)
        found.append(np.fromiter(numbered, dtype=np.int32, count=len(terms)))
        sizes.append(part.sizes)
        if len(part.positions):
            first = int(part.positions.min())
            tokens = np.bincount(part.positions - first, part.frequencies).astype(np.int64)
            lengths[first : first + len(tokens)] += tokens
    terms = sorted(numbers)
    rank = np.empty(len(terms), dtype=np.int32)
    rank[[numbers[term] for term in terms]] = np.arange(len(terms))
    frequencies = np.zeros(len(terms), dtype=np.int64)
    for i, held in enumerate(sizes):
        found[i] = rank[found[i]]
        np.add.at(frequencies, found[i], held)
    return _Vocabulary(terms, found, frequencies), lengths


def _places(ranks: NDArray[np.int32], sizes: Ints, free: Ints) -> Ints:
    """Return where a part's postings go, and move the first free place of every term behind them.

    A term may have several rows, one for each batch that was counted; they are in order.
    """
    order = np.argsort(ranks, kind="stable")
    ahead = np.cumsum(sizes[order]) - sizes[order]
    _, first, rows = np.unique(ranks[order], return_index=True, return_counts=True)
    begins = np.empty(len(ranks), dtype=np.int64)
    begins[order] = free[ranks[order]] + ahead - np.repeat(ahead[first], rows)
    np.add.at(free, ranks, sizes)
    return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())


def _iter_parts(paths: Sequence[Path]) -> Iterator[_Part]:
    for path in paths:
        for batch in open_table(path).to_batches():
            lists = batch.column("positions")
            yield _Part(
                batch.column("term"),
                np.diff(np.asarray(lists.offsets, dtype=np.int64)),
                np.asarray(lists.flatten(), dtype=np.int64),
                np.asarray(batch.column("frequencies").flatten(), dtype=np.int64),
            )
