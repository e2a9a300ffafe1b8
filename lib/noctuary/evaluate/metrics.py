"""Metrics of one ranking against its labels, and of a score that should tell when to stay silent.

In the formulas R is the set of relevant ids and k the cutoff. A ranking is a sequence of ids, best
first. A repeated id earns nothing the second time but keeps its rank: a list that repeats itself
has wasted a slot that the reader had to look at.

Every metric of a ranking raises ValueError where no id is relevant or the cutoff is below 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log2

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.statistics import Floats, Result

DEFAULT_DEPTH = 100
"""Ranks looked at: a first hit below 100 would add less than 0.01 to its query's value."""


def _hit_ranks(ranking: Sequence[str], relevant: Collection[str], k: int) -> list[int]:
    """Return the ranks (from 1, at most k) at which a relevant id stands for the first time."""
    if not relevant:
        raise ValueError(
            "no relevant id: a metric of a query without labels is undefined; "
            "score unanswerable queries apart (QuerySet.unanswerable)"
        )
    if k < 1:
        raise ValueError(f"a cutoff counts ranks and starts at 1, got {k}")
    wanted = set(relevant)
    ranks: list[int] = []
    for rank, memory_id in enumerate(ranking[:k], start=1):
        if memory_id in wanted:
            ranks.append(rank)
            wanted.discard(memory_id)
    return ranks


def precision_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return |R in top k| / k, in [0, 1]; also where the ranking is shorter (trec_eval's P)."""
    return len(_hit_ranks(ranking, relevant, k)) / k


def recall_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return |R in top k| / |R|, in [0, 1]; at most k / |R| (trec_eval's recall)."""
    return len(_hit_ranks(ranking, relevant, k)) / len(set(relevant))


def all_relevant_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 1.0 if every relevant id stands in the top k, else 0.0.

    A question over several memories is answered by all of them or not at all.
    """
    return float(len(_hit_ranks(ranking, relevant, k)) == len(set(relevant)))


def average_precision(ranking: Sequence[str], relevant: Collection[str], depth: int) -> float:
    """Return (1 / |R|) * sum of precision@r over the relevant ranks r, in [0, 1].

    What is not found adds 0, and |R| is not capped at the depth (trec_eval's map_cut).
    """
    ranks = _hit_ranks(ranking, relevant, depth)
    return fsum(n / rank for n, rank in enumerate(ranks, start=1)) / len(set(relevant))


def reciprocal_rank(
    ranking: Sequence[str], relevant: Collection[str], depth: int = DEFAULT_DEPTH
) -> float:
    """Return 1 / rank of the first relevant id, in [0, 1]; 0 if none stands within the depth."""
    ranks = _hit_ranks(ranking, relevant, depth)
    return 1.0 / ranks[0] if ranks else 0.0


def dcg(gains: Sequence[float]) -> float:
    """Return the sum over ranks r of gain / log2(r + 1), rounded once.

    Järvelin and Kekäläinen 2002 with the discount of trec_eval, which starts at the second rank.
    """
    return fsum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain)


def ndcg_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the DCG of the top k over that of the best order, in [0, 1]; every gain is 1."""
    return graded_ndcg_at_k(ranking, dict.fromkeys(relevant, 1), k)


def graded_ndcg_at_k(ranking: Sequence[str], grades: Mapping[str, int], k: int) -> float:
    """Return the DCG of the top k over that of the best order, in [0, 1]; a grade is its gain.

    Args:
        ranking: Ids, best first; ids without a grade gain 0.
        grades: Per judged id, at least 0 (0: judged, not relevant); one of them above 0.
        k: Cutoff in ranks, at least 1.

    Raises:
        ValueError: If no grade is above 0, one is below 0, or `k` is below 1.
    """
    negative = sorted(memory_id for memory_id, grade in grades.items() if grade < 0)
    if negative:
        raise ValueError(
            f"a grade starts at 0 (judged, not relevant), got {len(negative)} below: "
            f"{', '.join(negative[:10])}"
        )
    gain_of = {memory_id: float(grade) for memory_id, grade in grades.items() if grade > 0}
    gains = [0.0] * min(k, len(ranking))
    for rank in _hit_ranks(ranking, gain_of, k):
        gains[rank - 1] = gain_of[ranking[rank - 1]]
    ideal = sorted(gain_of.values(), reverse=True)[:k]
    # The minimum takes off what rounding of the terms may leave above 1.
    return min(1.0, dcg(gains) / dcg(ideal))


# Whether a score tells when to stay silent: AUROC and the risk-coverage curve.


@dataclass(frozen=True, slots=True)
class RiskCoverage(Result):
    """What is risked at every threshold that tells queries apart, the highest threshold first.

    Attributes:
        thresholds: The distinct confidences, descending; a query is answered at or above one.
        coverage: Share of the queries that is answered, rising to 1.
        risk: Share of errors among the answered, in [0, 1].
        area: Area under risk over coverage, in [0, 1]; lower is better. A confidence that says
            nothing comes out near the overall share of errors (risk at coverage 1).
    """

    thresholds: tuple[float, ...]
    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    area: float


def _check_scores(name: str, scores: Floats) -> None:
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"{name} needs one score per query, at least one; got {scores.shape}")
    if np.isnan(scores).any():
        n_missing = int(np.count_nonzero(np.isnan(scores)))
        raise ValueError(f"{name} holds {n_missing} scores that are no numbers (NaN)")


def auroc(answerable: Floats, unanswerable: Floats) -> float:
    """Return the chance that an answerable query scores above an unanswerable one, in [0, 1].

    The Mann-Whitney statistic over all pairs; a tie counts half (Hanley and McNeil 1982).

    Top scores, shapes (n,) and (m,); infinite is allowed. ValueError if one side is empty, not
    one-dimensional or holds NaN.
    """
    _check_scores("answerable", answerable)
    _check_scores("unanswerable", unanswerable)
    ordered = np.sort(unanswerable)
    below = np.searchsorted(ordered, answerable, side="left")
    not_above = np.searchsorted(ordered, answerable, side="right")
    return float((below + not_above).sum()) / (2 * answerable.size * unanswerable.size)


def risk_coverage(confidence: Floats, correct: NDArray[np.bool_]) -> RiskCoverage:
    """Return the selective risk at every coverage when the least confident are left unanswered.

    The area is the mean risk over the first 1, 2, ..., n queries in order of falling confidence
    (AURC; Geifman, Uziel and El-Yaniv 2019). Equal confidences make one point.

    Args:
        confidence: Shape (n,): the score that decides; infinite is allowed, NaN is not.
        correct: Shape (n,): whether an answer is correct; False for every unanswerable query.

    Raises:
        ValueError: If the shapes differ, there is no query, or a confidence is NaN.
    """
    _check_scores("confidence", confidence)
    if correct.shape != confidence.shape:
        raise ValueError(
            f"one verdict per confidence is needed, got {correct.shape} and {confidence.shape}"
        )
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    last_of_tie = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    answered = last_of_tie + 1
    errors = np.cumsum(~correct[order], dtype=np.int64)[last_of_tie]
    # Queries of equal confidence share their errors evenly: what breaking the ties at random would
    # give on average, whatever order the input has.
    count = np.arange(1, ranked.size + 1)
    expected_errors = np.interp(count, np.append(0, answered), np.append(0, errors))
    return RiskCoverage(
        thresholds=tuple(ranked[last_of_tie].tolist()),
        coverage=tuple((answered / ranked.size).tolist()),
        risk=tuple((errors / answered).tolist()),
        area=min(1.0, float((expected_errors / count).mean())),
    )
