"""Normalised discounted cumulative gain with graded relevance.

What belongs here: this one metric and its two gain functions. Labels without grades are in ndcg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from noctuary.evaluate.metrics.dcg import normalised_dcg
from noctuary.evaluate.metrics.hits import hit_vector

Gain = Literal["linear", "exponential"]

HIGHEST_EXPONENTIAL_GRADE = 53
"""Up to here float64 holds 2^grade - 1 exactly; a scale of a hundred points wants linear gains."""


def _gain_of(grade: int, gain: Gain) -> float:
    return float(grade) if gain == "linear" else float(2**grade - 1)


def _check(grades: Mapping[str, int], gain: Gain) -> None:
    if gain not in ("linear", "exponential"):
        raise ValueError(f"gain must be 'linear' or 'exponential', got {gain!r}")
    negative = [memory_id for memory_id, grade in grades.items() if grade < 0]
    if negative:
        raise ValueError(
            f"a grade starts at 0 (judged, not relevant), got {len(negative)} below: "
            f"{', '.join(sorted(negative)[:10])}"
        )
    if gain == "exponential" and max(grades.values(), default=0) > HIGHEST_EXPONENTIAL_GRADE:
        raise ValueError(
            f"exponential gains take grades up to {HIGHEST_EXPONENTIAL_GRADE}, "
            f"got {max(grades.values())}; use gain='linear'"
        )


def graded_ndcg_at_k(
    ranking: Sequence[str], grades: Mapping[str, int], k: int, *, gain: Gain = "linear"
) -> float:
    """Return the discounted gain of the first k results relative to the best possible order.

    DCG = sum over ranks r (from 1) of gain(grade) / log2(r + 1); the ideal order has the k highest
    grades of the query first. The gain of a grade is the grade itself ("linear": Järvelin and
    Kekäläinen 2002, trec_eval) or 2^grade - 1 ("exponential": Burges et al. 2005, which lets one
    excellent result outweigh several fair ones). With all grades 1 both are `ndcg_at_k`.

    Args:
        ranking: Ids, best first; duplicates earn nothing, ids without a grade gain 0.
        grades: Grade per judged id, at least 0 (0: judged, not relevant); one of them above 0.
        k: Cutoff in ranks, at least 1.
        gain: What a grade is worth.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If no grade is above 0, one is below 0 or too high for exponential gains, `k` is
            below 1, or `gain` is unknown.
    """
    _check(grades, gain)
    gain_of = {memory_id: _gain_of(grade, gain) for memory_id, grade in grades.items() if grade > 0}
    hits = hit_vector(ranking, gain_of, k)
    gains = [
        gain_of[memory_id] if hit else 0.0 for memory_id, hit in zip(ranking[:k], hits, strict=True)
    ]
    return normalised_dcg(gains, sorted(gain_of.values(), reverse=True)[:k])
