"""One reason to think that a memory replaces another, before it is decided which one counts."""

from __future__ import annotations

from typing import NamedTuple

from noctuary.graph.model import Evidence

REASONS = ("explicit", "is_now", "newer_value", "near_duplicate")
"""Sources of a supersession, strongest first."""


class Link(NamedTuple):
    """A candidate for a supersession; both memories are of one user and of wings that agree.

    Attributes:
        older: Position of the memory that is out of date.
        newer: Position of its successor.
        reason: One of REASONS.
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine of the two, or None where none was needed.
        concept_id: The subject on which both speak, or "".
        evidence: Where it is said.
    """

    older: int
    newer: int
    reason: str
    confidence: int
    similarity: float | None
    concept_id: str
    evidence: Evidence
