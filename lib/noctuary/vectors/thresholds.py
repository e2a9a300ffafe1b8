"""Early-exit thresholds of the short tiers, derived from a corpus against full-dimension truth.

What belongs here: the sample, its truth, the ROC and the choice of a threshold. What does not:
searching with one (noctuary.vectors.cascade).

A tier may answer alone where its best cosine tells that its first ten are the true first ten. The
reference's thresholds were calibrated for another model, and it asks to derive them anew when the
model changes (libravdb mathematics section 4). Memories of the corpus serve as queries, each held
out from its own results; nothing is random, so equal inputs give equal thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.vectors.cascade import release_pages
from noctuary.vectors.rotation import Rotation, rotated_prefix

TARGET_RECALL = 0.9
"""Of the true first ten that a tier's first ten must hold, for its answer to count as right. Lower
lets more queries leave early with more of their results replaced."""

TARGET_PRECISION = 0.95
"""Least share of right answers among the queries that leave early. Higher trades exits away."""

TOP = 10
"""Results that a tier's answer is judged by."""

MIN_EXITS = 30
"""Fewest sampled queries at or above a threshold: the precision of fewer says too little."""

SAMPLE_QUERIES = 400
"""Memories that serve as queries, evenly spread; more narrow the precision and lengthen the night
(400 against 100,000 rows take about a second per tier)."""

CORPUS_ROWS = 100_000
"""Most memories that are searched, evenly spread; bounds the night's time on large stores."""

MIN_CORPUS_ROWS = 100
"""Fewest memories to derive from: among fewer, a tenth are neighbours and any tier looks good."""

REFERENCE_EXITS: Mapping[int, float] = {64: 0.65, 256: 0.75}
"""The reference's thresholds by dimensions: the fallback where nothing can be derived. Measured on
this project's default model they leave too early."""

ROC_POINTS = 12
"""Points kept of each curve, for the asset's metadata."""

RULES: Mapping[str, Any] = {
    "target_recall": TARGET_RECALL,
    "target_precision": TARGET_PRECISION,
    "top": TOP,
    "min_exits": MIN_EXITS,
    "sample_queries": SAMPLE_QUERIES,
    "corpus_rows": CORPUS_ROWS,
    "min_corpus_rows": MIN_CORPUS_ROWS,
    "reference_exits": {str(dim): at for dim, at in REFERENCE_EXITS.items()},
    "roc_points": ROC_POINTS,
}
"""Everything above: kept thresholds hold for the same vectors under the same rules."""

_QUERY_CHUNK = 50  # 20 MB of scores at 100,000 rows
_DIGITS = 4

DERIVED, UNREACHED, REFERENCE = "derived", "unreached", "reference"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ExitThreshold:
    """How sure a tier must be to answer alone.

    Attributes:
        dim: Dimensions of the tier.
        exit_at: Least best cosine, in [-1, 1]; None never exits.
        origin: "derived", "unreached" (no threshold reaches the target precision) or "reference".
        precision: Share of right answers among the sampled queries that exit; None if none does.
        exits: Share of the sampled queries that exit.
        auroc: Chance that a query answered rightly has the higher best cosine, in [0, 1]; None
            where all answers were right, or none.
        roc: (threshold, false positive rate, true positive rate), thresholds descending.
        reference_precision: Precision at the reference's threshold; None where nothing exits there
            or the reference has none for these dimensions.
        queries: Sampled queries.
    """

    dim: int
    exit_at: float | None
    origin: str
    precision: float | None = None
    exits: float = 0.0
    auroc: float | None = None
    roc: tuple[tuple[float, float, float], ...] = ()
    reference_precision: float | None = None
    queries: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values for an asset's metadata."""
        return {
            "exit_at": self.exit_at,
            "origin": self.origin,
            "precision": self.precision,
            "exits": self.exits,
            "auroc": self.auroc,
            "roc": [list(point) for point in self.roc],
            "reference_precision": self.reference_precision,
            "queries": self.queries,
        }


def derive_thresholds(
    vectors: NDArray[np.floating[Any]], rotation: Rotation, dims: Sequence[int]
) -> dict[int, ExitThreshold]:
    """Return the exit threshold of each short tier, by dimensions, ascending.

    Args:
        vectors: Unit rows, shape (n, d); may be memory-mapped.
        rotation: Of the same d.
        dims: Of the short tiers; those not below d are left out.
    """
    short = sorted({dim for dim in dims if 0 < dim < vectors.shape[1]})
    if len(vectors) < MIN_CORPUS_ROWS or rotation.is_identity:
        return {dim: ExitThreshold(dim, REFERENCE_EXITS.get(dim), REFERENCE) for dim in short}
    corpus = np.asarray(vectors[:: -(-len(vectors) // CORPUS_ROWS)], dtype=np.float32)
    release_pages(vectors)
    # Rows of the corpus itself, so that each can be held out by its place.
    places = np.arange(0, len(corpus), -(-len(corpus) // SAMPLE_QUERIES))
    truth, _ = _nearest(corpus, places)
    thresholds: dict[int, ExitThreshold] = {}
    for dim in short:
        found, best = _nearest(rotated_prefix(corpus, rotation, dim), places)
        shared = [len(np.intersect1d(a, b)) for a, b in zip(truth, found, strict=True)]
        right = np.asarray(shared) >= TARGET_RECALL * TOP - 1e-9
        thresholds[dim] = choose_threshold(dim, best, right)
    return thresholds


def choose_threshold(dim: int, best: Floats, right: NDArray[np.bool_]) -> ExitThreshold:
    """Return the least threshold at and above which enough answers are right.

    Args:
        dim: Dimensions of the tier.
        best: Its best cosine per query, shape (q,), q >= 1.
        right: Whether its answer was right, shape (q,).
    """
    order = np.argsort(-best, kind="stable")
    scores, hits = best[order].astype(np.float64), np.cumsum(right[order], dtype=np.int64)
    counts = np.arange(1, len(scores) + 1)
    # Equal scores leave together: only the last of them can be a threshold.
    last = np.append(scores[1:] < scores[:-1], True)
    reaches = last & (counts >= MIN_EXITS) & (hits >= TARGET_PRECISION * counts)
    reference = REFERENCE_EXITS.get(dim)
    common: dict[str, Any] = {
        "auroc": _auroc(best, right),
        "roc": _roc(scores, counts, hits, last),
        "reference_precision": _precision_at(reference, best, right),
        "queries": len(best),
    }
    if not reaches.any():
        return ExitThreshold(dim, None, UNREACHED, **common)
    chosen = int(np.flatnonzero(reaches)[-1])
    return ExitThreshold(
        dim,
        float(scores[chosen]),
        DERIVED,
        precision=round(float(hits[chosen] / counts[chosen]), _DIGITS),
        exits=round(float(counts[chosen] / len(scores)), _DIGITS),
        **common,
    )


def _nearest(rows: Floats, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Return the first TOP rows of each query row, itself left out, and its best cosine."""
    found: list[NDArray[np.int64]] = []
    best: list[Floats] = []
    for start in range(0, len(places), _QUERY_CHUNK):
        asked = places[start : start + _QUERY_CHUNK]
        scores = rows[asked] @ rows.T
        scores[np.arange(len(asked)), asked] = -np.inf
        found.append(np.argpartition(-scores, TOP - 1, axis=1)[:, :TOP])
        best.append(scores.max(axis=1))
    return np.concatenate(found), np.concatenate(best)


def _auroc(best: Floats, right: NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve by mid-ranks (Mann-Whitney)."""
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(best, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse.reshape(best.shape)]
    area = (ranks[right].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    return round(float(area), _DIGITS)


def _roc(
    scores: NDArray[np.float64],
    counts: NDArray[np.int64],
    hits: NDArray[np.int64],
    last: NDArray[np.bool_],
) -> tuple[tuple[float, float, float], ...]:
    places = np.flatnonzero(last)
    kept = np.unique(np.linspace(0, len(places) - 1, min(ROC_POINTS, len(places))).round())
    positives = max(int(hits[-1]), 1)
    negatives = max(int(counts[-1] - hits[-1]), 1)
    return tuple(
        (
            round(float(scores[place]), _DIGITS),
            round(float((counts[place] - hits[place]) / negatives), _DIGITS),
            round(float(hits[place] / positives), _DIGITS),
        )
        for place in places[kept.astype(np.int64)]
    )


def _precision_at(threshold: float | None, best: Floats, right: NDArray[np.bool_]) -> float | None:
    if threshold is None or not (leaving := best >= threshold).any():
        return None
    return round(float(right[leaving].mean()), _DIGITS)
