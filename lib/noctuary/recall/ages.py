"""Age of memories at the moment of a recall. Arithmetic only: not what age is worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.types import UNDATED_US

US_PER_SECOND = 1_000_000
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86_400.0


def is_dated(created_at_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which memories have a date, shape as given."""
    return created_at_us != UNDATED_US


def ages_s(created_at_us: NDArray[np.int64], now_us: int) -> NDArray[np.float64]:
    """Return ages in seconds, >= 0 and finite, shape as given.

    A memory without a date, or of a date after `now_us` (a clock ahead of ours), has age 0.

    Args:
        created_at_us: Microseconds since the epoch; UNDATED_US where unknown.
        now_us: The moment of the recall, in the same unit.
    """
    # Floats, because the difference of two int64 may not fit one.
    ages = (float(now_us) - created_at_us.astype(np.float64)) / US_PER_SECOND
    return np.where(is_dated(created_at_us), np.maximum(ages, 0.0), 0.0)
