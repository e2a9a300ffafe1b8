"""What phases look up, answered from plain Python values: a small store without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Positions, Query, Scope, Scores
from noctuary.recall.reader import SummaryView
from noctuary.recall.result import RecallWarning
from noctuary.recall.rows import Successor
from noctuary.recall.search import Candidates, PastQuery, PhaseOutcome, Search
from noctuary.usage.reader import Usage

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US


@dataclass(frozen=True)
class Stored:
    """One memory of the small store; its position is its place in `MemoryLookups.memories`."""

    content: str = "a memory"
    created_at_us: int = UNDATED_US
    category: str = ""
    tags: tuple[str, ...] = ()
    wing: str | None = None
    room: str | None = None
    user: str | None = None
    session_id: str | None = None
    is_turn: bool = False
    vector: tuple[float, ...] | None = None


@dataclass(frozen=True)
class StoredSummary:
    """One accepted summary; its position is the store's count plus its place in the list."""

    text: str
    sources: tuple[int, ...]
    confidence: float = 1.0


@dataclass(frozen=True)
class Used:
    """How often one memory was recalled."""

    recent: int
    days: int = 1
    last_us: int = NOW_US


@dataclass
class MemoryLookups:
    """What a `Search` answers its phases, over lists and dicts; `context_of` asks it a query.

    Attributes:
        memories: The store, by position.
        summaries: Its summaries.
        used: Usage by position; whoever is missing was never recalled.
        together: Co-retrieval counts by unordered pair of positions.
        queries: The query log, in any order.
        answers: What the base ranking finds for a text: (position, score), best first.
        successors: What the night found to replace a memory, by its position.
        cross_encoder: What a cross-encoder gives each position; empty where there is none.
    """

    memories: Sequence[Stored]
    summaries: Sequence[StoredSummary] = ()
    used: Mapping[int, Used] = field(default_factory=dict[int, Used])
    together: Mapping[frozenset[int], int] = field(default_factory=dict[frozenset[int], int])
    queries: Sequence[PastQuery] = ()
    answers: Mapping[str, Sequence[tuple[int, float]]] = field(
        default_factory=dict[str, Sequence[tuple[int, float]]]
    )
    successors: Mapping[int, Successor] = field(default_factory=dict[int, Successor])
    cross_encoder: Mapping[int, float] = field(default_factory=dict[int, float])

    query: Query = field(init=False)
    now_us: int = field(init=False)

    @property
    def reader(self) -> MemoryLookups:
        return self

    @property
    def count(self) -> int:
        return len(self.memories)

    @property
    def profile(self) -> RetrievalProfile:
        return self.query.profile

    @property
    def k(self) -> int:
        return self.query.k

    def created_at(self, positions: Positions) -> NDArray[np.int64]:
        moments = [max(m.created_at_us for m in self._memories_of(int(p))) for p in positions]
        return np.array(moments, dtype=np.int64)

    def wings_of(self, positions: Positions) -> list[str | None]:
        return [self._memories_of(int(p))[0].wing for p in positions]

    def vectors_at(self, positions: Positions) -> NDArray[np.float32] | None:
        vectors = [m.vector for m in self.memories if m.vector is not None]
        if not vectors or len(vectors) < self.count:
            return None
        rows = np.zeros((len(positions), len(vectors[0])), dtype=np.float32)
        for row, position in enumerate(positions):
            mean = np.mean([m.vector or () for m in self._memories_of(int(position))], axis=0)
            norm = float(np.linalg.norm(mean))
            rows[row] = mean / norm if norm > 0.0 else mean
        return rows

    def describe(self, positions: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        return {int(p): self._row(int(p)) for p in positions}

    def usage_of(self, positions: Positions) -> Usage:
        nothing = Used(recent=0, days=0, last_us=UNDATED_US)
        found = [self.used.get(int(p), nothing) for p in positions]
        return Usage(
            recent=np.array([u.recent for u in found], dtype=np.int64),
            days=np.array([u.days for u in found], dtype=np.int64),
            last_us=np.array([u.last_us for u in found], dtype=np.int64),
        )

    def most_used(self, limit: int) -> Positions:
        used = [p for p, u in self.used.items() if u.recent > 0]
        used.sort(key=lambda p: (-self.used[p].recent, p))
        return np.array(used[:limit], dtype=np.int64)

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        asked = [int(p) for p in positions]
        sums = [
            sum(self.together.get(frozenset((p, q)), 0) for q in asked if q != p) for p in asked
        ]
        return np.array(sums, dtype=np.int64)

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        views = [
            SummaryView(self.count + place, s.sources, s.confidence)
            for place, s in enumerate(self.summaries)
        ]
        return {int(p): view for p in positions for view in views if int(p) in view.sources}

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        found: dict[int, Successor] = {}
        for here in positions.tolist():
            while here in self.successors and here not in found:
                found[here] = self.successors[here]
                here = found[here].newer
        return found

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        recent = [q for q in self.queries if q.asked_us >= since_us]
        return sorted(recent, key=lambda q: -q.similarity)[:limit]

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        if not self.cross_encoder:
            return RecallWarning("reranker_unavailable", "this store has no cross-encoder")
        return np.array([self.cross_encoder[int(p)] for p in positions], dtype=np.float64)

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        found = list(self.answers.get(text, ()))[:depth]
        return (
            np.array([p for p, _ in found], dtype=np.int64),
            np.array([s for _, s in found], dtype=np.float64),
        )

    def _memories_of(self, position: int) -> list[Stored]:
        """Return the memory at a position, or the turns of the summary there."""
        if position < self.count:
            return [self.memories[position]]
        return [self.memories[p] for p in self.summaries[position - self.count].sources]

    def _row(self, position: int) -> Mapping[str, Any]:
        first = self._memories_of(position)[0]
        summary = None if position < self.count else self.summaries[position - self.count]
        return {
            "memory_id": str(position) if summary is None else f"summary-{position - self.count}",
            "content": first.content if summary is None else summary.text,
            "category": first.category,
            "tags": first.tags if summary is None else (),
            "wing": first.wing,
            "room": first.room,
            "user": first.user,
            "session_id": first.session_id,
            "is_turn": summary is None and first.is_turn,
        }


def candidates_of(*scored: tuple[int, float]) -> Candidates:
    """Return candidates of (position, score) pairs, sorted as the ranking has them."""
    ordered = sorted(scored, key=lambda pair: -pair[1])
    return Candidates(
        np.array([position for position, _ in ordered], dtype=np.int64),
        np.array([score for _, score in ordered], dtype=np.float64),
        np.zeros(len(ordered), dtype=np.bool_),
    )


def context_of(
    lookups: MemoryLookups,
    profile: RetrievalProfile | None = None,
    *,
    query: str = "a question",
    k: int = 10,
    now_us: int = NOW_US,
    user: str | None = None,
    session_id: str | None = None,
) -> Search:
    """Return one recall over the small store, as its phases see it."""
    search, scope = copy(lookups), Scope(user=user)
    search.now_us = now_us
    search.query = Query(
        query, k, profile or RetrievalProfile(), "test", scope, "relevance", session_id, False
    )
    return cast("Search", search)


def scores_of(candidates: Candidates) -> dict[int, float]:
    """Return score by position."""
    return dict(zip(candidates.positions.tolist(), candidates.scores.tolist(), strict=True))


def reason_of(outcome: PhaseOutcome, position: int) -> str:
    """Return why a phase moved the candidate at a position."""
    assert outcome.reason_of is not None
    return outcome.reason_of(position)
