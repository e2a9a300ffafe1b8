"""Fusion of the lexical and dense legs into one score in [0, 1]. Pure functions over arrays.

Neither function looks at anything but ranks and scores; priors, the graph and filters live
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_LARGEST = float(np.finfo(np.float64).max)


def pool_candidates(rankings: Sequence[IntArray]) -> IntArray:
    """Return the union of the legs' candidates, ascending positions, each once."""
    kept = [ranking for ranking in rankings if ranking.size]
    if not kept:
        return np.empty(0, dtype=np.int64)
    merged = np.sort(np.concatenate(kept))
    # Not np.unique: its first call imports numpy.ma, which costs a one-shot hook 10 ms.
    first = np.ones(merged.size, dtype=bool)
    first[1:] = merged[1:] != merged[:-1]
    return merged[first]


def fuse_rrf(
    candidates: IntArray, rankings: Sequence[IntArray], weights: Sequence[float], k: int
) -> FloatArray:
    """Fuse by weighted reciprocal rank, scaled so that the best possible score is 1.

    score(d) = sum_leg w_leg / (k + rank_leg(d)), divided by sum_leg w_leg / (k + 1); a leg that
    does not hold d adds 0. With one non-empty leg the order is exactly that leg's (Cormack, Clarke
    and Buettcher 2009).

    Args:
        candidates: Positions to score, shape (m,), ascending.
        rankings: One array of positions per leg, best first.
        weights: One non-negative weight per leg.
        k: Rank offset, >= 1.

    Returns:
        Scores in [0, 1], shape (m,).
    """
    scores = np.zeros(candidates.size, dtype=np.float64)
    best = 0.0
    for ranking, weight in zip(rankings, weights, strict=True):
        if weight <= 0 or not ranking.size:
            continue
        best += weight / (k + 1)
        places = np.searchsorted(candidates, ranking)
        scores[places] += weight / (k + 1 + np.arange(ranking.size))
    return scores / best if best > 0 else scores


def fuse_convex(leg_scores: Sequence[FloatArray], weights: Sequence[float]) -> FloatArray:
    """Fuse by a convex combination of the legs' scores.

    Each divided by its maximum over the candidates.

    Negative scores count as 0, a leg without a positive score adds 0, and the weights of the legs
    that have one are scaled to sum to 1: a query that only one leg understands is scored by that
    leg alone (Bruch 2023, max scaling).

    Args:
        leg_scores: One array per leg, shape (m,), aligned with the candidates.
        weights: One non-negative weight per leg.

    Returns:
        Scores in [0, 1], shape (m,).
    """
    size = leg_scores[0].size if leg_scores else 0
    fused = np.zeros(size, dtype=np.float64)
    total = 0.0
    for scores, weight in zip(leg_scores, weights, strict=True):
        # As nan_to_num and maximum(0) have it, in a third of the time: fmax passes NaN over.
        clipped = np.minimum(np.fmax(scores.astype(np.float64), 0.0), _LARGEST)
        peak = float(clipped.max()) if clipped.size else 0.0
        if weight <= 0 or peak <= 0:
            continue
        fused += weight * (clipped / peak)
        total += weight
    return np.minimum(fused / total, 1.0) if total > 0 else fused


def graph_scale(arriving: FloatArray, weight: float) -> float:
    """Return what base + weight * arriving is divided by to stay in [0, 1].

    Args:
        arriving: What the graph brought, >= 0, shape (m,).
        weight: Non-negative factor.
    """
    peak = float(arriving.max()) if arriving.size else 0.0
    return 1.0 + weight * max(1.0, peak) if weight > 0 and peak > 0 else 1.0


def add_graph(base: FloatArray, arriving: FloatArray, weight: float) -> FloatArray:
    """Add what arrived over the graph and scale back into [0, 1].

    The order is that of base + weight * arriving.

    Args:
        base: Fused scores in [0, 1], shape (m,).
        arriving: What the graph brought, >= 0, shape (m,); seldom more than 1.
        weight: Non-negative factor; 0, or nothing arriving, returns `base` unchanged.
    """
    scale = graph_scale(arriving, weight)
    return base if scale == 1.0 else (base + weight * arriving) / scale


def add_exact_match(base: FloatArray, exact: NDArray[np.bool_], bonus: float) -> FloatArray:
    """Add a bonus to exact matches and scale back into [0, 1] (hybrid-recall ADR 0005).

    The order is that of base + bonus * exact.

    Args:
        base: Scores in [0, 1], shape (m,).
        exact: Which memories hold every word of the query, shape (m,).
        bonus: Non-negative; 0, or no exact match, returns `base` unchanged.
    """
    if bonus <= 0 or not exact.any():
        return base
    return (base + bonus * exact.astype(np.float64)) / (1.0 + bonus)


def apply_importance(
    scores: FloatArray, importance: NDArray[np.floating], prior: float
) -> FloatArray:
    """Multiply by (1 - prior) + prior * importance (hybrid-recall design A.3 with prior 0.3).

    Args:
        scores: In [0, 1], shape (m,).
        importance: In [0, 1], shape (m,).
        prior: In [0, 1]; 0 leaves the scores as they are.
    """
    return scores * ((1.0 - prior) + prior * importance.astype(np.float64))
