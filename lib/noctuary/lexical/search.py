"""BM25 over pre-scored postings: scores of all memories, and the best of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# score(t, d) = idf(t) * saturation(t, d). S. Robertson and H. Zaragoza, The Probabilistic
# Relevance Framework (2009), in Lucene's form (idf never negative, no constant k1 + 1 in the
# numerator).

# Saturation of the term frequency: higher lets repeats count for more. 0.9 suits short texts.
K1 = 0.9
B = 0.4  # length normalisation in [0, 1]: higher favours short memories more


def idf(document_frequencies: NDArray[np.int64], n_memories: int) -> NDArray[np.float64]:
    """Return ln(1 + (N - df + 0.5) / (df + 0.5)), above 0, in the shape of the frequencies."""
    return np.log1p((n_memories - document_frequencies + 0.5) / (document_frequencies + 0.5))


def saturation(
    frequencies: NDArray[np.integer | np.floating],
    lengths: NDArray[np.integer | np.floating],
    mean_length: float,
    k1: float = K1,
    b: float = B,
) -> NDArray[np.float64]:
    """Return tf / (tf + k1 * (1 - b + b * |d| / mean |d|)), in [0, 1); 0 where tf is 0."""
    norms = k1 * (1.0 - b + b * lengths / mean_length)
    # Without k1 nothing is left below the fraction where the term does not occur.
    present = frequencies > 0
    return np.divide(frequencies, frequencies + norms, out=np.zeros_like(norms), where=present)


# Reading pre-scored postings.

# Memories from which the last place's score is bounded before the best are looked for: below, the
# bound costs as much (0.05 ms) as it saves.
FLOOR_FROM = 50_000
# Postings of a query's rarest terms that the bound is taken from: more raise it, so that fewer
# memories lie above it, and cost a partition each.
SAMPLED_POSTINGS = 4_000


def add_scores(
    totals: NDArray[np.float32],
    slices: Iterable[tuple[int, int]],
    positions: NDArray[np.int32],
    scores: NDArray[np.float32],
) -> None:
    """Add the postings [start, stop) of each term to the totals, shape (n,).

    The order of the terms decides the last float32 digit: code point order, each term once.
    """
    for start, stop in slices:
        # At least as fast as bincount, without a copy of the postings; equal types keep it fast.
        np.add.at(totals, positions[start:stop], scores[start:stop])


def best_positions(
    totals: NDArray[np.float32],
    slices: Iterable[tuple[int, int]],
    positions: NDArray[np.int32],
    depth: int,
    mask: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Return the same as `top_positions` for the totals of some postings, faster.

    Memories that hold the rarest terms bound the score of the last place from below, and only
    scores that reach the bound are sorted.
    """
    is_large = totals.size >= FLOOR_FROM and depth > 0
    floor = _floor(totals, slices, positions, depth, mask) if is_large else 0
    if floor <= 0:
        return top_positions(totals, depth, mask)
    candidates = np.flatnonzero(totals >= floor)
    if mask is not None:
        candidates = candidates[mask.take(candidates)]
    return candidates[top_positions(totals.take(candidates), depth)]


def _floor(
    totals: NDArray[np.float32],
    slices: Iterable[tuple[int, int]],
    positions: NDArray[np.int32],
    depth: int,
    mask: NDArray[np.bool_] | None,
) -> np.float32:
    """Return a score that at least `depth` allowed memories reach; 0 if no rare term shows one."""
    floor, looked_at = np.float32(0.0), 0
    for start, stop in sorted(slices, key=lambda pair: pair[1] - pair[0]):
        if looked_at and looked_at + stop - start > SAMPLED_POSTINGS:
            break
        held = positions[start:stop]
        if mask is not None:
            held = held[mask.take(held)]
        if held.size >= depth:
            looked_at += stop - start
            values = totals.take(held)
            last_place = values.size - depth
            # The memories of one term are distinct.
            floor = max(floor, np.partition(values, last_place)[last_place])
    return floor


def top_positions(
    scores: NDArray[np.float32], depth: int, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the positions of the best scores > 0, best first, ties by lower position, (m,)."""
    eligible = scores > 0
    if mask is not None:
        eligible &= mask
    candidates = np.flatnonzero(eligible)
    if depth <= 0:
        return candidates[:0]
    values = scores[candidates]
    if len(candidates) > depth:
        # Every tie of the last place stays in, so that the stable sort below decides by position.
        last_place = len(values) - depth
        kept = values >= np.partition(values, last_place)[last_place]
        candidates, values = candidates[kept], values[kept]
    return candidates[np.argsort(-values, kind="stable")[:depth]]
