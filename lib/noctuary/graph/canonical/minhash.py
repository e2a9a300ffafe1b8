"""Names that share nearly all their character trigrams, found by MinHash and banding.

Signatures are made for the names that can have a twin at all (`twins`). Candidates are those that
share a bucket in any band, and each is verified by exact Jaccard: no all-to-all step, and no false
pair.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.canonical.grams import GOLDEN, gram_hashes, jaccard, mixed
from noctuary.graph.canonical.twins import may_have_twin

JACCARD_MIN = 0.9
"""Share of trigrams that two names must have in common; lower finds more misspellings and more
names that only look alike."""

BAND_ROWS = 6
"""Hash values in a band: a pair of likeness j shares a band with odds j ** BAND_ROWS. More rows
verify fewer pairs in vain and miss more."""

BANDS = 16
"""Bands: a pair at JACCARD_MIN is missed with odds (1 - 0.9 ** 6) ** 16 = 5e-6. More bands miss
less and cost time and memory in proportion."""

ENTROPY_MIN_BITS = 2.0
"""Least entropy of a name's characters: at least four of them in equal use. Below, trigrams repeat
and say little (hahaha, hahahaha)."""

FUZZY_MIN_CHARS = 8
"""Shortest name compared by trigrams: below, one letter is a tenth of the name."""

BUCKET_MAX_NAMES = 64
"""Names of a bucket compared with all others of it. A larger bucket is split by the digits of its
names; what is still larger compares each name with the 64 best-ranked ones, and is counted. Bounds
a corpus of near-equal names (log lines); raising it finds more twins in such a corpus, slower."""

CROWDED = "crowded_bucket"
"""Reason under which names of larger buckets are counted."""

_DIGITS = re.compile(r"\d+")
_SHAPES_KEPT = 1 << 14  # pairs of length and number of characters: every one that occurs
_CHUNK_NAMES = 8192  # rows of a signature matrix made at once: bounds the memory of the hashes
_MASK = (1 << 64) - 1

Signatures = NDArray[np.uint32]
"""Shape (names, BANDS * BAND_ROWS)."""


def may_compare(name: str) -> bool:
    """Say whether a folded name is long and varied enough for its trigrams to mean something."""
    plain = name.replace(" ", "")
    if len(plain) < FUZZY_MIN_CHARS:
        return False
    # Nearly all names are varied enough whatever the counts of their characters are.
    if _least_entropy_bits(len(plain), len(set(plain))) >= ENTROPY_MIN_BITS:
        return True
    return entropy_bits(plain) >= ENTROPY_MIN_BITS


def entropy_bits(text: str) -> float:
    """Return the Shannon entropy of a text's characters, in bits; 0 for the empty text."""
    total = len(text)
    # Summed in the order of the counts, so that equal texts give the same float anywhere.
    return sum(
        -count / total * math.log2(count / total) for count in sorted(Counter(text).values())
    )


@lru_cache(maxsize=_SHAPES_KEPT)
def _least_entropy_bits(length: int, distinct: int) -> float:
    """Return the entropy of such a text if one character stands wherever it can."""
    often = (length - distinct + 1) / length
    return -often * math.log2(often) + (distinct - 1) / length * math.log2(length)


def signatures(names: Sequence[str]) -> Signatures:
    """Return a MinHash signature per name; a row depends on its name alone.

    Args:
        names: Each of three characters or more.

    Raises:
        ValueError: A name is shorter.
    """
    chunks = [
        _signatures_of(names[start : start + _CHUNK_NAMES])
        for start in range(0, len(names), _CHUNK_NAMES)
    ]
    return np.concatenate(chunks) if chunks else np.empty((0, BANDS * BAND_ROWS), np.uint32)


def candidates(
    names: Sequence[str], rows: Signatures, refused: Counter[str]
) -> Iterator[tuple[int, int]]:
    """Yield pairs (better rank, lower rank) of indices that share a band, each once.

    Args:
        names: Best rank first.
        rows: Their signatures.
        refused: Names beyond BUCKET_MAX_NAMES in a bucket are counted here under CROWDED.
    """
    seen: set[int] = set()
    crowded: set[int] = set()
    for bucket in _split(names, _buckets(rows)):
        crowded.update(bucket[BUCKET_MAX_NAMES:])
        for place, low in enumerate(bucket):
            for high in bucket[: min(place, BUCKET_MAX_NAMES)]:
                key = high * len(names) + low
                if key not in seen:
                    seen.add(key)
                    yield high, low
    if crowded:
        refused[CROWDED] += len(crowded)


def similar_pairs(names: Sequence[str], refused: Counter[str]) -> list[tuple[int, int, float]]:
    """Return pairs with Jaccard of JACCARD_MIN or more.

    Args:
        names: Folded, best rank first; those that may not be compared are left out.
        refused: As in `candidates`.

    Returns:
        Triples (index of the better name, index of the other, Jaccard), sorted.
    """
    chosen = _worth_comparing(names)
    texts = [names[index] for index in chosen]
    pairs: list[tuple[int, int, float]] = []
    for high, low in candidates(texts, signatures(texts), refused):
        score = jaccard(texts[high], texts[low])
        if score >= JACCARD_MIN:
            pairs.append((chosen[high], chosen[low], score))
    return sorted(pairs)


def _worth_comparing(names: Sequence[str]) -> list[int]:
    """Return the indices of the names that need a signature: some tenth of them."""
    chosen = [index for index, name in enumerate(names) if may_compare(name)]
    likely = may_have_twin([names[index] for index in chosen], JACCARD_MIN)
    return [index for index, is_likely in zip(chosen, likely.tolist(), strict=True) if is_likely]


def _buckets(rows: Signatures) -> Iterator[list[int]]:
    """Yield the indices of every bucket with two names or more, in order of rank."""
    for band in range(BANDS):
        keys = np.zeros(len(rows), np.uint64)
        for column in range(band * BAND_ROWS, (band + 1) * BAND_ROWS):
            keys = mixed(keys ^ rows[:, column])
        order = np.argsort(keys, kind="stable")  # stable: equal keys stay in order of rank
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        edges = [0, *cuts.tolist(), len(order)]
        for start, end in pairwise(edges):
            if end - start > 1:
                yield order[start:end].tolist()


def _split(names: Sequence[str], buckets: Iterator[list[int]]) -> Iterator[list[int]]:
    """Part the names of larger buckets by their digits: such names never merge anyway."""
    for bucket in buckets:
        if len(bucket) <= BUCKET_MAX_NAMES:
            yield bucket
            continue
        parts: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for index in bucket:
            parts[tuple(_DIGITS.findall(names[index]))].append(index)
        yield from (part for part in parts.values() if len(part) > 1)


def _signatures_of(names: Sequence[str]) -> Signatures:
    grams, starts = gram_hashes(names)
    columns = [
        # The high half of the product is the well-mixed one.
        np.minimum.reduceat((grams * multiplier + addend) >> np.uint64(32), starts)
        for multiplier, addend in _permutations()
    ]
    return np.stack(columns, axis=1).astype(np.uint32)


def _permutations() -> list[tuple[np.uint64, np.uint64]]:
    """Return multiplier (odd) and addend of every hash, the same on every machine."""
    count = 2 * BANDS * BAND_ROWS
    seeds = np.array([(index * GOLDEN) & _MASK for index in range(1, count + 1)], np.uint64)
    drawn = mixed(seeds)
    return [(a | np.uint64(1), b) for a, b in zip(drawn[::2], drawn[1::2], strict=True)]
