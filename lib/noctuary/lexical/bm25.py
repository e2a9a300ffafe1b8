"""The arithmetic of BM25: how rare a term is and how much its repeats count. Pure functions.

What belongs here: the two factors and their constants, for the night's postings and for texts that
are scored beside them. What does not: counting terms (`postings`), reading postings (`search`).

score(t, d) = idf(t) * saturation(t, d). S. Robertson and H. Zaragoza, The Probabilistic Relevance
Framework (2009), in Lucene's form (idf never negative, no constant k1 + 1 in the numerator).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

K1 = 0.9
"""Saturation of the term frequency: higher lets repeats count for more. 0.9 suits short texts."""
B = 0.4
"""Length normalisation in [0, 1]: higher favours short memories more."""


def idf(document_frequencies: NDArray[np.int64], n_memories: int) -> NDArray[np.float64]:
    """Return ln(1 + (N - df + 0.5) / (df + 0.5)), above 0, in the shape of the frequencies.

    Args:
        document_frequencies: df, in [0, N].
        n_memories: N.
    """
    return np.log1p((n_memories - document_frequencies + 0.5) / (document_frequencies + 0.5))


def saturation(
    frequencies: NDArray[np.integer | np.floating],
    lengths: NDArray[np.integer | np.floating],
    mean_length: float,
    k1: float = K1,
    b: float = B,
) -> NDArray[np.float64]:
    """Return tf / (tf + k1 * (1 - b + b * |d| / mean |d|)), in [0, 1); 0 where tf is 0.

    Args:
        frequencies: tf, >= 0.
        lengths: |d|, >= 0, same shape.
        mean_length: Above 0.
        k1: >= 0.
        b: In [0, 1].
    """
    norms = k1 * (1.0 - b + b * lengths / mean_length)
    # Without k1 nothing is left below the fraction where the term does not occur.
    present = frequencies > 0
    return np.divide(frequencies, frequencies + norms, out=np.zeros_like(norms), where=present)
