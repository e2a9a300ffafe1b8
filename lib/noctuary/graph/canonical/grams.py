"""Character trigrams of names: as sets for two names, as hashes for many. No opinion on likeness.

Hashes depend on the name alone and are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
    """Return the hashed trigrams of all names on end, repeats included, and where each begins.

    Args:
        names: Each of three characters or more, at least one.

    Raises:
        ValueError: A name is shorter.
    """
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
