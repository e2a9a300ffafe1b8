"""How sure it is that a near duplicate replaces the older memory. Standard library only.

Source: research/mempalace.md section 1, phase 8.
"""

from __future__ import annotations

LEAST_SIMILARITY = 0.86
"""Least cosine of a near duplicate. Lower finds more rewordings, and more lookalikes."""

LEAST_DAYS = 7
"""Least whole days between near duplicates. Fewer lets two notes of one week hide one another."""

HIGH = (0.93, 30)
"""Least cosine and least days between two memories of high confidence."""

MEDIUM = (0.86, 14)
"""The same for medium confidence; everything else is low."""

CONFIDENCES = ("low", "medium", "high")
"""Names of the confidences 0, 1 and 2."""

DAY_US = 86_400_000_000
"""Microseconds of a day."""


def confidence_of(similarity: float, age_gap_days: int) -> int:
    """Return 2 (high), 1 (medium) or 0 (low); never falls as either grows."""
    if similarity >= HIGH[0] and age_gap_days >= HIGH[1]:
        return 2
    return int(similarity >= MEDIUM[0] and age_gap_days >= MEDIUM[1])
