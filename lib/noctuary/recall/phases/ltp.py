"""Phase 1: what was recalled often lately ranks higher. The formula is in `noctuary.usage.ltp`."""

from __future__ import annotations

from noctuary.recall.phases.base import Candidates, PhaseContext, PhaseOutcome
from noctuary.recall.phases.multiply import multiplied
from noctuary.usage.ltp import ltp_multiplier


def ltp(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Multiply by `ltp_multiplier` of the retrievals inside the profile's window.

    Source: research/mempalace.md section 1, phase 1. A memory that was never recalled keeps its
    score.
    """
    profile = context.profile
    recent = context.lookups.usage_of(candidates.positions).recent
    factors = ltp_multiplier(recent, profile.ltp_max_boost)

    def reason_at(row: int) -> str:
        return f"recalls lately: {recent[row]} (factor {factors[row]:.3f})"

    return multiplied(candidates, factors, reason_at)
