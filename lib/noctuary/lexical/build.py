"""Pre-scored BM25 postings, built once a night."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text, read_array, write_array, write_text
from noctuary.lexical.search import K1, B, idf, saturation
from noctuary.sources.corpus import iter_batches
from noctuary.text.tokens import TOKENIZER_VERSION, document_tokens, encode_tokens
from noctuary.work.content import KEY, KEY_BYTES, ContentStore
from noctuary.work.shards import BatchFunction, RecordBatch

if TYPE_CHECKING:
    import polars as pl

# The tokens of memories as a task over record batches.


# Kind of the fragments: another tokenizer's are not found.
TOKENS_KIND = f"tokens:{TOKENIZER_VERSION}"
# What tokens depend on, in the order of the key.
_KEYED = ("content", "tags", "expanded_keywords", "category")


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


def iter_tokens(memories: Path, store: ContentStore) -> Iterator[bytes]:
    """Yield every memory's tokens, by position."""
    for batch in iter_keyed(memories):
        yield from store.take(store.find(batch.column(KEY).to_pylist())).to_pylist()


def _tokenize(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    fields: list[list[str]] = [batch.column(name).to_pylist() for name in _KEYED]
    values = [encode_tokens(document_tokens(*row)) for row in zip(*fields, strict=True)]
    made: list[Any] = [batch.column("key"), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(made, names=["key", "value"])


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


POSTING_FILES = ("terms.json", "starts.npy", "positions.npy", "scores.npy")


def write_postings(postings: Postings, directory: Path) -> None:
    """Write POSTING_FILES."""
    terms, *arrays = (directory / name for name in POSTING_FILES)
    write_text(terms, json.dumps(postings.terms, ensure_ascii=False))
    columns = (postings.starts, postings.positions, postings.scores)
    for path, array in zip(arrays, columns, strict=True):
        write_array(path, array)


def read_postings(directory: Path, n_memories: int) -> Postings:
    """Read what `write_postings` wrote."""
    terms, *arrays = (directory / name for name in POSTING_FILES)
    starts, positions, scores = map(read_array, arrays)
    words = json.loads(terms.read_text(encoding="utf-8"))
    return Postings(words, starts, positions, scores, n_memories)


def build_postings(documents: Iterable[bytes], k1: float = K1, b: float = B) -> Postings:
    """Build the postings of memories given in the order of their positions.

    score(t, d) = ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * |d| / mean
    |d|))

    Args:
        documents: The tokens of each memory, as `encode_tokens`; consumed once, not kept.
        k1: Term frequency saturation, >= 0.
        b: Length normalisation, in [0, 1].

    Raises:
        ValueError: k1 or b is out of range.
    """
    counted = _count_terms(documents)
    return _weigh(counted, idf(counted.document_frequencies, len(counted.lengths)), k1, b)


def build_postings_beside(
    documents: Iterable[bytes], corpus: Postings, k1: float = K1, b: float = B
) -> Postings:
    """Build the postings of texts that are searched together with those of a corpus.

    How rare a term is comes from the corpus, so that scores of both compare; how long a text is
    counts among its own kind: summaries are longer than the turns that they stand for, and measured
    by those they would all be long.

    score(t, s) = idf_corpus(t) * tf / (tf + k1 * (1 - b + b * |s| / mean |s|))

    Args:
        documents: The tokens of each text, as `encode_tokens`; consumed once.
        corpus: Postings of the corpus; a term that it lacks has a document frequency of 0.
        k1: As for `build_postings`.
        b: As for `build_postings`.

    Raises:
        ValueError: k1 or b is out of range.
    """
    counted = _count_terms(documents)
    ranges = corpus.ranges(counted.terms)
    frequencies = np.array([stop - start for start, stop in ranges], dtype=np.int64)
    return _weigh(counted, idf(frequencies, corpus.n_memories), k1, b)


TEXTS_AT_ONCE = 16_384  # texts that are split and counted together: some 400,000 tokens, 20 MB
WEIGHED_AT_ONCE = 1 << 20  # postings whose scores are computed together: 50 MB of float64


class _Counted(NamedTuple):
    """Texts as (term, position) pairs in that order, before they are weighed.

    Attributes:
        terms: As in `Postings`.
        document_frequencies: Pairs of each term, shape (n_terms,).
        pairs: Columns `position` and `tf`.
        lengths: Tokens of each text, shape (n_texts,).
    """

    terms: list[str]
    document_frequencies: NDArray[np.int64]
    pairs: pl.DataFrame
    lengths: NDArray[np.int64]


def _count_terms(documents: Iterable[bytes]) -> _Counted:
    import polars as pl

    # Categories: a pair costs 12 bytes, whatever its term. A million memories have 20 million.
    tokens = pl.Series("term", dtype=pl.List(pl.Categorical))
    lengths, counted = [tokens.list.len()], [_count_pairs(tokens, 0)]
    position = 0
    waiting = iter(documents)
    while texts := list(islice(waiting, TEXTS_AT_ONCE)):
        joined = pl.Series("term", texts, pl.Binary).cast(pl.String)
        tokens = joined.replace("", None).str.split("\n").fill_null([])
        lengths.append(tokens.list.len())
        counted.append(_count_pairs(tokens, position))
        position += len(texts)
    by_term = (
        pl.concat(counted)
        .group_by("term")
        .agg("position", "tf")
        .cast({"term": pl.String})
        .sort("term")
    )
    return _Counted(
        terms=by_term["term"].to_list(),
        document_frequencies=by_term["tf"].list.len().cast(pl.Int64).to_numpy(),
        pairs=by_term.select(pl.col("position", "tf").explode()),
        lengths=pl.concat(lengths).cast(pl.Int64).to_numpy(),
    )


def _count_pairs(tokens: pl.Series, first: int) -> pl.DataFrame:
    """Return columns `term`, `position` and `tf` of texts from a position on, positions rising."""
    import polars as pl

    return (
        tokens.to_frame()
        .with_row_index("position", offset=first)
        .explode("term", empty_as_null=False)
        .cast({"term": pl.Categorical})
        .group_by("term", "position", maintain_order=True)
        .len("tf")
    )


def _weigh(counted: _Counted, rarity: NDArray[np.float64], k1: float, b: float) -> Postings:
    if not (0.0 <= k1 < float("inf") and 0.0 <= b <= 1.0):
        raise ValueError(
            f"expected k1 >= 0 and b in [0, 1], found k1={k1}, b={b}; see noctuary.lexical.build"
        )
    positions, frequencies = (counted.pairs[name].to_numpy() for name in ("position", "tf"))
    lengths = counted.lengths
    rarities = np.repeat(rarity, counted.document_frequencies)
    mean = float(lengths.mean()) if len(lengths) else 0.0
    scores = np.empty(len(positions), dtype=np.float32)
    for start in range(0, len(positions), WEIGHED_AT_ONCE):
        some = slice(start, start + WEIGHED_AT_ONCE)
        weights = saturation(frequencies[some], lengths[positions[some]], mean, k1, b)
        scores[some] = weights * rarities[some]
    return Postings(
        terms=counted.terms,
        starts=np.concatenate(([0], np.cumsum(counted.document_frequencies))),
        positions=positions.astype(np.int32),
        scores=scores,
        n_memories=len(lengths),
    )
