"""What each signal is worth on one set, and what abstaining by the shipped one costs and saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.abstention.questions import ANSWERABLE, UNANSWERABLE, UNANSWERED, Asked
from bench.abstention.refit import held_out
from bench.abstention.signals import ATTRIBUTION, SHIPPED, SHIPPED_WORDS, SUPPORT
from bench.constants.folds import fold_of
from noctuary.evaluate.abstain import MIN_ANSWERABLE, choose_threshold, judge_confidences
from noctuary.evaluate.statistics import interval_json

Floats = NDArray[np.float64]
Table = Mapping[str, Floats]
"""By signal, its value for every question, shape (n,)."""

DIGITS = 4
LOSSES = (0.01, 0.02, 0.05, 0.1)
"""Shares of the answerable recall that a threshold may cost; the shipped rule is the third."""

REFITS: Mapping[str, tuple[str, ...]] = {
    "support and attribution, refitted": (SUPPORT, ATTRIBUTION),
    "six features, refitted": (
        "cosine", "coverage", "known words", "coverage x cosine", "BM25", ATTRIBUTION,
    ),
}  # fmt: skip
"""Logistic regressions that are fitted without the wing that is judged."""


def judge_signals(asked: Sequence[Asked], table: Table) -> dict[str, Any]:
    """Return, by signal and kind of question without an answer, the AUROC and its interval."""
    kinds = np.array([one.kind for one in asked])
    return {
        name: {
            kind: _auroc(name, values[kinds == ANSWERABLE], values[kinds == kind])
            for kind in UNANSWERED
            if (kinds == kind).any()
        }
        for name, values in table.items()
    }


def judge_refits(asked: Sequence[Asked], table: Table) -> dict[str, Any]:
    """Return the AUROC of each of REFITS on unanswerable questions, by wings it has not seen.

    Empty where the set has no unanswerable question or no wings.
    """
    chosen = [i for i, one in enumerate(asked) if one.kind in (ANSWERABLE, UNANSWERABLE)]
    answerable = np.array([asked[i].kind == ANSWERABLE for i in chosen])
    wings = [asked[i].query.wing for i in chosen]
    if answerable.all() or None in wings:
        return {}
    found: dict[str, Any] = {}
    for name, signals in REFITS.items():
        features = np.column_stack([table[signal][chosen] for signal in signals])
        chances, folds = held_out(features, answerable, [str(wing) for wing in wings])
        judged = _auroc(name, chances[answerable], chances[~answerable])
        means = {
            s: round(float(w), DIGITS) for s, w in zip(signals, folds.mean(axis=0), strict=False)
        }
        found[name] = {UNANSWERABLE: judged, "weights": means}
    return found


def judge_thresholds(
    asked: Sequence[Asked], table: Table, recalls: Sequence[float]
) -> list[dict[str, Any]]:
    """Return what abstaining costs and saves, each threshold chosen without the fold it judges.

    Folds are wings where every question names one, else five by the question's id.

    Args:
        asked: All questions.
        table: All signals.
        recalls: Recall@10 of the answerable questions, in their order.
    """
    kinds = np.array([one.kind for one in asked])
    if (kinds == ANSWERABLE).sum() < MIN_ANSWERABLE:
        return []
    found = np.array(recalls)
    folds = _folds([one for one in asked if one.kind == ANSWERABLE])
    rows: list[dict[str, Any]] = []
    for signal in (SHIPPED, SHIPPED_WORDS):
        values = table[signal]
        known = values[kinds == ANSWERABLE]
        for loss in LOSSES:
            inside = choose_threshold(known, found, loss)
            kept = np.zeros(known.size, dtype=np.bool_)
            for fold in np.unique(folds):
                at = choose_threshold(known[folds != fold], found[folds != fold], loss)
                kept[folds == fold] = known[folds == fold] >= at
            rows.append({
                "signal": signal,
                "max_recall_loss": loss,
                "threshold": round(inside, DIGITS),
                "recall": round(float(found.mean()), DIGITS),
                "recall_kept": round(float((found * kept).mean()), DIGITS),
                "answerable_abstained": round(float(np.mean(~kept)), DIGITS),
                "abstained": {
                    kind: round(float(np.mean(values[kinds == kind] < inside)), DIGITS)
                    for kind in UNANSWERED if (kinds == kind).any()
                },
            })  # fmt: skip
    return rows


def _folds(asked: Sequence[Asked]) -> NDArray[np.int64]:
    wings = [one.query.wing for one in asked]
    if None in wings or len(set(wings)) < 2:
        return fold_of([one.query.query_id for one in asked])
    codes = {wing: code for code, wing in enumerate(sorted(set(map(str, wings))))}
    return np.array([codes[str(wing)] for wing in wings])


def _auroc(name: str, known: Floats, unknown: Floats) -> dict[str, Any]:
    judged = judge_confidences(name, "", known, unknown, np.ones(known.size, dtype=np.bool_))
    ends = {key: None if end is None else round(end, DIGITS)
            for key, end in interval_json(judged.interval).items()}  # fmt: skip
    return {"auroc": round(float(judged.auroc or 0.0), DIGITS), **ends, "n": int(unknown.size)}
