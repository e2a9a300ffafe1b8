"""What an assembly asks of a store: memories, how similar texts are, tokens, the time.

What belongs here: the protocol and its shapes. What does not: a real store (`store_search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from noctuary.context.counting import TokenCounter
from noctuary.context.profile import ContextProfile
from noctuary.recall.result import RecallWarning


class FoundMemory(NamedTuple):
    """A memory that came back for the query.

    Attributes:
        memory: `RecalledMemory.to_json()`.
        similarity: Cosine to the query; None where keywords take its place.
        score: S_final with the memory's use and quality, in [0, 1]; None where keywords do.
    """

    memory: Mapping[str, Any]
    similarity: float | None
    score: float | None


class Found(NamedTuple):
    """The memories of a query, at most k1, and what was missing on the way."""

    memories: tuple[FoundMemory, ...] = ()
    warnings: tuple[RecallWarning, ...] = ()


class Search(Protocol):
    """A store as an assembly sees it; nothing here raises for the state of a store."""

    @property
    def counter(self) -> TokenCounter:
        """The one counter of this context."""
        ...

    @property
    def knows_cosines(self) -> bool:
        """Whether texts can be compared by meaning; else the share of keywords is all there is."""
        ...

    def now_us(self) -> int:
        """Return the moment that ages are taken at, microseconds since the epoch."""
        ...

    def find_memories(self, query: str, profile: ContextProfile) -> Found:
        """Return the memories of the first pass, in any order; none where recall abstains."""
        ...

    def similarities(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of each text to the query; None where there was no time to read it."""
        ...
