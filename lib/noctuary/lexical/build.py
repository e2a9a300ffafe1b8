"""Tokens of memories, pre-scored BM25 postings of them, and which words are near: once a night."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text, read_array, write_array, write_text
from noctuary.core.types import DAY_US
from noctuary.lexical.search import K1, B, idf, saturation
from noctuary.sources.corpus import iter_batches
from noctuary.text.marks import DATE_MARK
from noctuary.text.tokens import (
    TOKENIZER_VERSION,
    encode_tokens,
    fold,
    index_tokens,
    is_stop_word,
    stem,
)
from noctuary.work.content import KEY, KEY_BYTES, ContentStore
from noctuary.work.shards import BatchFunction, RecordBatch

if TYPE_CHECKING:
    import polars as pl

TOKENS_KIND = f"tokens:{TOKENIZER_VERSION}"  # another tokenizer's fragments are not found
# The columns that tokens depend on, in the order of the key.
_KEYED = ("content", "tags", "expanded_keywords", "category", "created_at_us", "is_turn")


@dataclass(frozen=True, slots=True)
class TokenizeMemories:
    """The `BatchTask` that gives `key` and `value` (as `encode_tokens`) of the indexed fields."""

    name = "tokens"
    row_ms = 0.05  # measured on turns and notes of 190 characters

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`."""
        return _tokenize


def _tokenize(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    fields: list[list[Any]] = [batch.column(name).to_pylist() for name in _KEYED]
    values = [encode_tokens(index_tokens(*row)) for row in zip(*fields, strict=True)]
    made: list[Any] = [batch.column("key"), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(made, names=["key", "value"])


def tokens_key(
    content: str,
    tags: str,
    expanded_keywords: str,
    category: str,
    created_at_us: int,
    is_turn: bool,
) -> bytes:
    """Return the key of a memory's tokens: the SHA-256 of what `index_tokens` reads of it."""
    day = f"{created_at_us // DAY_US} {int(is_turn)}"
    return bytes.fromhex(hash_text(content, tags, expanded_keywords, category, day))


def iter_keyed(memories: Path) -> Iterator[RecordBatch]:
    """Yield the columns that the task reads, in the order of positions."""
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


# Every posting holds its final score, so a query only adds numbers: BM25 as in `lexical.search`,
# scored ahead of time as in X. H. Lu, BM25S (2024).


@dataclass(frozen=True)
class Postings:
    """An inverted index with scores; postings of term t are [starts[t], starts[t + 1])."""

    terms: list[str]  # Distinct tokens in code point order (the byte order of their UTF-8)
    starts: NDArray[np.int64]  # (n_terms + 1,), ascending, first 0, last n_postings
    positions: NDArray[np.int32]  # (n_postings,), memory positions, ascending inside a term
    scores: NDArray[np.float32]  # (n_postings,), BM25 contribution, positive
    n_memories: int  # The empty ones included

    def ranges(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        """Return the posting range [start, stop) of each term, (0, 0) for an unknown one."""
        found = list[tuple[int, int]]()
        for term in terms:
            i = bisect_left(self.terms, term)
            is_known = self.terms[i : i + 1] == [term]
            found.append((int(self.starts[i]), int(self.starts[i + 1])) if is_known else (0, 0))
        return found


POSTING_FILES = ("terms.json", "starts.npy", "positions.npy", "scores.npy")


def write_postings(postings: Postings, directory: Path) -> None:
    """Write POSTING_FILES."""
    terms, *arrays = (directory / name for name in POSTING_FILES)
    write_text(terms, json.dumps(postings.terms, ensure_ascii=False))
    columns = (postings.starts, postings.positions, postings.scores)
    for path, array in zip(arrays, columns, strict=True):
        write_array(path, array)


def read_postings(directory: Path, n_memories: int) -> Postings:
    """Read the output of `write_postings`."""
    terms, *arrays = (directory / name for name in POSTING_FILES)
    starts, positions, scores = map(read_array, arrays)
    words = json.loads(terms.read_text(encoding="utf-8"))
    return Postings(words, starts, positions, scores, n_memories)


def build_postings(documents: Iterable[bytes], k1: float = K1, b: float = B) -> Postings:
    """Build the postings of memories given in the order of their positions.

    score(t, d) = idf(t) * tf / (tf + k1 * (1 - b + b * |d| / mean |d|)), k1 >= 0, b in [0, 1], else
    ValueError. `documents` has the tokens of each as `encode_tokens`; consumed once, not kept.
    """
    return _build(documents, None, k1, b)


def build_postings_beside(
    documents: Iterable[bytes], corpus: Postings, k1: float = K1, b: float = B
) -> Postings:
    """Build the postings of texts that are searched together with those of a corpus.

    Rarity of terms comes from the corpus, so that scores of both compare; the length of a text is
    relative to its own kind: summaries are longer than the turns that they replace.
    """
    return _build(documents, corpus, k1, b)


TEXTS_AT_ONCE = 16_384  # texts that are split and counted together: some 400,000 tokens, 20 MB
WEIGHED_AT_ONCE = 1 << 20  # postings whose scores are computed together: 50 MB of float64


def _build(documents: Iterable[bytes], corpus: Postings | None, k1: float, b: float) -> Postings:
    import polars as pl

    if not (0.0 <= k1 < float("inf") and 0.0 <= b <= 1.0):
        raise ValueError(
            f"expected k1 >= 0 and b in [0, 1], found k1={k1}, b={b}; see noctuary.lexical.build"
        )
    by_term, lengths = _count_terms(documents)
    terms = by_term["term"].to_list()
    frequencies = by_term["tf"].list.len().cast(pl.Int64).to_numpy()
    pairs = by_term.select(pl.col("position", "tf").explode())
    del by_term
    rarity = idf(frequencies, len(lengths))
    if corpus is not None:
        held = [stop - start for start, stop in corpus.ranges(terms)]
        rarity = idf(np.array(held, dtype=np.int64), corpus.n_memories)
    positions, counts = pairs["position"].to_numpy(), pairs["tf"].to_numpy()
    rarities = np.repeat(rarity, frequencies)
    mean = (float(lengths.mean()) if len(lengths) else 0.0) or 1.0  # 0 without a word but dates
    scores = np.empty(len(positions), dtype=np.float32)
    for start in range(0, len(positions), WEIGHED_AT_ONCE):
        some = slice(start, start + WEIGHED_AT_ONCE)
        weights = saturation(counts[some], lengths[positions[some]], mean, k1, b)
        scores[some] = weights * rarities[some]
    starts = np.concatenate(([0], np.cumsum(frequencies)))
    return Postings(terms, starts, positions.astype(np.int32), scores, len(lengths))


def _count_terms(documents: Iterable[bytes]) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Return `position` and `tf` lists by `term`, both ascending, and the length of each text."""
    import polars as pl

    # Categories: a pair costs 12 bytes, whatever its term. A million memories have 20 million.
    lengths, counted, position = list[pl.Series](), list[pl.DataFrame](), 0
    waiting = iter(documents)
    while (texts := list(islice(waiting, TEXTS_AT_ONCE))) or not counted:
        joined = pl.Series("term", texts, pl.Binary).cast(pl.String)
        tokens = joined.replace("", None).str.split("\n").fill_null([])
        # Words of dates make no text longer.
        marks = joined.str.count_matches(f"\n{DATE_MARK}", literal=True)
        marks += joined.str.starts_with(DATE_MARK).cast(pl.UInt32)
        lengths.append(tokens.list.len() - marks)
        counted.append(
            tokens.to_frame()
            .with_row_index("position", offset=position)
            .explode("term", empty_as_null=False)
            .cast({"term": pl.Categorical})
            .group_by("term", "position", maintain_order=True)
            .len("tf")
        )
        position += len(texts)
    by_term = pl.concat(counted).group_by("term").agg("position", "tf").cast({"term": pl.String})
    return by_term.sort("term"), pl.concat(lengths).cast(pl.Int64).to_numpy()


# Words near to a word of a question, by the store's encoder: "sister", where it asks for a sibling.
# docs/decisions/0006 has the numbers.

# Standard deviations that the cosine of near words lies above the mean of all pairs. Fewer make
# words of one topic near, more leave inflections. Encoders differ in their cosines, not in this.
NEAR_DEVIATIONS = 4.5
NEAR_WEIGHT = 0.5  # most that a near word counts, against the word itself
NEAR_MOST = 8  # near words of a word, the best
NEAR_VOCABULARY = 20_000  # most words that are compared, those of most memories: 10 s
_COMPARED_AT_ONCE = 512
_SMALL_WORDS = r"\b\p{Ll}[\p{Ll}'’]+\p{Ll}\b"


def choose_words(memories: Path, postings: Postings) -> dict[str, str]:
    """Return, by term, how most texts write it, for the terms that may have near ones.

    At least two memories hold the term, and half as many times it stands in small letters:
    others are names, whose neighbours are other people and places.
    """
    import polars as pl

    written: Counter[str] = Counter()
    for batch in iter_batches(memories, ["content"]):
        found = pl.Series("word", batch.column("content")).str.extract_all(_SMALL_WORDS)
        written.update(dict(found.explode().drop_nulls().value_counts().iter_rows()))
    counts: dict[str, list[tuple[int, str]]] = {}
    for word, count in written.items():
        if word.isalpha() and not is_stop_word(folded := fold(word)):
            counts.setdefault(stem(folded), []).append((-count, word))
    held = np.diff(postings.starts).tolist()
    chosen = [
        (-df, term)
        for term, df in zip(postings.terms, held, strict=True)
        if df > 1 and term in counts and -2 * sum(count for count, _ in counts[term]) >= df
    ]
    return {term: min(counts[term])[1] for _, term in sorted(chosen)[:NEAR_VOCABULARY]}


Near = Mapping[str, Sequence[tuple[str, float]]]
"""By term, near terms and the share of their scores that counts for it, nearest first."""


def find_near(terms: Sequence[str], vectors: NDArray[np.float32], postings: Postings) -> Near:
    """Return which terms are near to each other by the unit vectors of their words, (n, d).

    Of the terms whose cosine is NEAR_DEVIATIONS above the mean of all pairs, the NEAR_MOST nearest.
    The share is NEAR_WEIGHT * min(1, idf of the term / idf of the near one): none counts more than
    the rarity of the word that was asked.
    """
    count = len(terms)
    if count < 2:
        return {}
    # The moments of all pairs' cosines, without the pairs: of c = v . w and of c * c.
    pairs = count * (count - 1)
    mean = (float(np.square(vectors.sum(axis=0, dtype=np.float64)).sum()) - count) / pairs
    moment = float(np.square((vectors.T @ vectors).astype(np.float64)).sum())
    deviation = math.sqrt(max((moment - count) / pairs - mean * mean, 0.0))
    least = mean + NEAR_DEVIATIONS * deviation
    held = np.array([stop - start for start, stop in postings.ranges(terms)], dtype=np.int64)
    rarity = idf(held, postings.n_memories)
    near: dict[str, list[tuple[str, float]]] = {}
    for first in range(0, count, _COMPARED_AT_ONCE):
        cosines = vectors[first : first + _COMPARED_AT_ONCE] @ vectors.T
        np.fill_diagonal(cosines[:, first:], -1.0)  # a word is not near to itself
        rows, others = np.nonzero(cosines >= least)
        order = np.lexsort((others, -cosines[rows, others], rows))
        ends: list[tuple[int, int]] = np.stack([first + rows, others], axis=1)[order].tolist()
        for one, other in ends:
            share = NEAR_WEIGHT * min(1.0, float(rarity[one] / rarity[other]))
            near.setdefault(terms[one], []).append((terms[other], share))
    return {term: found[:NEAR_MOST] for term, found in sorted(near.items())}
