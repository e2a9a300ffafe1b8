"""Long-term potentiation: what is recalled often counts more. The formulas, vectorised.

What belongs here: numbers in, numbers out. What does not: where the counts come from (`reading`)
and which memories are scored when (`scoring`).

Two faces of one number (DESIGN section 4): the multiplier in [1, max_boost] for ranking, the score
in [0, 1] for thresholds of compaction. A threshold of 0.3 has no meaning on a scale that starts
at 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.types import UNDATED_US

LTP_GAIN = 0.3
"""Weight of ln(1 + n) (MemPalace #441): with it 27 retrievals in the window double a score; more
lets a habit win sooner, less needs more retrievals for the same lift."""

_DAY_US = 86_400_000_000


def ltp_multiplier(retrievals: NDArray[np.int64], max_boost: float) -> NDArray[np.float64]:
    """Return clamp(1 + 0.3 * ln(1 + n), 1, max_boost) per memory.

    Args:
        retrievals: n >= 0 inside the window.
        max_boost: Upper bound, >= 1.
    """
    return np.clip(1.0 + LTP_GAIN * np.log1p(np.maximum(retrievals, 0)), 1.0, max_boost)


def ltp_score(multiplier: NDArray[np.float64], max_boost: float) -> NDArray[np.float64]:
    """Return the multiplier on a scale of [0, 1]: 0 for a memory never recalled in the window.

    Where the bound leaves no room (max_boost is 1), use says nothing and every score is 0.
    """
    room = max_boost - 1.0
    if room <= 0.0:
        return np.zeros_like(multiplier)
    return np.clip((multiplier - 1.0) / room, 0.0, 1.0)


def decayed(
    score: NDArray[np.float64], idle_days: NDArray[np.float64], decay_lambda: float
) -> NDArray[np.float64]:
    """Return score * exp(-lambda * days since the last access) (RFC 914, phase 13).

    Args:
        score: In [0, 1].
        idle_days: >= 0, see `idle_days`.
        decay_lambda: Per day, >= 0; 0 leaves the score alone.
    """
    return score * np.exp(-decay_lambda * idle_days)


def last_accessed(
    last_us: NDArray[np.int64], created_at_us: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return when each memory was last of use: its last retrieval, else its creation.

    UNDATED_US where neither is known.
    """
    return np.where(last_us == UNDATED_US, created_at_us, last_us)


def idle_days(accessed_us: NDArray[np.int64], now_us: int) -> NDArray[np.float64]:
    """Return days since the last access, >= 0.

    A moment that is unknown or in the future gives 0: a memory without a date is not known to be
    old, as in the phase of time decay.
    """
    known = np.where(accessed_us == UNDATED_US, now_us, accessed_us)
    return np.maximum((now_us - known) / _DAY_US, 0.0)
