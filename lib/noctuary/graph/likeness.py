"""Which names are like another: by trigrams, by spelling, by their vectors."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.guards import (
    NameStats,
    Stage,
    Traits,
    joined,
    rank,
    refusal,
    spelling_key,
    without_article,
)

# Character trigrams of names: as sets for two names, as hashes for many. No opinion on likeness.
#
# Hashes depend on the name alone and are the same on every machine.


GRAM = 3
"""Characters of a gram; shorter names have none."""

GOLDEN = 0x9E3779B97F4A7C15
"""Odd, with the bits of the golden ratio: multiples of it lie evenly in 64 bits."""

_SETS_KEPT = 1 << 13  # some 20 MB; a name is compared with several others
_CODE_BITS = 21  # Unicode ends below 2 ** 21, so three code points fit 63 bits


@lru_cache(maxsize=_SETS_KEPT)
def trigrams(name: str) -> frozenset[str]:
    """Return the sets of three neighbouring characters; empty for shorter names."""
    return frozenset(name[start : start + GRAM] for start in range(len(name) - GRAM + 1))


def jaccard(left: str, right: str) -> float:
    """Return the share of trigrams two names have in common, in [0, 1]; 0 where both have none."""
    ours, theirs = trigrams(left), trigrams(right)
    both = len(ours & theirs)
    either = len(ours) + len(theirs) - both
    return both / either if either else 0.0


def gram_hashes(names: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashed trigrams of all names on end, repeats included, and where each begins."""
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    if lengths.min() < GRAM:
        short = names[int(lengths.argmin())]
        raise ValueError(f"found the name {short!r}, expected at least {GRAM} characters")
    raw = "".join(names).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(raw, np.uint32).astype(np.uint64)
    shift = np.uint64(_CODE_BITS)
    grams = (codes[:-2] << (shift + shift)) | (codes[1:-1] << shift) | codes[2:]
    ends = np.cumsum(lengths)
    inside = np.ones(len(codes), bool)
    inside[ends - 1] = inside[ends - 2] = False  # trigrams that would begin there cross into others
    counts = lengths - (GRAM - 1)
    return mixed(grams[inside[: len(grams)]]), np.cumsum(counts) - counts


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of each value: neighbouring numbers end far apart; no two become one."""
    spread = values + np.uint64(GOLDEN)
    spread = (spread ^ (spread >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return spread ^ (spread >> np.uint64(31))


# Which names can be as like another as MinHash asks: few, found without comparing pairs.
#
# Two sets whose Jaccard is J or more differ in at most (1 - J) x union members. Dealt by a hash
# into one more parts than that, they agree in a whole part. So a name none of whose parts, as a
# sum of hashes, occurs in another name has no twin, and no signature need be made for it. Nothing
# is missed: sums of equal parts are equal. Linear in the names.


_CHUNK_BITS = 13
_CHUNK_NAMES = 1 << _CHUNK_BITS  # names whose grams are held at once: bounds memory
_SLACK = 1e-9  # of products with a likeness, which is no exact binary number


def may_have_twin(names: Sequence[str], jaccard_min: float) -> NDArray[np.bool_]:
    """Say of every name whether another could be as like it as that: never false where one is.

    Args:
        names: Folded, each of three characters or more and once only.
        jaccard_min: In (0, 1].

    Returns:
        Shape (names,). True says little: the pair is still to be found and compared.
    """
    if not names:
        return np.zeros(0, np.bool_)
    chunks = [
        (start, *_part_keys(names[start : start + _CHUNK_NAMES], jaccard_min))
        for start in range(0, len(names), _CHUNK_NAMES)
    ]
    keys = np.concatenate([keys for _, _, keys in chunks])
    owners = np.concatenate([start + rows for start, rows, _ in chunks])
    order = np.argsort(keys)
    equal = keys[order][1:] == keys[order][:-1]
    found = np.zeros(len(names), np.bool_)
    found[owners[order[1:][equal]]] = True
    found[owners[order[:-1][equal]]] = True
    return found


def _part_keys(
    names: Sequence[str], jaccard_min: float
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return rows of names, each once per part, and the key of that part."""
    hashes, sizes = _distinct(names)
    rows: list[NDArray[np.int64]] = []
    keys: list[NDArray[np.uint64]] = []
    for parts, chosen in _dealings(sizes, jaccard_min):
        taken = np.repeat(chosen, sizes)
        members, counts = hashes[taken], sizes[chosen]
        begins = np.cumsum(counts) - counts
        dealt = members % np.uint64(parts)
        for part in range(parts):
            sums = np.add.reduceat(np.where(dealt == part, members, np.uint64(0)), begins)
            keys.append(mixed(sums ^ np.uint64(((parts << 32 | part) * GOLDEN) & (2**64 - 1))))
            rows.append(np.flatnonzero(chosen))
    return np.concatenate(rows), np.concatenate(keys)


def _dealings(
    sizes: NDArray[np.int64], jaccard_min: float
) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield how many parts there are to be, and for which names.

    The union of a name of n grams with a twin has n to n / J members, and how many is not known
    yet: a name is dealt into every number of parts that this allows.
    """
    apart = 1.0 - jaccard_min
    fewest = np.floor(sizes * apart + _SLACK).astype(np.int64) + 1
    most = np.floor(sizes / jaccard_min * apart + _SLACK).astype(np.int64) + 1
    for parts in range(int(fewest.min()), int(most.max()) + 1):
        chosen = (fewest <= parts) & (parts <= most)
        if chosen.any():
            yield parts, chosen


def _distinct(names: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes of the distinct grams of all names on end, and their number by name."""
    hashes, starts = gram_hashes(names)
    counts = np.diff(starts, append=len(hashes))
    owners = np.repeat(np.arange(len(names), dtype=np.uint64), counts)
    shift = np.uint64(64 - _CHUNK_BITS)
    tagged = np.sort((owners << shift) | (hashes >> np.uint64(_CHUNK_BITS)))
    tagged = tagged[np.concatenate([[True], tagged[1:] != tagged[:-1]])]
    sizes = np.bincount((tagged >> shift).astype(np.int64), minlength=len(names))
    return mixed(tagged & np.uint64((1 << (64 - _CHUNK_BITS)) - 1)), sizes


# Names that share nearly all their character trigrams, found by MinHash and banding.
#
# Signatures are made for the names that can have a twin at all (`twins`). Candidates are those
# that share a bucket in any band, and each is verified by exact Jaccard: no all-to-all step, and
# no false pair.


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
_SIGNATURE_NAMES = 8192  # rows of a signature matrix made at once: bounds the memory of the hashes
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
    """Return a MinHash signature per name; a row depends on its name alone."""
    chunks = [
        _signatures_of(names[start : start + _SIGNATURE_NAMES])
        for start in range(0, len(names), _SIGNATURE_NAMES)
    ]
    return np.concatenate(chunks) if chunks else np.empty((0, BANDS * BAND_ROWS), np.uint32)


def candidates(
    names: Sequence[str], rows: Signatures, refused: Counter[str]
) -> Iterator[tuple[int, int]]:
    """Yield pairs (better rank, lower rank) of indices that share a band, each once."""
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
    """Return pairs with Jaccard of JACCARD_MIN or more."""
    # Of those that may be compared, some tenth can have a twin and need a signature.
    long_enough = [index for index, name in enumerate(names) if may_compare(name)]
    likely = may_have_twin([names[index] for index in long_enough], JACCARD_MIN).tolist()
    chosen = [index for index, is_likely in zip(long_enough, likely, strict=True) if is_likely]
    texts = [names[index] for index in chosen]
    pairs: list[tuple[int, int, float]] = []
    for high, low in candidates(texts, signatures(texts), refused):
        score = jaccard(texts[high], texts[low])
        if score >= JACCARD_MIN:
            pairs.append((chosen[high], chosen[low], score))
    return sorted(pairs)


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
    # Multiplier (odd) and addend of every hash, the same on every machine.
    places = range(1, 2 * BANDS * BAND_ROWS + 1)
    drawn = mixed(np.array([(place * GOLDEN) & _MASK for place in places], np.uint64))
    columns = [
        # The high half of the product is the well-mixed one.
        np.minimum.reduceat((grams * multiplier + addend) >> np.uint64(32), starts)
        for multiplier, addend in zip(drawn[::2] | np.uint64(1), drawn[1::2], strict=True)
    ]
    return np.stack(columns, axis=1).astype(np.uint32)


# Names whose vectors are each other's nearest, by blocks of rows: the one step that sees all pairs,
# some 0.2 s for as many names as are given a vector. Cosines are exact to 1e-9 and ties go to the
# smaller name, so that blocks make no difference.


COSINE_MIN = 0.8
"""Least cosine of two names that may be one; lower finds more synonyms and more mere relatives."""

_BLOCK_VALUES = 1 << 23  # cosines held at once: 32 MB
_NEAR = 1e-5  # float32 products of unit vectors err by less: what is this close is rescored
_COSINE_DIGITS = 9  # of the exact cosine; float64 sums of any order agree to this


def mutual_pairs(vectors: Mapping[str, NDArray[np.float32]]) -> list[tuple[str, str, float]]:
    """Return pairs (smaller name, larger name, cosine) that are each other's nearest, sorted.

    Args:
        vectors: By name, shape (dimension,), any length; a zero vector has no neighbour.

    Raises:
        ValueError: Vectors of differing shapes, or with values that are not finite.
    """
    names = sorted(vectors)
    if not names:
        return []
    units = _unit_rows([vectors[name] for name in names])
    size = max(1, _BLOCK_VALUES // len(names))
    nearest: dict[int, tuple[int, float]] = {}
    for start in range(0, len(names), size):
        nearest.update(_nearest(units, np.arange(start, min(start + size, len(names)))))
    return [
        (names[row], names[other], cosine)
        for row, (other, cosine) in sorted(nearest.items())
        if row < other and nearest.get(other, (-1, 0.0))[0] == row
    ]


def _unit_rows(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    shapes = set(map(np.shape, vectors))
    if len(shapes) != 1:
        raise ValueError(f"found vectors of shapes {sorted(shapes)}, expected one: embed anew")
    rows = np.stack(vectors).astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError("found vectors with values that are not finite: embed these names anew")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def _nearest(units: NDArray[np.float32], rows: NDArray[np.int64]) -> dict[int, tuple[int, float]]:
    """Return the nearest other row and its cosine for rows that have one within COSINE_MIN."""
    cosines = units[rows] @ units.T
    cosines[np.arange(len(rows)), rows] = -1.0
    highest = cosines.max(axis=1)
    near = np.flatnonzero(highest >= COSINE_MIN - _NEAR)
    places, others = np.nonzero(cosines[near] >= highest[near, None] - _NEAR)
    owners = rows[near[places]]
    ours, theirs = units[owners].astype(np.float64), units[others].astype(np.float64)
    # float32 unit rows are off by 1e-7: their true lengths are divided out.
    lengths = np.einsum("ij,ij->i", ours, ours) * np.einsum("ij,ij->i", theirs, theirs)
    exact = np.einsum("ij,ij->i", ours, theirs) / np.sqrt(lengths)
    exact = np.minimum(np.round(exact, _COSINE_DIGITS), 1.0)
    best: dict[int, tuple[int, float]] = {}
    for owner, other, cosine in zip(owners.tolist(), others.tolist(), exact.tolist(), strict=True):
        # Columns ascend, and follow the names' order: of equal ones the smaller name stays.
        if cosine >= COSINE_MIN and cosine > best.get(owner, (-1, 0.0))[1]:
            best[owner] = (other, cosine)
    return best


# Names that are one but for their spelling: spaces, accents, an article, a plural, a qualifier.
#
# Candidates come out of buckets by a key that is a pure function of the name; linear in the names.
# Possessives need no rule here: folding takes them off (`noctuary.graph.fold`).


Reader = Callable[[str], Traits]
"""Gives the traits of a known name."""


class Link(NamedTuple):
    """Two names that a stage holds for one."""

    name: str
    other: str
    reason: str
    score: float  # in [0, 1]
    detail: str


def spelling_links(
    stats: Mapping[str, NameStats], read: Reader, refused: Counter[str]
) -> list[Link]:
    """Link every name to the best name of its spelling that the guards let stand."""
    keys = [spelling_key(name) for name in stats]
    shared = {key for key, names in Counter(keys).items() if names > 1}
    buckets: defaultdict[str, list[Traits]] = defaultdict(list)
    for name, key in zip(stats, keys, strict=True):
        if key in shared:
            buckets[key].append(read(name))
    links = [link for bucket in buckets.values() for link in _star_links(bucket, refused)]
    return links + _qualifier_links(stats, read, refused)


def _star_links(bucket: Sequence[Traits], refused: Counter[str]) -> list[Link]:
    leaders: list[Traits] = []
    links: list[Link] = []
    for item in bucket:
        for leader in leaders:
            stage, detail = _difference(item, leader)
            reason = refusal(item, leader, stage)
            if not reason:
                links.append(Link(item.stats.name, leader.stats.name, "alias", 1.0, detail))
                break
            refused[reason] += 1
        else:
            leaders.append(item)
    return links


def _difference(left: Traits, right: Traits) -> tuple[Stage, str]:
    """Return the one thing in which two names of a bucket differ."""
    ours, theirs = left.tokens, right.tokens
    if "".join(ours) == "".join(theirs):
        return "spacing", "spaces or hyphens"
    if joined(ours) == joined(theirs):
        return "spacing", "accents"
    if without_article(ours) == without_article(theirs):
        return "article", "the article"
    if ours[:-1] == theirs[:-1]:
        return "plural", "plural"
    return "several", ""


def _qualifier_links(
    stats: Mapping[str, NameStats], read: Reader, refused: Counter[str]
) -> list[Link]:
    """Link "X (q)" with "X" where no other qualifier of X is known."""
    qualified: defaultdict[str, list[Traits]] = defaultdict(list)
    for item in stats.values():
        if item.surfaces and item.surfaces[0].rstrip().endswith((")", "）")):
            traits = read(item.name)
            if traits.base in stats and traits.base != item.name:
                qualified[traits.base].append(traits)
    links: list[Link] = []
    for base, items in qualified.items():
        reason = "ambiguous_qualifier" if len(items) > 1 else ""
        reason = reason or refusal(items[0], read(base), "qualifier")
        if reason:
            refused[reason] += len(items)
            continue
        high, low = sorted((stats[base], items[0].stats), key=rank)
        links.append(Link(low.name, high.name, "alias", 1.0, f"qualifier ({items[0].qualifier})"))
    return links
