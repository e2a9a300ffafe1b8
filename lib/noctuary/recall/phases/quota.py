"""The best memories of every wing, so that a small wing enters the pool whatever the others hold.

What belongs here: picking them from a leg's scores, pure over arrays. What does not: scoring, and
what becomes of them (`cross_wing`).

A larger pool cannot promise this: k times the number of wings, asked of the whole store, may still
hold one wing only (research/mempalace.md section 3.4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS_AT_MOST = 16
"""Largest quota that is filled by one pass over the scores per place (6 ms per million memories);
a larger one sorts them once (230 ms per million)."""


def quota_positions(
    wing_codes: NDArray[np.integer],
    scores: NDArray[np.floating],
    quota: int,
    mask: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Return the positions of every wing's best memories, ascending; ties by lower position.

    Args:
        wing_codes: Wing of every memory, shape (n,), from -1 on; memories without a wing (-1) are
            one wing of their own, as they are for saturation.
        scores: A leg's score of every memory, shape (n,); only values > 0 count (NaN does not).
        quota: Most memories per wing; 0 or less for none.
        mask: Which memories may be returned, shape (n,); None for all.

    Returns:
        Distinct positions, at most `quota` per wing.
    """
    eligible = scores > 0
    if mask is not None:
        eligible &= mask
    places = np.flatnonzero(eligible)
    if quota <= 0 or not places.size:
        return np.empty(0, dtype=np.int64)
    # Codes from 0 on, so that they index.
    wings, values = wing_codes[places] + 1, scores[places]
    best = _by_sorting if quota > _ROUNDS_AT_MOST else _by_rounds
    return np.sort(places[best(wings, values, quota)])


def _by_rounds(
    wings: NDArray[np.integer], values: NDArray[np.floating], quota: int
) -> NDArray[np.int64]:
    """Take every wing's best, then every wing's next best, and so on."""
    values = values.copy()
    wing_count = int(wings.max()) + 1
    taken: list[NDArray[np.int64]] = []
    for _ in range(quota):
        peaks = np.zeros(wing_count, dtype=values.dtype)
        np.maximum.at(peaks, wings, values)
        # What was taken is 0, and so is the peak of a wing that has given all.
        peaks[peaks == 0] = np.nan
        at_peak = np.flatnonzero(values == peaks[wings])
        if not at_peak.size:
            break
        winners = np.full(wing_count, -1, dtype=np.int64)
        # The last assignment stays, so backwards: the lowest position of equals.
        winners[wings[at_peak[::-1]]] = at_peak[::-1]
        winners = winners[winners >= 0]
        values[winners] = 0
        taken.append(winners)
    return np.concatenate(taken)


def _by_sorting(
    wings: NDArray[np.integer], values: NDArray[np.floating], quota: int
) -> NDArray[np.int64]:
    """Sort by wing and score, and take the head of every run."""
    order = np.lexsort((-values, wings))
    sorted_wings = wings[order]
    starts = np.flatnonzero(np.diff(sorted_wings, prepend=-1))
    lengths = np.diff(starts, append=order.size)
    rank_in_wing = np.arange(order.size) - np.repeat(starts, lengths)
    return order[rank_in_wing < quota]
