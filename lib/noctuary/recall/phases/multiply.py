"""What every phase does that multiplies scores: one factor per candidate, and why.

What belongs here: applying factors. What does not: any formula that makes one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import Candidates, PhaseOutcome, unchanged


def multiplied(
    candidates: Candidates, factors: NDArray[np.float64], reason_at: Callable[[int], str]
) -> PhaseOutcome:
    """Return the outcome of multiplying every candidate's score.

    Args:
        candidates: As the phase got them.
        factors: Finite and >= 0, aligned with them; factors of 1 throughout change nothing.
        reason_at: Row among `candidates` -> why; only asked for what somebody wants to know.
    """
    if not (factors != 1.0).any():
        return unchanged(candidates)
    positions = candidates.positions

    def reason_of(position: int) -> str:
        return reason_at(int(np.flatnonzero(positions == position)[0]))

    return PhaseOutcome(candidates.rescored(candidates.scores * factors), reason_of)
