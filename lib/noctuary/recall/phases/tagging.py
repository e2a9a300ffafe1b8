"""Phase 1: what was filed in the last hours ranks higher (synaptic tagging)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.ages import SECONDS_PER_HOUR, ages_s, is_dated
from noctuary.recall.phases.base import Candidates, PhaseContext, PhaseOutcome
from noctuary.recall.phases.multiply import multiplied


def tagging_factor(
    age_hours: NDArray[np.float64], window_hours: float, max_boost: float
) -> NDArray[np.float64]:
    """Return max_boost at age 0, falling linearly to 1 at the window's end and 1 from there on.

    Source: research/mempalace.md section 1, tagging: 1.5 to 1 over 24 hours.

    Args:
        age_hours: Hours since filing, any shape; below 0 counts as 0.
        window_hours: > 0.
        max_boost: Finite, >= 1.

    Returns:
        In [1, max_boost], shape of `age_hours`; never rises with age.
    """
    with np.errstate(over="ignore"):
        elapsed = np.clip(age_hours / window_hours, 0.0, 1.0)
    return np.clip(1.0 + (max_boost - 1.0) * (1.0 - elapsed), 1.0, max_boost)


def tagging(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `tagging_factor` of the time since filing.

    The moment of filing is the memory's date; undated memories keep their score.
    """
    profile = context.profile
    created = context.lookups.created_at_us(candidates.positions)
    age_hours = ages_s(created, context.now_us) / SECONDS_PER_HOUR
    boosts = tagging_factor(age_hours, profile.tagging_window_hours, profile.tagging_max_boost)
    factors = np.where(is_dated(created), boosts, 1.0)

    def reason_at(row: int) -> str:
        window = f"window {profile.tagging_window_hours:g} h"
        return f"filed {age_hours[row]:.1f} h ago, {window} (factor {factors[row]:.3f})"

    return multiplied(candidates, factors, reason_at)
