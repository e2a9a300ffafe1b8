"""Whether rows are unit vectors, looked at block by block.

What belongs here: counting. What does not: what is done about it (the checks).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.vectors.cascade import release_pages

BLOCK_ROWS = 16_384
"""Rows looked at once: 50 MB as float64 at 384 dimensions."""


def count_bad_rows(vectors: NDArray[np.floating[Any]], tolerance: float) -> int:
    """Return how many rows hold NaN or infinity or have a length other than 1.

    Args:
        vectors: Shape (n, d); may be memory-mapped, and is not kept in memory then.
        tolerance: How far a length may be from 1, above 0.
    """
    bad = 0
    for start in range(0, len(vectors), BLOCK_ROWS):
        norms = np.linalg.norm(vectors[start : start + BLOCK_ROWS].astype(np.float64), axis=1)
        # Not "above": NaN must not pass.
        bad += int((~(np.abs(norms - 1.0) <= tolerance)).sum())
        release_pages(vectors)
    return bad
