"""After the boosts: bring the scores back into [0, 1] without touching their order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import Candidates, PhaseContext, PhaseOutcome, unchanged


def scaled_to_unit(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide by the largest score if it exceeds 1, else return the scores as they are.

    Args:
        scores: Finite, >= 0, any length.

    Returns:
        In [0, 1], same shape, same order; ratios between scores stay.
    """
    best = float(scores.max(initial=0.0))
    return scores / best if best > 1.0 else scores


def scale(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Apply `scaled_to_unit`; all candidates lose the same share of their score."""
    del context
    scaled = scaled_to_unit(candidates.scores)
    if scaled is candidates.scores:
        return unchanged(candidates)
    best = float(candidates.scores.max())

    def reason_of(position: int) -> str:
        del position
        return f"boosts lifted the best score to {best:.3f}: all are divided by it"

    return PhaseOutcome(candidates.rescored(scaled), reason_of)
