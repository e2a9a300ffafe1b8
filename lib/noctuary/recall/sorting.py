"""Orders other than relevance: by importance and by date. No filters, no phases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.base_ranking import BaseRanking
from noctuary.recall.lookups import SnapshotLookups
from noctuary.recall.phases.base import Candidates, Positions, Scores
from noctuary.types import UNDATED_US

_IMPORTANCE_SORT_RELEVANCE = 0.4
_IMPORTANCE_SORT_IMPORTANCE = 0.6
"""The reference store's blend for sort_by="importance" (research/peers.md 2.4): importance leads,
relevance still counts."""


def sort_candidates(
    sort_by: str,
    candidates: Candidates,
    base: BaseRanking,
    lookups: SnapshotLookups,
    all_created_at_us: NDArray[np.int64],
) -> Candidates:
    """Return the candidates with another key, in [0, 1]; ties by relevance, then position.

    Args:
        sort_by: "importance" or "recency".
        candidates: What the phases left.
        base: Where their relevance comes from.
        lookups: Where importance and dates come from.
        all_created_at_us: Of the whole snapshot: they set the scale of "recency".
    """
    relevance = relevance_of(candidates, base)
    if sort_by == "importance":
        importance = lookups.importance_of(candidates.positions)
        key = _IMPORTANCE_SORT_RELEVANCE * relevance + _IMPORTANCE_SORT_IMPORTANCE * importance
    else:
        key = _scale_dates(all_created_at_us, lookups.created_at_us(candidates.positions))
    order = np.lexsort((candidates.positions, -relevance, -key))
    return Candidates(candidates.positions[order], key[order], candidates.expanded[order])


def relevance_of(candidates: Candidates, base: BaseRanking) -> Scores:
    """Return the relevance before prior and phases; a late-comer's own score."""
    places = np.searchsorted(base.positions, candidates.positions)
    inside = places < base.positions.size
    known = np.zeros(candidates.size, dtype=np.bool_)
    known[inside] = base.positions[places[inside]] == candidates.positions[inside]
    relevance = candidates.scores.copy()
    relevance[known] = base.relevance[places[known]]
    return relevance


def _scale_dates(all_us: NDArray[np.int64], chosen: Positions) -> Scores:
    """Return dates scaled to (0, 1] over the store, the newest at 1; undated memories are 0."""
    dated = all_us[all_us != UNDATED_US]
    if not dated.size:
        return np.zeros(chosen.size, dtype=np.float64)
    # What came live may be newer than all that the snapshot has.
    low, high = int(dated.min()), max(int(dated.max()), int(chosen.max(initial=UNDATED_US)))
    # One more microsecond than since the oldest, so that undated memories come after it.
    ages = np.maximum(chosen, low).astype(np.float64) - low + 1.0
    return np.where(chosen == UNDATED_US, 0.0, ages / (float(high) - low + 1.0))
