"""The extractive summarizer: a cluster's most central turns, verbatim and in order.

What belongs here: choosing turns by geometry. What does not: encoding, the gate, which cut is tried
first (escalation). The unit is the whole turn, so a speaker's name stays with what was said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.attempts import Outcome
from noctuary.compact.summarizers.base import AGGRESSIVE_SUFFIX, Draft, Refusal, Request, Summarizer
from noctuary.hashing import JsonValue
from noctuary.text.token_estimate import estimate_tokens

PRIMARY_DENSITY = 0.4
AGGRESSIVE_DENSITY = 0.25
# Share of a cluster's turns that a summary keeps. Higher preserves more, lower saves more tokens.
# The aggressive one is tried only where the primary did not make the text smaller. The reference's
# defaults.

METHOD_PRIMARY = "extractive"
METHOD_AGGRESSIVE = METHOD_PRIMARY + AGGRESSIVE_SUFFIX

_DECIMALS = 9
# Cosines and products are rounded here so that equal turns tie exactly whatever the BLAS kernel
# did.


@dataclass(frozen=True, slots=True)
class ExtractiveSummarizer:
    """Keeps the turns closest to the centroid; needs no model beside the vectors it is given."""

    @property
    def name(self) -> str:
        """Return "extractive"."""
        return METHOD_PRIMARY

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the version of the cut."""
        return {"extractive": 1}

    @property
    def uses_context(self) -> bool:
        """Return False: a cut depends on its cluster alone."""
        return False

    @property
    def densities(self) -> tuple[float, float]:
        """Return the reference's densities."""
        return PRIMARY_DENSITY, AGGRESSIVE_DENSITY

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Return the central turns of each request, joined by a space.

        Raises:
            ValueError: Texts and vectors of a request differ in number.
        """
        method = METHOD_AGGRESSIVE if aggressive else METHOD_PRIMARY
        return [_cut(request, density, method) for request in requests]


EXTRACTIVE: Summarizer = ExtractiveSummarizer()


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


def _cut(request: Request, density: float, method: str) -> Draft | Refusal:
    texts, vectors = request.texts, request.vectors
    if len(texts) != len(vectors):
        raise ValueError(f"{len(texts)} turns came with {len(vectors)} vectors; pass one per turn")
    kept = central_turns(vectors, density)
    text = " ".join(texts[i] for i in kept)
    if not text.strip():
        return Refusal(Outcome.UNUSABLE, "the central turns hold no text")
    return Draft(text=text, method=method, kept=tuple(kept))
