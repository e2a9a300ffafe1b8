"""Below which score nothing is an answer: the threshold that queries and prompts lead to.

What belongs here: the rule, and what it costs and saves. What does not: where the scores come from
(noctuary.recall.answerability_score), which queries are asked, AUROC and risk-coverage themselves
(`abstention`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.abstention import Abstention, judge_confidences
from noctuary.evaluate.metrics.abstention import RiskCoverage
from noctuary.evaluate.resampling import DIGITS, Resampling
from noctuary.hashing import JsonValue

Floats = NDArray[np.float64]

MAX_RECALL_LOSS = 0.05
"""Share of the answerable queries' recall that abstaining may cost: more keeps more pollution out
of prompts, less loses fewer memories that were wanted."""

MIN_ANSWERABLE = 20
"""Fewest answerable queries to choose by: with fewer the first one lost already costs more than
MAX_RECALL_LOSS allows."""

SCORE_DIGITS = 5
"""Decimals of a score that count, rounded down: equal nights choose equal thresholds, and what was
asked in the night is not below its own score the next day."""

CURVE_POINTS = 40
"""Points kept of a risk-coverage curve: a snapshot carries them, and a plot shows no more."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A threshold, with what it does to the queries that it was chosen on.

    Attributes:
        threshold: In [0, 1]; a query is abstained from where its score is below.
        recall: Mean recall of the answerable queries when every one is answered, in (0, 1].
        recall_kept: The same when those below the threshold find nothing.
        answerable_abstained: Share of the answerable queries below the threshold.
        unanswerable_abstained: Share of the unanswerable ones; None where there is none.
        judged: AUROC and risk-coverage of the score.
    """

    threshold: float
    recall: float
    recall_kept: float
    answerable_abstained: float
    unanswerable_abstained: float | None
    judged: Abstention

    def to_json(self) -> dict[str, JsonValue]:
        """Return plain values, rounded; the curve with at most CURVE_POINTS points."""
        judged = replace(self.judged, curve=thin_curve(self.judged.curve))
        unanswerable = self.unanswerable_abstained
        return {
            "threshold": self.threshold,
            "recall": round(self.recall, DIGITS),
            "recall_kept": round(self.recall_kept, DIGITS),
            "answerable_abstained": round(self.answerable_abstained, DIGITS),
            "unanswerable_abstained": None if unanswerable is None else round(unanswerable, DIGITS),
            **judged.to_json(),
        }

    def describe(self, asked: str = "answerable queries") -> str:
        """Return in words what the threshold costs; `asked` says what was asked."""
        known = round(self.answerable_abstained * self.judged.n_answerable)
        return (
            f"{self.judged.name}: below {self.threshold:.3f} nothing is an answer, which drops "
            f"{known} of {self.judged.n_answerable} {asked} and keeps "
            f"{self.recall_kept / self.recall:.1%} of their recall"
        )

    def describe_unanswerable(self) -> str:
        """Return in words what it saves."""
        judged = self.judged
        if self.unanswerable_abstained is None or judged.auroc is None:
            return "no unanswerable query tells what that is good for"
        caught = round(self.unanswerable_abstained * judged.n_unanswerable)
        return (
            f"{caught} of {judged.n_unanswerable} unanswerable queries are dropped "
            f"(AUROC {judged.auroc:.3f})"
        )


def calibrate(
    signal: str,
    metric: str,
    answerable: Sequence[float],
    recalls: Sequence[float],
    unanswerable: Sequence[float] = (),
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
    within: tuple[float, float] = (0.0, 1.0),
) -> Calibrated | str:
    """Choose the threshold of a signal, or say why there is none.

    The largest one that keeps at least 1 - MAX_RECALL_LOSS of the recall of the answerable queries,
    as far as the bounds allow: an unanswerable query has no say in it, so that a handful of them
    cannot move it. They have a veto: a signal whose AUROC on them is not above .5 tells nothing and
    gets no threshold.

    Args:
        signal: What the score is called.
        metric: What `recalls` are, for example "recall@10".
        answerable: Score of every answerable query, in [0, 1], shape (n,).
        recalls: What recall found for each, in [0, 1], same shape.
        unanswerable: Score of every query that nothing answers.
        resampling: For the AUROC's interval.
        within: Least and largest threshold, what everyday prompts ask for (`reached_by`).

    Raises:
        ValueError: If shapes differ, or a score lies outside [0, 1].
    """
    if len(answerable) < MIN_ANSWERABLE:
        return f"{len(answerable)} queries are too few to calibrate by, {MIN_ANSWERABLE} are needed"
    known, unknown = _checked(answerable), _checked(unanswerable)
    found = np.asarray(recalls, dtype=np.float64)
    if found.shape != known.shape:
        raise ValueError(f"one recall per score is needed, got {found.shape} and {known.shape}")
    if not found.sum() > 0.0:
        return "no query found anything: there is no recall to keep"
    judged = judge_confidences(signal, metric, known, unknown, found > 0.0, resampling)
    if judged.auroc is not None and judged.auroc <= 0.5:
        return f"{signal} tells nothing here: its AUROC is {judged.auroc:.3f}"
    threshold = min(max(choose_threshold(known, found), within[0]), within[1])
    kept = known >= threshold
    return Calibrated(
        threshold=threshold,
        recall=float(found.mean()),
        recall_kept=float((found * kept).mean()),
        answerable_abstained=float(np.mean(~kept)),
        unanswerable_abstained=float(np.mean(unknown < threshold)) if unknown.size else None,
        judged=judged,
    )


def choose_threshold(
    scores: Floats, recalls: Floats, max_recall_loss: float = MAX_RECALL_LOSS
) -> float:
    """Return the largest score of a query such that those below it hold little of the recall.

    Args:
        scores: Shape (n,), n at least 1.
        recalls: In [0, 1], shape (n,), not all 0.
        max_recall_loss: Largest share of the summed recall that may lie below, in [0, 1].
    """
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    before = np.concatenate([[0.0], np.cumsum(recalls[order])])
    below = before[np.searchsorted(ranked, ranked, side="left")]
    # The sum of many recalls is not exact: 1 of 20 is 5 %.
    allowed = max_recall_loss * before[-1] + 1e-9
    return float(ranked[below <= allowed][-1])


def reached_by(scores: Sequence[float], share: float) -> float:
    """Return the least score that at most a share of these reach, in [0, 1].

    Args:
        scores: Of everyday prompts, in [0, 1], at least one.
        share: In [0, 1).
    """
    ranked = np.sort(_checked(scores))[::-1]
    return min(floor_score(float(ranked[int(share * ranked.size)]) + 1.5 / 10**SCORE_DIGITS), 1.0)


def floor_score(score: float) -> float:
    """Return a score with SCORE_DIGITS decimals, rounded down."""
    scale = 10**SCORE_DIGITS
    return math.floor(score * scale) / scale


def thin_curve(curve: RiskCoverage, points: int = CURVE_POINTS) -> RiskCoverage:
    """Return at most `points` of a curve's points, evenly chosen, both ends kept.

    Args:
        curve: The whole curve; its area stays that of the whole.
        points: At least 2.
    """
    size = len(curve.thresholds)
    if size <= points:
        return curve
    places = [round(i * (size - 1) / (points - 1)) for i in range(points)]
    return RiskCoverage(
        thresholds=tuple(curve.thresholds[i] for i in places),
        coverage=tuple(curve.coverage[i] for i in places),
        risk=tuple(curve.risk[i] for i in places),
        area=curve.area,
    )


def _checked(scores: Sequence[float]) -> Floats:
    found = np.array([floor_score(score) for score in scores], dtype=np.float64)
    if found.size and not (found.min() >= 0.0 and found.max() <= 1.0):
        raise ValueError(f"scores lie in [0, 1], got {found.min()} to {found.max()}")
    return found
