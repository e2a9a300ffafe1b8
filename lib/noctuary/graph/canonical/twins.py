"""Which names can be as like another as MinHash asks: few, found without comparing pairs.

Two sets whose Jaccard is J or more differ in at most (1 - J) x union members. Dealt by a hash into
one more parts than that, they agree in a whole part. So a name none of whose parts, as a sum of
hashes, occurs in another name has no twin, and no signature need be made for it. Nothing is missed:
sums of equal parts are equal. Linear in the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.canonical.grams import GOLDEN, gram_hashes, mixed

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
