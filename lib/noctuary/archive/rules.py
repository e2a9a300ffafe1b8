"""What decides which memories may be archived, as plain numbers.

What belongs here: the rules and what they say about one supersession. What does not: merging
profiles (`noctuary.recall.profile`), reading rows (`snapshot_rows`), the scan (`scan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from noctuary.settings import CompactionSettings

LEAST_CONFIDENCE = 1
"""Least grade (`noctuary.graph.supersession.grades`) of a successor that was stated ("supersedes
#12", "X is now Y", a newer value). 0 would archive memories of which half the text may still hold,
2 none whose subject alone was named."""

LEAST_CONFIDENCE_OF_NEAR_DUPLICATES = 2
"""The same for successors that only look alike. Of 20 near duplicates that were looked at, 4 were
lookalikes (decision 0036): 1 would hide more of those, and what is archived is hidden unasked."""


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """What a profile and the settings say about archiving.

    Attributes:
        compaction_threshold: Score below which a memory may be archived, in [0, 1]; 0 archives
            nothing.
        compaction_age_days: Least days since the last access.
        max_boost: Upper bound of the LTP multiplier, >= 1; it sets the scale of the score.
        decay_lambda: Decay of the score per idle day, >= 0; 0 where decay is off.
        near_similarity: Least cosine of a near duplicate.
        near_age_gap_days: Least days between near duplicates.
        protected_tail_turns: Newest turns of each session that are never archived.
        group_size: Target members of a group, >= 1.
        density: Share of a group that its summary keeps, in [0, 1]; 0 for the summarizer's own.
        aggressive_density: The same for the second try.
        preserve_threshold: Least Q_align of a summary.
        batch_size: Superseded memories looked at in one batch, >= 1.
        max_scan_depth: Superseded memories looked at in all, 0 for every one.
    """

    compaction_threshold: float = 0.3
    compaction_age_days: int = 30
    max_boost: float = 2.0
    decay_lambda: float = 0.0
    near_similarity: float = 0.86
    near_age_gap_days: int = 7
    protected_tail_turns: int = 4
    group_size: int = 20
    density: float = 0.0
    aggressive_density: float = 0.0
    preserve_threshold: float = 0.65
    batch_size: int = 5_000
    max_scan_depth: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def is_sure(
        self, reason: str, confidence: int, similarity: float | None, age_gap_days: int
    ) -> bool:
        """Say whether a successor is sure enough for the older memory to be archived.

        Args:
            reason: One of `noctuary.graph.supersession.links.REASONS`.
            confidence: 0 low, 1 medium, 2 high.
            similarity: Cosine of the two, or None where none was needed.
            age_gap_days: Whole days between the two.
        """
        if reason != "near_duplicate":
            return confidence >= LEAST_CONFIDENCE
        return (
            confidence >= LEAST_CONFIDENCE_OF_NEAR_DUPLICATES
            and (similarity or 0.0) >= self.near_similarity
            and age_gap_days >= self.near_age_gap_days
        )


def archive_rules(flags: Mapping[str, Any], compaction: CompactionSettings) -> ArchiveRules:
    """Return what a profile's flags and the settings say.

    Args:
        flags: `RetrievalProfile.to_json()`.
        compaction: How turns are summarised: groups are summarised alike.
    """
    return ArchiveRules(
        compaction_threshold=flags["compaction_threshold"],
        compaction_age_days=flags["compaction_age_days"],
        max_boost=flags["ltp_max_boost"],
        decay_lambda=flags["decay_lambda"] if flags["decay_enabled"] else 0.0,
        near_similarity=flags["supersede_similarity_threshold"],
        near_age_gap_days=flags["supersede_min_age_gap_days"],
        protected_tail_turns=compaction.protected_tail_turns,
        group_size=compaction.cluster_size,
        density=compaction.density,
        aggressive_density=compaction.aggressive_density,
        preserve_threshold=compaction.preserve_threshold,
        batch_size=flags["batch_size"],
        max_scan_depth=flags["max_scan_depth"],
    )
