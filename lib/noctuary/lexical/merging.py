"""From the counted parts of a corpus to its postings, without a list of its tokens.

What belongs here: one vocabulary for all parts, and laying their postings beside each other. What
does not: the weights' formulas (`bm25`), counting (`counting`). Memory: 16 bytes a posting, 8 a
memory, the vocabulary, and one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.bm25 import K1, B, idf, saturation
from noctuary.lexical.postings import Postings
from noctuary.shards.files import open_table

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
