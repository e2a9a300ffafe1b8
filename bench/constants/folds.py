"""Cross-validation: a setting is chosen on some queries and judged on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text

FOLDS = 5

Scores = NDArray[np.float64]
"""Shape (settings, queries): the mean of R@5, R@10 and nDCG@10 of each."""


@dataclass(frozen=True, slots=True)
class Validated:
    """What a family's choice is worth.

    Attributes:
        chosen: Index of the setting that is best on all queries.
        chosen_by_fold: Index chosen without each fold.
        shipped: Mean over sets of the shipped setting.
        held_out: Mean over sets where every query is scored by the setting chosen without it.
        in_sample: Mean over sets of the setting chosen on all queries.
    """

    chosen: int
    chosen_by_fold: tuple[int, ...]
    shipped: float
    held_out: float
    in_sample: float


def fold_of(query_ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the fold of every query, by a hash of its id."""
    return np.array([int(hash_text(query_id)[:8], 16) % FOLDS for query_id in query_ids])


def cross_validate(
    scores: Mapping[str, Scores], folds: Mapping[str, NDArray[np.int64]]
) -> Validated:
    """Choose a setting, by the mean over sets of the mean over queries.

    Args:
        scores: By set; row 0 is the shipped setting.
        folds: By set, the fold of every query.
    """
    held: dict[str, Scores] = {name: np.zeros(values.shape[1]) for name, values in scores.items()}
    chosen: list[int] = []
    for fold in range(FOLDS):
        seen = {name: values[:, folds[name] != fold] for name, values in scores.items()}
        best = int(np.argmax(_over_sets(seen)))
        chosen.append(best)
        for name, values in scores.items():
            held[name][folds[name] == fold] = values[best, folds[name] == fold]
    overall = _over_sets(scores)
    best = int(np.argmax(overall))
    held_out = float(np.mean([values.mean() for values in held.values()]))
    return Validated(best, tuple(chosen), float(overall[0]), held_out, float(overall[best]))


def _over_sets(scores: Mapping[str, Scores]) -> NDArray[np.float64]:
    return np.mean([values.mean(axis=1) for values in scores.values()], axis=0)
