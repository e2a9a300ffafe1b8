"""Whether a score tells when to stay silent: AUROC and the risk-coverage curve.

What belongs here: arithmetic over confidences. What does not: which score is the confidence, which
query counts as answered correctly (the caller says both).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
