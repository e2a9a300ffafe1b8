"""What every summarizer takes and gives: requests, drafts and refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.attempts import Outcome
from noctuary.hashing import JsonValue

AGGRESSIVE_SUFFIX = "-aggressive"
"""Ends the method of a draft of the second, denser try."""


@dataclass(frozen=True, slots=True)
class Request:
    """One cluster that wants a summary.

    Attributes:
        cluster_id: Which one.
        texts: Its turns as stored, chronological, at least two.
        vectors: Their vectors, shape (n, d).
        user: Whose they are, or None.
        context: Earlier summaries of the session, oldest first; only for summarizers that say
            `uses_context`.
    """

    cluster_id: str
    texts: Sequence[str]
    vectors: NDArray[np.floating[Any]] = field(repr=False)
    user: str | None = None
    context: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that may become a summary.

    Attributes:
        text: Never empty.
        method: How it was made, e.g. "extractive", "llm-aggressive".
        raw_confidence: The decoder's own, exp(mean log p) in [0, 1]; None where it is not known or
            where nothing was decoded.
        kept: Of an extractive draft, the indices of the turns it consists of, ascending.
    """

    text: str
    method: str
    raw_confidence: float | None = None
    kept: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no draft: the reason for machines, and in words that quote no turn."""

    outcome: Outcome
    detail: str


class Summarizer(Protocol):
    """Writes drafts; never raises for what a model or an endpoint does."""

    @property
    def name(self) -> str:
        """The first part of a draft's method."""
        ...

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """What decides its text beside turns and density: model, prompt, versions."""
        ...

    @property
    def uses_context(self) -> bool:
        """Whether earlier summaries of the session change its text."""
        ...

    @property
    def densities(self) -> tuple[float, float]:
        """The shares that its primary and its aggressive cut keep unless told otherwise."""
        ...

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Return one draft or refusal per request, in their order.

        Args:
            requests: Clusters, independent of each other.
            density: Share of the sources that a draft should keep, in (0, 1].
            aggressive: Whether this is the second, denser try; only changes the draft's `method`.
        """
        ...
