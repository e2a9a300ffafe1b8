"""How a cost grows with a store: exponents of measured sizes, and what they say of larger ones."""

from __future__ import annotations

import math
from collections.abc import Sequence


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """Return b of value = a * size^b by least squares on logarithms; 1 is in proportion.

    Args:
        sizes: At least two that are positive and distinct, or the result is None.
        values: As many; those that are not positive are left out with their size.
    """
    points = [
        (math.log(size), math.log(value))
        for size, value in zip(sizes, values, strict=True)
        if size > 0 and value > 0
    ]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def extrapolate(size: int, value: float, slope: float, wanted: int) -> float:
    """Return the value at another size, from one measured value and the exponent.

    Args:
        size: The measured one, positive.
        value: What was measured there.
        slope: As `exponent` returns it.
        wanted: The other size, positive.
    """
    return value * (wanted / size) ** slope
