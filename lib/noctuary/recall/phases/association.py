"""Phase 2: what was recalled together with the other candidates before ranks higher."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import Candidates, PhaseContext, PhaseOutcome
from noctuary.recall.phases.multiply import multiplied


def association_factor(
    co_retrievals: NDArray[np.integer], coefficient: float, max_boost: float
) -> NDArray[np.float64]:
    """Return clamp(1 + c ln(1 + n), 1, max_boost); never falls as n grows.

    Source: research/mempalace.md section 1, phase 2 (c 0.15, maximum 1.5 in effect).

    Args:
        co_retrievals: Common retrievals with other candidates, summed; below 0 counts as 0.
        coefficient: c, finite, >= 0.
        max_boost: Finite, >= 1.

    Returns:
        In [1, max_boost], shape of `co_retrievals`.
    """
    counts = np.maximum(co_retrievals, 0).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.minimum(1.0 + coefficient * np.log1p(counts), max_boost)


def association(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `association_factor` of the common retrievals with the other candidates.

    The others are all candidates of this recall; the reference, which has no larger pool, takes the
    hits.
    """
    profile = context.profile
    together = context.lookups.co_retrievals(candidates.positions)
    factors = association_factor(
        together, profile.association_coefficient, profile.association_max_boost
    )

    def reason_at(row: int) -> str:
        return f"recalls with other candidates: {together[row]} (factor {factors[row]:.3f})"

    return multiplied(candidates, factors, reason_at)
