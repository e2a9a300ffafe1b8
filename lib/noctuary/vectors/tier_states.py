"""What the tiers are found to be: states after a sync, matches with the memories, hits of a search.

What belongs here: nouns only. What does not: how they come about (noctuary.vectors.tiers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["created", "rebuilt", "synced", "unchanged"]


@dataclass(frozen=True, slots=True)
class TierState:
    """What a sync did to one tier, and its state after it.

    Attributes:
        name: Table name.
        dim: Dimensions of its vectors.
        rows: Rows after the sync.
        action: "created", "rebuilt" (dropped and written again), "synced" or "unchanged".
        inserted: Rows added; all of them where it was created or rebuilt.
        updated: Rows rewritten because their content changed.
        deleted: Rows removed because their memory is gone.
        version: LanceDB version after the sync; an unchanged tier keeps its own.
        index: "exact" (no index: every row is scanned), "IVF_SQ" or "IVF_RQ".
        unindexed_rows: Rows that an existing index does not cover; 0 where the scan is exact.
        reason: Why it was created or rebuilt, and why it has no index.
    """

    name: str
    dim: int
    rows: int
    action: Action
    inserted: int
    updated: int
    deleted: int
    version: int
    index: str
    unindexed_rows: int
    reason: str


@dataclass(frozen=True, slots=True)
class TierReport:
    """What a sync did: one state per tier, shortest first, and the stale tables it removed."""

    tiers: tuple[TierState, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TierHit:
    """One memory found in a tier; `cosine` is in [-1, 1] up to float32 rounding."""

    memory_id: str
    cosine: float


@dataclass(frozen=True, slots=True)
class TierMatch:
    """Whether a tier holds each memory exactly once; a table that cannot be read has 0 rows.

    `orphans`: rows without a memory; `missing`: memories without a row; `duplicates`: further rows.
    """

    name: str
    rows: int
    orphans: int
    missing: int
    duplicates: int

    @property
    def ok(self) -> bool:
        """True where rows and memories are the same set."""
        return not (self.orphans or self.missing or self.duplicates)
