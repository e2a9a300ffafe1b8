"""Whether the score of the best result tells that there is an answer, for one arm.

What belongs here: from two runs to confidences, their judgement, and the shape of the result. What
does not: AUROC and the risk-coverage curve themselves (metrics/abstention.py), plots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import FAULTS_SHOWN
from noctuary.evaluate.metrics.abstention import RiskCoverage, auroc, risk_coverage
from noctuary.evaluate.resampling import DIGITS, Resampling, interval_from_json, interval_json
from noctuary.evaluate.run import Run
from noctuary.evaluate.scores import Scores
from noctuary.evaluate.statistics.bootstrap import MIN_VALUES, Interval
from noctuary.hashing import JsonValue

_CHUNK_CELLS = 2_000_000
"""Cells of a block of resamples held at once (float64, 16 MB): larger gains no speed."""


@dataclass(frozen=True, slots=True)
class Abstention:
    """How well an arm's top score separates what it can answer from what it cannot.

    Attributes:
        name: The arm's.
        metric: Its value above 0 counts as a correct answer (for recall: something was found).
        auroc: Chance that an answerable query scores above an unanswerable one, in [0, 1]; 0.5 says
            nothing; None if there is no unanswerable query.
        interval: Its percentile bootstrap interval, both kinds of query resampled apart; None where
            one kind has fewer than two. It has no width where the kinds separate completely, which
            is no proof that they always do.
        n_answerable: Queries with labels.
        n_unanswerable: Queries that nothing in the corpus answers.
        curve: Risk and coverage over both kinds; answering an unanswerable query is an error. The
            last threshold is -inf if some query found nothing.
    """

    name: str
    metric: str
    auroc: float | None
    interval: Interval | None
    n_answerable: int
    n_unanswerable: int
    curve: RiskCoverage

    def to_json(self) -> dict[str, JsonValue]:
        """Return the result as plain values, rounded; a threshold of -inf becomes None."""
        curve = self.curve
        return {
            "name": self.name,
            "metric": self.metric,
            "auroc": None if self.auroc is None else round(self.auroc, DIGITS),
            **interval_json(self.interval),
            "n_answerable": self.n_answerable,
            "n_unanswerable": self.n_unanswerable,
            "curve": {
                "thresholds": [
                    None if t == -np.inf else round(t, DIGITS) for t in curve.thresholds
                ],
                "coverage": _rounded(curve.coverage),
                "risk": _rounded(curve.risk),
                "area": round(curve.area, DIGITS),
            },
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Abstention:
        """Read back what `to_json` returned.

        Raises:
            KeyError: If a key is missing.
        """
        curve = raw["curve"]
        found = None if raw["auroc"] is None else float(raw["auroc"])
        n = int(raw["n_answerable"]) + int(raw["n_unanswerable"])
        return Abstention(
            name=str(raw["name"]),
            metric=str(raw["metric"]),
            auroc=found,
            interval=interval_from_json(found or 0.0, n, raw["low"], raw["high"]),
            n_answerable=int(raw["n_answerable"]),
            n_unanswerable=int(raw["n_unanswerable"]),
            curve=RiskCoverage(
                thresholds=tuple(-np.inf if t is None else float(t) for t in curve["thresholds"]),
                coverage=tuple(float(share) for share in curve["coverage"]),
                risk=tuple(float(share) for share in curve["risk"]),
                area=float(curve["area"]),
            ),
        )


def judge_abstention(
    answerable: Run,
    unanswerable: Run | None,
    scores: Scores,
    metric: str = "recall@10",
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> Abstention | None:
    """Judge an arm's top score as a sign that there is an answer.

    A query that found nothing has the lowest confidence of all (-inf): the arm abstained by itself.

    Args:
        answerable: The arm on labelled queries.
        unanswerable: The same arm on queries without an answer; None or empty leaves only the
            curve over the answerable ones.
        scores: The scores of `answerable`; may be over some of its queries.
        metric: Which of its values above 0 counts as a correct answer.
        resampling: Draws, seed and confidence of the AUROC's interval.

    Returns:
        The result, or None if the arm's scores are unknown (a non-empty ranking without a score).

    Raises:
        ValueError: If `scores` lack the metric, hold no query, or name queries that the run lacks.
    """
    correct = scores.column(metric) > 0.0
    known = _confidences(answerable, scores.query_ids)
    unknown = np.empty(0)
    if unanswerable is not None:
        unknown = _confidences(unanswerable, unanswerable.query_ids)
    if known is None or unknown is None:
        return None
    return judge_confidences(answerable.name, metric, known, unknown, correct, resampling)


def judge_confidences(
    name: str,
    metric: str,
    known: NDArray[np.float64],
    unknown: NDArray[np.float64],
    correct: NDArray[np.bool_],
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
) -> Abstention:
    """Judge any confidence as a sign that there is an answer.

    Args:
        name: What the confidence is called.
        metric: Which of its values above 0 counted as a correct answer.
        known: Confidence of every answerable query, shape (n,), n at least 1; no NaN.
        unknown: Of every unanswerable one, shape (m,); may be empty.
        correct: Whether each answerable query is answered correctly, shape (n,).
        resampling: Draws, seed and confidence of the AUROC's interval.

    Raises:
        ValueError: If shapes differ, there is no answerable query, or a confidence is NaN.
    """
    both = unknown.size > 0
    return Abstention(
        name=name,
        metric=metric,
        auroc=auroc(known, unknown) if both else None,
        interval=_auroc_interval(known, unknown, resampling) if both else None,
        n_answerable=known.size,
        n_unanswerable=unknown.size,
        curve=risk_coverage(
            np.concatenate([known, unknown]),
            np.concatenate([correct, np.zeros(unknown.size, dtype=np.bool_)]),
        ),
    )


def _confidences(run: Run, query_ids: Sequence[str]) -> NDArray[np.float64] | None:
    """Return the top score per query, -inf where nothing was found; None if one is unknown."""
    found: dict[str, float | None] = {}
    for query_id, ranking, score in zip(run.query_ids, run.rankings, run.top_scores, strict=True):
        found[query_id] = score if ranking else -np.inf
    missing = [query_id for query_id in query_ids if query_id not in found]
    if missing:
        raise ValueError(
            f"run {run.name!r} lacks {len(missing)} of the scored queries, the first: "
            f"{missing[:FAULTS_SHOWN]}"
        )
    chosen = [found[query_id] for query_id in query_ids]
    if any(score is None for score in chosen):
        return None
    return np.array(chosen, dtype=np.float64)


def _auroc_interval(
    answerable: NDArray[np.float64], unanswerable: NDArray[np.float64], resampling: Resampling
) -> Interval | None:
    if min(answerable.size, unanswerable.size) < MIN_VALUES:
        return None
    drawn = np.concatenate(list(_resampled_aurocs(answerable, unanswerable, resampling)))
    tail = (1.0 - resampling.confidence) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    n = answerable.size + unanswerable.size
    return Interval(auroc(answerable, unanswerable), float(low), float(high), n)


def _resampled_aurocs(
    answerable: NDArray[np.float64], unanswerable: NDArray[np.float64], resampling: Resampling
) -> Iterator[NDArray[np.float64]]:
    """Yield the AUROC of resamples, a block at a time, without sorting each of them.

    The unanswerable scores are sorted once; a resample only counts how often each is drawn. How
    many of them lie below an answerable score is then a difference of running counts.
    """
    n, m = answerable.size, unanswerable.size
    ordered = np.sort(unanswerable)
    below = np.searchsorted(ordered, answerable, side="left")
    not_above = np.searchsorted(ordered, answerable, side="right")
    rng = np.random.default_rng(resampling.seed)
    block = max(1, _CHUNK_CELLS // (n + m))
    for start in range(0, resampling.draws, block):
        rows = min(block, resampling.draws - start)
        picked = rng.integers(0, n, size=(rows, n))
        counts = _draw_counts(rng, rows, m)
        running = np.zeros((rows, m + 1), dtype=np.int64)
        np.cumsum(counts, axis=1, out=running[:, 1:])
        # Ties count half: the mean of those strictly below and those not above.
        twice = np.take_along_axis(running, below[picked], axis=1)
        twice += np.take_along_axis(running, not_above[picked], axis=1)
        yield twice.sum(axis=1) / (2.0 * n * m)


def _draw_counts(rng: np.random.Generator, rows: int, n: int) -> NDArray[np.int64]:
    """Return how often each of n values is drawn in each of `rows` resamples, shape (rows, n)."""
    picks = rng.integers(0, n, size=(rows, n)) + np.arange(rows)[:, None] * n
    return np.bincount(picks.ravel(), minlength=rows * n).reshape(rows, n)


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, DIGITS) for value in values]
