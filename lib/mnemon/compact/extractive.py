"""The extractive summarizer: a cluster's most central turns, verbatim and in order.

What belongs here: choosing turns by geometry and the escalation to a denser cut. What does not:
encoding, the gate, storage. The unit is the whole turn, so a speaker's name stays with what was
said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon.text.token_estimate import estimate_tokens

PRIMARY_DENSITY = 0.4
AGGRESSIVE_DENSITY = 0.25
# Share of a cluster's turns that a summary keeps. Higher preserves more, lower saves more tokens.
# The aggressive one is tried only where the primary did not make the text smaller. The reference's
# defaults.

METHOD_PRIMARY = "extractive"
METHOD_AGGRESSIVE = "extractive-aggressive"

_DECIMALS = 9
# Cosines and products are rounded here so that equal turns tie exactly whatever the BLAS kernel
# did.


@dataclass(frozen=True, slots=True)
class Extract:
    """A candidate summary that is strictly smaller than its sources.

    Attributes:
        text: The kept turns joined by a space.
        kept: Indices into the cluster, ascending.
        method: METHOD_PRIMARY or METHOD_AGGRESSIVE.
        summary_tokens: Estimated tokens of `text`.
    """

    text: str
    kept: tuple[int, ...]
    method: str
    summary_tokens: int


def source_tokens(contents: Sequence[str]) -> int:
    """Return the estimated tokens of the whole cluster, joined the way a summary is."""
    return estimate_tokens(" ".join(contents))


def central_turns(vectors: NDArray[np.floating[Any]], density: float) -> list[int]:
    """Return the ceil(n * density) turns closest to the centroid, in their original order.

    Args:
        vectors: Shape (n, d), one row per turn in chronological order.
        density: In (0, 1].

    Ties go to the earlier turn. Source: research/peers.md 1.7.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if not len(rows):
        return []
    keep = min(len(rows), max(1, math.ceil(round(len(rows) * density, _DECIMALS))))
    centroid = rows.mean(axis=0)
    norms = np.sqrt((rows * rows).sum(axis=1))
    # The centroid's own norm scales every cosine alike, so it cannot change the order.
    length = float(np.sqrt((centroid * centroid).sum())) or 1.0
    closeness = np.divide(
        rows @ (centroid / length), norms, out=np.zeros_like(norms), where=norms > 0
    )
    order = np.argsort(-np.round(closeness, _DECIMALS), kind="stable")
    return sorted(int(i) for i in order[:keep])


def extract(
    contents: Sequence[str],
    vectors: NDArray[np.floating[Any]],
    *,
    density: float = PRIMARY_DENSITY,
    aggressive_density: float = AGGRESSIVE_DENSITY,
) -> Extract | None:
    """Return the first strictly smaller cut: primary, then aggressive, else None.

    Args:
        contents: The turns, chronological.
        vectors: Their vectors, shape (n, d).
        density: Share kept by the primary cut.
        aggressive_density: Share kept by the second cut.

    Raises:
        ValueError: Contents and vectors differ in number.
    """
    if len(contents) != len(vectors):
        raise ValueError(
            f"{len(contents)} turns came with {len(vectors)} vectors; pass one row per turn"
        )
    before = source_tokens(contents)
    for method, share in ((METHOD_PRIMARY, density), (METHOD_AGGRESSIVE, aggressive_density)):
        kept = central_turns(vectors, share)
        text = " ".join(contents[i] for i in kept)
        after = estimate_tokens(text)
        if 0 < after < before:
            return Extract(text=text, kept=tuple(kept), method=method, summary_tokens=after)
    return None
