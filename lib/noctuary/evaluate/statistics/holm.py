"""Holm's correction of p-values for many tests. What belongs here: this one correction."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted so that the chance of any false alarm stays below the level.

    The i-th smallest of m p-values (i from 1) is multiplied by m - i + 1, raised to the adjusted
    one before it and capped at 1 (Holm 1979). No independence is assumed.

    Args:
        p_values: One per test of the family, each in [0, 1]; may be empty.

    Returns:
        The adjusted values in the order given, each at least its raw value and at most 1.

    Raises:
        ValueError: If a value lies outside [0, 1] or is NaN.
    """
    wrong = [p for p in p_values if not 0.0 <= p <= 1.0]
    if wrong:
        raise ValueError(f"a p-value lies in [0, 1], got {len(wrong)} that do not: {wrong[:10]}")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for n_smaller, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - n_smaller) * p_values[place]))
        adjusted[place] = highest
    return adjusted
