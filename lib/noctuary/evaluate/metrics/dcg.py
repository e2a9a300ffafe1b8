"""Discounted cumulative gain: the sum that both nDCG variants normalise.

What belongs here: the discount and the quotient. What does not: what a result gains.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, log2


def dcg(gains: Sequence[float]) -> float:
    """Return the sum over ranks r (from 1) of gain / log2(r + 1).

    Järvelin and Kekäläinen 2002 with the discount of trec_eval, which starts at the second rank.

    Args:
        gains: Gain per rank, best first; finite.

    Returns:
        The sum, rounded once: zeros between or behind the gains change no digit of it.
    """
    return fsum(gain / log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain)


def normalised_dcg(gains: Sequence[float], ideal: Sequence[float]) -> float:
    """Return the DCG of `gains` as a share of the DCG of `ideal`.

    Args:
        gains: Gain per rank of a ranking; not negative.
        ideal: The highest gains that the query offers, descending; their sum above 0.

    Returns:
        A value in [0, 1].
    """
    # The minimum takes off what rounding of the terms may leave above 1.
    return min(1.0, dcg(gains) / dcg(ideal))
