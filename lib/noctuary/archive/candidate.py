"""One memory that may be archived, and why: the noun and its trace.

What belongs here: the facts of one candidate and how they read (RFC 914, phase 13, with memory_id
for drawer_id). What does not: how candidates are found (`scan`) and grouped (`consolidation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noctuary.archive.rules import ArchiveRules
from noctuary.graph.supersession.grades import CONFIDENCES

_DECIMALS = 6
"""Of scores in a trace: enough to recompute a verdict, short enough to read."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that meets every criterion.

    Attributes:
        position: In the snapshot.
        memory_id: Its id.
        content_hash: Of everything it says.
        created_at_us: UNDATED_US where unknown.
        user: Whose it is, or None.
        wing: Its wing, or None.
        session_id: Its conversation, or None.
        head_id: The memory at the end of its chain of successors.
        successor_id: The memory that replaces it directly.
        successor_hash: Content hash of that one.
        supersede_reason: How the night knows.
        confidence: 0 low, 1 medium, 2 high.
        ltp_score: In [0, 1], without decay.
        decayed_ltp: The score that was compared with the threshold: decayed where decay is on.
        idle_days: Days since the last retrieval, else since it was made; >= 0.
        was_recalled: Whether it was ever retrieved.
    """

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int
    user: str | None
    wing: str | None
    session_id: str | None
    head_id: str
    successor_id: str
    successor_hash: str
    supersede_reason: str
    confidence: int
    ltp_score: float
    decayed_ltp: float
    idle_days: float
    was_recalled: bool

    def trace(self, rules: ArchiveRules, consolidated_into: str | None) -> dict[str, Any]:
        """Return the full justification; ids and numbers, no text of a memory.

        Args:
            rules: What it was compared with.
            consolidated_into: Id of its group's summary; None where its successor stands alone.
        """
        return {
            "memory_id": self.memory_id,
            "action": "compact",
            "reason": self.reason(rules),
            "ltp_score": round(self.ltp_score, _DECIMALS),
            "decayed_ltp": round(self.decayed_ltp, _DECIMALS),
            "is_superseded": True,
            "superseded_by": self.successor_id,
            "supersede_reason": self.supersede_reason,
            "confidence": CONFIDENCES[self.confidence],
            "days_since_access": int(self.idle_days),
            "was_recalled": self.was_recalled,
            "consolidated_into": consolidated_into,
        }

    def reason(self, rules: ArchiveRules) -> str:
        """Return the justification in one line, numbers and limits beside each other."""
        decayed = f" (decayed from {self.ltp_score:.2f})" if rules.decay_lambda else ""
        days = int(self.idle_days)
        last = "last_accessed" if self.was_recalled else "never recalled, created"
        return (
            f"ltp={self.decayed_ltp:.2f} < {rules.compaction_threshold:g}{decayed}, "
            f"superseded_by={self.successor_id} ({self.supersede_reason}, "
            f"{CONFIDENCES[self.confidence]}), {last}={days} days ago >= "
            f"{rules.compaction_age_days}"
        )
