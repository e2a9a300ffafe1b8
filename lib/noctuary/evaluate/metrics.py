"""Metrics of one ranking against its labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# From a ranking and its labels to the binary vector that every metric reads.
#
# No metric.


def hit_vector(ranking: Sequence[str], relevant: Collection[str], depth: int) -> NDArray[np.bool_]:
    """Mark the relevant ranks of the first `depth` results.

    A repeated id earns nothing the second time but keeps its rank: a list that repeats itself has
    wasted a slot that the reader had to look at, so a duplicate can lower a metric and never raise
    it.

    Args:
        ranking: Ids, best first.
        relevant: Ids of the relevant memories; not empty.
        depth: How many ranks count, at least 1.

    Returns:
        Shape (min(depth, len(ranking)),); True where the rank holds a relevant id for the first
        time.

    Raises:
        ValueError: If `relevant` is empty or `depth` is below 1.
    """
    if not relevant:
        raise ValueError(
            "no relevant id: a metric of a query without labels is undefined; "
            "score unanswerable queries apart (QuerySet.unanswerable)"
        )
    if depth < 1:
        raise ValueError(f"a cutoff counts ranks and starts at 1, got {depth}")
    wanted = set(relevant)
    hits = np.zeros(min(depth, len(ranking)), dtype=np.bool_)
    for rank, memory_id in enumerate(ranking[:depth]):
        if memory_id in wanted:
            hits[rank] = True
            wanted.discard(memory_id)
    return hits


# Precision at k.


def precision_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the share of the first k slots that hold a relevant memory.

    precision@k = |relevant ∩ top k| / k. A ranking shorter than k is still divided by k (the
    convention of trec_eval's `P`), so with fewer than k relevant memories the highest value is
    |relevant| / k.

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    return float(np.count_nonzero(hit_vector(ranking, relevant, k))) / k


# Recall at k.


def _recall(hits: NDArray[np.bool_], n_relevant: int) -> float:
    return float(np.count_nonzero(hits)) / n_relevant


def recall_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the share of the relevant memories that stand in the first k results.

    recall@k = |relevant ∩ top k| / |relevant|. The denominator is not capped at k: with more than k
    relevant memories the highest value is k / |relevant| (the convention of trec_eval's `recall`).

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    return _recall(hit_vector(ranking, relevant, k), len(set(relevant)))


# All relevant at k: whether the first k results are a complete answer.


def all_relevant_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 1 if every relevant memory stands in the first k results, 0 otherwise.

    A question over several memories is answered by all of them or not at all: recall@k = 0.5 on a
    two-hop question is no half answer. With more than k relevant memories the value is always 0.

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        0.0 or 1.0.

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    found = np.count_nonzero(hit_vector(ranking, relevant, k))
    return 1.0 if found == len(set(relevant)) else 0.0


# Average precision, whose mean over queries is MAP.


def _average_precision(hits: NDArray[np.bool_], n_relevant: int) -> float:
    hit_ranks = np.flatnonzero(hits) + 1
    precisions = np.arange(1, hit_ranks.size + 1) / hit_ranks
    return float(precisions.sum()) / n_relevant


def average_precision(ranking: Sequence[str], relevant: Collection[str], depth: int) -> float:
    """Return the precision at the rank of every relevant memory, averaged over all of them.

    AP@depth = (1 / |relevant|) * sum over relevant ranks r <= depth of precision@r. A relevant
    memory that is not found adds 0, and the denominator is not capped at the depth (the convention
    of trec_eval's `map_cut`).

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        depth: How many ranks are looked at, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `depth` is below 1.
    """
    return _average_precision(hit_vector(ranking, relevant, depth), len(set(relevant)))


# Reciprocal rank and its mean over queries.


DEFAULT_DEPTH = 100
"""Ranks looked at: a first hit below 100 would add less than 0.01 to its query's value."""


def _reciprocal_rank(hits: NDArray[np.bool_]) -> float:
    return 1.0 / (int(np.argmax(hits)) + 1) if hits.any() else 0.0


def reciprocal_rank(
    ranking: Sequence[str], relevant: Collection[str], depth: int = DEFAULT_DEPTH
) -> float:
    """Return 1 / rank of the first relevant result, 0 if none stands within `depth`.

    Args:
        ranking: Ids, best first.
        relevant: Ids of the relevant memories; not empty.
        depth: How many ranks are looked at, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `depth` is below 1.
    """
    return _reciprocal_rank(hit_vector(ranking, relevant, depth))


def mean_reciprocal_rank(
    runs: Iterable[tuple[Sequence[str], Collection[str]]], depth: int = DEFAULT_DEPTH
) -> float:
    """Return the mean reciprocal rank over (ranking, relevant ids) pairs.

    Raises:
        ValueError: If there is no pair, or one of them has no relevant id.
    """
    values = [reciprocal_rank(ranking, relevant, depth) for ranking, relevant in runs]
    if not values:
        raise ValueError("the mean over no queries is undefined")
    return float(np.mean(values))


# Discounted cumulative gain: the sum that both nDCG variants normalise.


def dcg(gains: Sequence[float]) -> float:
    """Return the sum over ranks r (from 1) of gain / log2(r + 1).

    Järvelin and Kekäläinen 2002 with the discount of trec_eval, which starts at the second rank.

    Args:
        gains: Gain per rank, best first; finite.

    Returns:
        The sum, rounded once: zeros between or behind the gains change no digit of it.
    """
    return fsum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain)


def normalised_dcg(gains: Sequence[float], ideal: Sequence[float]) -> float:
    """Return the DCG of `gains` as a share of the DCG of `ideal`.

    Args:
        gains: Gain per rank of a ranking; not negative.
        ideal: The highest gains that the query offers, descending; their sum above 0.

    Returns:
        A value in [0, 1].
    """
    # The minimum takes off what rounding of the terms may leave above 1.
    return min(1.0, dcg(gains) / dcg(ideal))


# Normalised discounted cumulative gain with binary relevance.
#
# Grades are in graded_ndcg.


def ndcg_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the discounted gain of the first k results relative to the best possible order.

    DCG = sum over relevant ranks r (from 1) of 1 / log2(r + 1); the ideal order has min(|relevant|,
    k) relevant results first (Järvelin and Kekäläinen 2002, with gains 0 and 1).

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        A value in [0, 1].

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    gains = [float(hit) for hit in hit_vector(ranking, relevant, k)]
    return normalised_dcg(gains, [1.0] * min(len(set(relevant)), k))


# Normalised discounted cumulative gain with graded relevance.
#
# Labels without grades are in ndcg.


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


# Whether a score tells when to stay silent: AUROC and the risk-coverage curve.


@dataclass(frozen=True, slots=True)
class RiskCoverage:
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


def _check_scores(name: str, scores: NDArray[np.float64]) -> None:
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"{name} needs one score per query, at least one; got {scores.shape}")
    if np.isnan(scores).any():
        n_missing = int(np.count_nonzero(np.isnan(scores)))
        raise ValueError(f"{name} holds {n_missing} scores that are no numbers (NaN)")


def auroc(answerable: NDArray[np.float64], unanswerable: NDArray[np.float64]) -> float:
    """Return the chance that an answerable query scores above an unanswerable one.

    The area under the ROC curve as the Mann-Whitney statistic over all pairs; a tie counts half
    (Hanley and McNeil 1982). It depends on the order of the scores only.

    Args:
        answerable: Shape (n,): top score per answerable query; infinite is allowed, NaN is not.
        unanswerable: Shape (m,): top score per unanswerable query.

    Returns:
        A value in [0, 1]; 0.5 where the score says nothing.

    Raises:
        ValueError: If one side is empty, not one-dimensional or holds NaN.
    """
    _check_scores("answerable", answerable)
    _check_scores("unanswerable", unanswerable)
    ordered = np.sort(unanswerable)
    below = np.searchsorted(ordered, answerable, side="left")
    not_above = np.searchsorted(ordered, answerable, side="right")
    return float((below + not_above).sum()) / (2 * answerable.size * unanswerable.size)


def _area(answered: NDArray[np.int64], errors: NDArray[np.int64]) -> float:
    """Return the mean risk over the first 1, 2, ..., n answered queries.

    Queries of equal confidence share their errors evenly: the value is what breaking the ties at
    random would give on average, whatever order the input has.
    """
    count = np.arange(1, answered[-1] + 1)
    expected_errors = np.interp(count, np.append(0, answered), np.append(0, errors))
    return min(1.0, float((expected_errors / count).mean()))


def risk_coverage(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> RiskCoverage:
    """Return the selective risk at every coverage when the least confident are left unanswered.

    Queries are answered in order of falling confidence; coverage is the share answered, risk the
    share of errors among them, the area is the mean risk over all coverages (AURC; Geifman, Uziel
    and El-Yaniv 2019). Equal confidences cannot be told apart by a threshold and make one point.

    Args:
        confidence: Shape (n,): the score that decides; infinite is allowed, NaN is not.
        correct: Shape (n,): whether the query is answered correctly if it is answered; False for
            every unanswerable one.

    Returns:
        One point per distinct confidence, and the area.

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
    all_errors = np.cumsum(np.logical_not(correct[order]), dtype=np.int64)
    last_of_tie = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), ranked.size - 1)
    answered, errors = last_of_tie + 1, all_errors[last_of_tie]
    return RiskCoverage(
        thresholds=tuple(ranked[last_of_tie].tolist()),
        coverage=tuple((answered / ranked.size).tolist()),
        risk=tuple((errors / answered).tolist()),
        area=_area(answered, errors),
    )
