"""Phase 1: what is old ranks lower, down to a floor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.ages import SECONDS_PER_DAY, ages_s
from noctuary.recall.phases.base import Candidates, PhaseContext, PhaseOutcome
from noctuary.recall.phases.multiply import multiplied


def decay_factor(
    age_days: NDArray[np.float64], half_life_days: float, floor: float
) -> NDArray[np.float64]:
    """Return floor + (1 - floor) * 0.5 ** (age / half-life); never rises with age.

    Source: research/mempalace.md section 1, which has no floor (floor 0): what is a few half-lives
    old then vanishes however well it answers. DESIGN section 4 asks for one.

    Args:
        age_days: >= 0, any shape.
        half_life_days: > 0; age at which the part above the floor has halved.
        floor: In [0, 1]; share of the score that age never takes.

    Returns:
        In [floor, 1], shape of `age_days`; exactly 1 at age 0.
    """
    with np.errstate(over="ignore"):
        half_lives = age_days / half_life_days
    return floor + (1.0 - floor) * np.exp2(-half_lives)


def time_decay(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `decay_factor` of the age; undated memories keep their score.

    So do those with a date after the recall's moment: both have age 0.
    """
    profile = context.profile
    created = context.lookups.created_at_us(candidates.positions)
    age_days = ages_s(created, context.now_us) / SECONDS_PER_DAY
    factors = decay_factor(age_days, profile.half_life_days, profile.decay_floor)

    def reason_at(row: int) -> str:
        return (
            f"{age_days[row]:.1f} days old, half-life {profile.half_life_days:g} days, "
            f"floor {profile.decay_floor:g} (factor {factors[row]:.3f})"
        )

    return multiplied(candidates, factors, reason_at)
