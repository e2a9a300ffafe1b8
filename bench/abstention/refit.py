"""The shipped constants, fitted again without the conversation that is judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RIDGE = 1e-2
"""Keeps separable folds finite; on standardised features its pull is small."""

STEPS = 50
"""Of Newton's method, which needs about ten here."""


def fit(features: Floats, answerable: NDArray[np.bool_]) -> Floats:
    """Return the weights of a logistic regression, the intercept last, shape (f + 1,).

    Both classes weigh the same, however many there are of each.

    Args:
        features: Shape (n, f).
        answerable: Shape (n,), both kinds present.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    design = np.column_stack([(features - mean) / spread, np.ones(len(features))])
    share = np.where(answerable, 0.5 / answerable.sum(), 0.5 / (~answerable).sum())
    weight = share * len(features)
    penalty = RIDGE * np.append(np.ones(features.shape[1]), 0.0)
    found = np.zeros(design.shape[1])
    for _ in range(STEPS):
        chance = _logistic(design @ found)
        slope = design.T @ (weight * (chance - answerable)) + penalty * found
        bend = (design * (weight * chance * (1.0 - chance))[:, None]).T @ design + np.diag(penalty)
        found = found - np.linalg.solve(bend + 1e-9 * np.eye(len(found)), slope)
    weights = found[:-1] / spread
    return np.append(weights, found[-1] - float(weights @ mean))


def held_out(
    features: Floats, answerable: NDArray[np.bool_], groups: Sequence[str]
) -> tuple[Floats, Floats]:
    """Return every question's chance by a fit that never saw its group, and each fold's weights.

    Args:
        features: Shape (n, f).
        answerable: Shape (n,).
        groups: What must not be split, for example the conversation, length n.
    """
    of = np.array(groups)
    chances = np.zeros(len(features))
    folds: list[Floats] = []
    for group in sorted(set(groups)):
        inside = of == group
        weights = fit(features[~inside], answerable[~inside])
        folds.append(weights)
        chances[inside] = _logistic(features[inside] @ weights[:-1] + weights[-1])
    return chances, np.array(folds)


def _logistic(values: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-values))
