"""Paired permutation test of a mean difference.

What belongs here: p-values from flipped signs. What does not: correction for many tests (holm), the
size of the difference (bootstrap).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.statistics.bootstrap import DEFAULT_DRAWS, DEFAULT_SEED

_CHUNK_CELLS = 2_000_000
"""Cells of the flip matrix held at once (float64, 16 MB): larger gains no speed."""

_TIE = 1e-12
"""Relative to the sum of absolute differences: sums this close are the same sum in another order,
so they count as at least as extreme. Too small would miss ties, too large only raises p."""


def _chunks(total: int, n: int) -> Iterator[tuple[int, int]]:
    rows = max(1, _CHUNK_CELLS // n)
    for start in range(0, total, rows):
        yield start, min(start + rows, total)


def _enumerated_flips(n: int) -> Iterator[NDArray[np.float64]]:
    """Yield all 2^n ways to flip n signs, the unflipped one among them; 1.0 marks a flip."""
    for start, stop in _chunks(2**n, n):
        codes = np.arange(start, stop, dtype=np.int64)
        yield (codes[:, None] >> np.arange(n) & 1).astype(np.float64)


def _drawn_flips(n: int, draws: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield `draws` random ways to flip n signs, one bit of the generator per sign."""
    rng = np.random.default_rng(seed)
    # Whole 32-bit words per row: the generator hands out no less, so chunks do not change the rows.
    row_bytes = 4 * -(-n // 32)
    for start, stop in _chunks(draws, n):
        raw = np.frombuffer(rng.bytes((stop - start) * row_bytes), dtype=np.uint8)
        bits = np.unpackbits(raw.reshape(stop - start, row_bytes), axis=1, count=n)
        yield bits.astype(np.float64)


def _count_extreme(
    differences: NDArray[np.float64], flips: Iterator[NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Count the flips whose column sums are at least as far from zero as the observed ones."""
    total = differences.sum(axis=0)
    bound = np.abs(total) - _TIE * np.abs(differences).sum(axis=0)
    count = np.zeros(differences.shape[1], dtype=np.int64)
    for chunk in flips:
        sums = total - 2.0 * (chunk @ differences)
        count += np.count_nonzero(np.abs(sums) >= bound, axis=0)
    return count


def _check(differences: NDArray[np.float64], draws: int) -> None:
    if differences.ndim != 2:
        raise ValueError(
            f"differences must be queries by columns (n, m), got shape {differences.shape}"
        )
    if differences.shape[0] == 0:
        raise ValueError("a test over no queries is undefined")
    if not np.isfinite(differences).all():
        raise ValueError("a difference is not finite; a metric of a query is always a number")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")


def permutation_p_values(
    differences: NDArray[np.float64], draws: int = DEFAULT_DRAWS, seed: int = DEFAULT_SEED
) -> NDArray[np.float64]:
    """Return two-sided p-values of the column means when either arm could have been the other.

    Under the null hypothesis the two arms are exchangeable per query, so every sign of a difference
    is as likely as its opposite (Fisher 1935; Smucker, Allan and Carterette 2007 for retrieval).
    The p-value is the share of sign flips whose mean is at least as far from zero as the observed
    one: over all 2^n flips where these are no more than `draws` (n counts the queries that differ
    in some column, the others have no sign to flip), else (count + 1) / (draws + 1) over random
    ones (Phipson and Smyth 2010: never zero, valid at any number of draws).

    Args:
        differences: Shape (n, m): ours minus baseline, n queries by m columns (metrics or arms).
            All columns share the flips.
        draws: Random flips; more steadies small p-values, whose floor is 1 / (draws + 1).
        seed: Seed of numpy's default generator.

    Returns:
        Shape (m,), each in (0, 1]; 1 where nothing differs.

    Raises:
        ValueError: If there is no query, a value is not finite, the shape is not (n, m) or `draws`
            is below 1.
    """
    _check(differences, draws)
    moving = differences[differences.any(axis=1)]
    n = moving.shape[0]
    if n == 0:
        return np.ones(differences.shape[1], dtype=np.float64)
    if 2**n <= draws:
        return _count_extreme(moving, _enumerated_flips(n)) / 2**n
    return (_count_extreme(moving, _drawn_flips(n, draws, seed)) + 1) / (draws + 1)
