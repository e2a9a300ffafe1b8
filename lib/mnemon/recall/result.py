"""What recall returns: memories, the legs that found them, warnings, timings. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

MemoryId = int | str


@dataclass(frozen=True, slots=True)
class RecallWarning:
    """A degradation that the caller may act on.

    Attributes:
        code: Stable and machine-readable, for example "no_snapshot".
        message: What was found and what to do.
    """

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return {"code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class LegHit:
    """What one leg said about a memory: 1-based rank and the leg's own score."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class GraphHit:
    """How the graph reached a memory: the score that arrived, and over which edge.

    Attributes:
        score: What was added before normalisation, >= 0.
        seed_id: The memory that the walk came from.
        relation: The relation walked.
        concept: The concept that is the edge's evidence, or None for structural edges.
    """

    score: float
    seed_id: MemoryId
    relation: str
    concept: str | None


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """One memory with why it is here.

    Attributes:
        id: The source's own id, in the source's own type.
        final_score: The ranking key, in [0, 1].
        relevance: The fused score before the importance prior and before any other sort order, in
            [0, 1].
    """

    id: MemoryId
    content: str
    category: str
    tags: tuple[str, ...]
    importance: float
    created_at: datetime | None
    wing: str | None
    room: str | None
    session_id: str | None
    user: str | None
    final_score: float
    relevance: float
    lexical: LegHit | None = None
    dense: LegHit | None = None
    graph: GraphHit | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values; dates as ISO-8601."""
        legs = {
            name: {key: getattr(hit, key) for key in hit.__slots__}
            for name, hit in (
                ("lexical", self.lexical),
                ("dense", self.dense),
                ("graph", self.graph),
            )
            if hit is not None
        }
        return {
            "id": self.id,
            "content": self.content,
            "category": self.category,
            "tags": list(self.tags),
            "importance": self.importance,
            "created_at": self.created_at.isoformat() if self.created_at else None,
            "wing": self.wing,
            "room": self.room,
            "session_id": self.session_id,
            "user": self.user,
            "final_score": self.final_score,
            "relevance": self.relevance,
            "legs": legs,
        }


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The answer to one query; always returned, whatever went wrong.

    Attributes:
        memories: Best first, at most k.
        warnings: Every degradation on the way.
        timings_ms: Wall time by step.
        snapshot_id: The one snapshot that the answer comes from, or None.
        store: The store directory that was asked.
        profile: The profile in force, as plain values.
    """

    query: str
    memories: tuple[RecalledMemory, ...] = ()
    warnings: tuple[RecallWarning, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)
    snapshot_id: str | None = None
    store: str | None = None
    profile: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "query": self.query,
            "memories": [m.to_json() for m in self.memories],
            "warnings": [w.to_json() for w in self.warnings],
            "timings_ms": self.timings_ms,
            "snapshot_id": self.snapshot_id,
            "store": self.store,
            "profile": self.profile,
        }
