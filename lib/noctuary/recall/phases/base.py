"""What every phase takes and gives: candidates, events, drops, and what it may look up.

What belongs here: the types. What does not: any formula, any file, any clock. Most are named
tuples: every fresh process makes these classes anew, and a frozen dataclass costs it seven times
as much.

A phase is a pure function (Candidates, PhaseContext) -> PhaseOutcome. Whatever it wants to know
beyond the candidates it asks of the context's `Lookups`; whatever that answers is the same in a
replay, so the same candidates and lookups give the same outcome to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallWarning
from noctuary.values import dataclass

Positions = NDArray[np.int64]
Scores = NDArray[np.float64]

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Candidates(NamedTuple):
    """Memories under consideration, best first; arrays of one length m.

    Attributes:
        positions: int64, distinct. Below the snapshot's count: a memory. From the count on:
            summary number (position - count), see `Lookups.summary_of`.
        scores: float64 >= 0, the ranking key so far, descending; equal scores keep the order that
            they have here. In [0, 1], except between a boost and the phase "scale", which brings
            what exceeds 1 back.
        expanded: bool, found by a further question of query expansion only.
        relevance: Scores as they were before "mmr", for "cross_wing_balancing", which selects anew
            from them; None before the one and after the other.
    """

    positions: Positions
    scores: Scores
    expanded: NDArray[np.bool_]
    relevance: Scores | None = None

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self.positions.size)

    def rescored(self, scores: Scores) -> Candidates:
        """Return the same memories in the order of new scores; ties keep today's order."""
        order = np.argsort(-scores, kind="stable")
        return self.at(order)._replace(scores=scores[order])

    def keep(self, kept: NDArray[np.bool_]) -> Candidates:
        """Return those where `kept` is true, in the same order."""
        return self.at(np.flatnonzero(kept))

    def at(self, places: NDArray[np.int64]) -> Candidates:
        """Return those at the places, in the order of the places."""
        return Candidates(
            self.positions[places],
            self.scores[places],
            self.expanded[places],
            None if self.relevance is None else self.relevance[places],
        )


class ScoreEvent(NamedTuple):
    """One phase changed one memory's score.

    Attributes:
        phase: Name of the phase, a key of `BREAKDOWN_KEYS`.
        position: The memory.
        delta: Score after minus score before; a memory's deltas sum to its final score.
        reason: Why, in words for a person.
    """

    phase: str
    position: int
    delta: float
    reason: str


class Dropped(NamedTuple):
    """One phase removed one memory.

    Attributes:
        phase: Name of the phase.
        position: The memory.
        reason: Why, in words for a person; other memories are named by their position as {123},
            which whoever prints it replaces by their ids.
        score: Its score when it was dropped.
        facts: Further fields of the RFC's shape, for example {"wing_saturation": 0.8}.
    """

    phase: str
    position: int
    reason: str
    score: float
    facts: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class PhaseOutcome:
    """What a phase made of the candidates.

    Attributes:
        candidates: What goes on to the next phase.
        reason_of: Position -> why its score changed; asked only for positions whose score did, and
            only if somebody wants to know. None where the phase changes no score.
        dropped: What it removed; always complete, phases drop few.
        notes: Facts of the phase as a whole for the pipeline trace, JSON values only.
        annotations: Position -> fields to show with that memory, for example {"superseded_by": 7};
            values that are positions are given as `PositionRef`.
        warnings: Degradations on the way.
    """

    candidates: Candidates
    reason_of: Callable[[int], str] | None = None
    dropped: tuple[Dropped, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    annotations: Mapping[int, Mapping[str, Any]] = field(
        default_factory=dict[int, Mapping[str, Any]]
    )
    warnings: tuple[RecallWarning, ...] = ()


class PositionRef(NamedTuple):
    """A memory inside an annotation or a fact: shown as its public id."""

    position: int


class Usage(NamedTuple):
    """How often memories were recalled; arrays of one length, aligned with what was asked.

    Attributes:
        recent: int64, retrievals inside the LTP window; 0 for a memory never recalled.
        days: int64, distinct days on which it was recalled, over all time.
        last_us: int64, last retrieval in microseconds; UNDATED_US for none.
    """

    recent: NDArray[np.int64]
    days: NDArray[np.int64]
    last_us: NDArray[np.int64]


class SummaryView(NamedTuple):
    """An accepted summary.

    Attributes:
        position: Its place among the candidates, from the snapshot's count on.
        sources: Positions of the turns that it was made of.
        confidence: In [0, 1].
    """

    position: int
    sources: tuple[int, ...]
    confidence: float


class Successor(NamedTuple):
    """What the night found to replace a memory.

    Attributes:
        newer: Position of the direct successor, which may have one itself.
        reason: "explicit", "is_now", "newer_value" or "near_duplicate".
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine of the two, or None where none was needed.
        age_gap_days: Whole days between the two, 0 where a date is missing.
        evidence: Position of the memory that says so.
    """

    newer: int
    reason: str
    confidence: int
    similarity: float | None
    age_gap_days: int
    evidence: int


class PastQuery(NamedTuple):
    """A query asked before.

    Attributes:
        text: What was asked.
        asked_us: When.
        similarity: Cosine to today's query, in [-1, 1].
        positions: What it found, best first; memories that are gone are left out.
    """

    text: str
    asked_us: int
    similarity: float
    positions: tuple[int, ...]


class Lookups(Protocol):
    """Everything that a phase may ask beyond the candidates.

    The snapshot's part never changes; usage and past queries are recorded for a replay. Positions
    may be those of summaries unless it says otherwise.
    """

    @property
    def count(self) -> int:
        """Memories in the snapshot; summaries have positions from here on."""
        ...

    def created_at_us(self, positions: Positions) -> NDArray[np.int64]:
        """Return creation times, UNDATED_US where unknown; a summary has its latest turn's."""
        ...

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        ...

    def wing_counts(self) -> Mapping[str, int]:
        """Return the memories per wing that the recall's scope allows."""
        ...

    def vectors_of(self, positions: Positions) -> NDArray[np.float32] | None:
        """Return unit rows (m, d), or None without vectors; a summary has its own."""
        ...

    def rows_of(self, positions: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        """Return the rows by position, as mappings.

        Keys: memory_id, content, category, tags (tuple), wing, room, user, session_id, is_turn. A
        summary has its id, its text as content, and no tags.
        """
        ...

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the profile's window; zeros where nothing is known."""
        ...

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories of the window, most first."""
        ...

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with any of the others."""
        ...

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each memory that is a source of one, by position."""
        ...

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return what replaces the positions, and these successors in turn, by older position.

        A successor that the recall may not see, or that came after its `as_of`, replaces nothing.
        """
        ...

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries of other wording with their similarity, most similar first."""
        ...

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        ...

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Ask the base ranking (legs, fusion, graph, prior) another question in the same scope."""
        ...


class PhaseContext(NamedTuple):
    """One recall as its phases see it.

    Attributes:
        query: As asked.
        k: How many memories were asked for.
        profile: How to rank.
        now_us: The moment of the recall: `as_of`, else the clock.
        user: Whose recall it is, or None.
        session_id: The active conversation, or None.
        lookups: What may be looked up.
    """

    query: str
    k: int
    profile: RetrievalProfile
    now_us: int
    user: str | None
    session_id: str | None
    lookups: Lookups


Phase = Callable[[Candidates, PhaseContext], PhaseOutcome]

BREAKDOWN_KEYS: Mapping[str, str] = {
    "lexical": "lexical_match",
    "dense": "cosine_similarity",
    "scorer": "scorer",
    "graph": "graph_arrival",
    "graph_scale": "graph_scale",
    "exact_match": "exact_match_bonus",
    "exact_match_scale": "exact_match_scale",
    "summary_quality": "summary_quality",
    "importance": "importance_prior",
    "rerank": "rerank",
    "ltp": "ltp_boost",
    "time_decay": "time_decay",
    "tagging": "tagging_boost",
    "association": "association_boost",
    "query_expansion": "query_expansion",
    "supersede": "supersede_penalty",
    "consolidation": "consolidation",
    "pinned": "pinned_boost",
    "scale": "scale",
    "mmr": "mmr_penalty",
    "cross_wing_balancing": "wing_diversity_penalty",
    "sort_by": "sort_by",
}
"""What each phase's sum is called in a score breakdown (the RFC's names where it has one)."""


def unchanged(candidates: Candidates) -> PhaseOutcome:
    """Return the outcome of a phase that had nothing to do."""
    return PhaseOutcome(candidates)
