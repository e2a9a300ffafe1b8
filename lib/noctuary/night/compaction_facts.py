"""What the stages of compaction say of their work, counted while it streams past.

What belongs here: counts for stamps and reports, equal for equal inputs. What does not: the work.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

from noctuary.compact.attempts import Attempt
from noctuary.compact.clusters import SessionClusters
from noctuary.compact.summary import Summary

_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
_DECIMALS = 4


class ClusterTally:
    """Counts sessions as they are clustered; every turn is in exactly one of the counts."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()

    def add(self, found: SessionClusters) -> None:
        """Count one session."""
        split = found.split
        sizes = [len(cluster.member_ids) for cluster in found.clusters]
        self._sizes.update(sizes)
        self._counts.update(
            sessions=1,
            clusters=len(sizes),
            clustered_turns=len(split.eligible),
            protected_turns=split.protected,
            bundled_turns=split.bundled,
            future_turns=split.ahead,
            giant_turns=split.giant,
        )

    @property
    def clusters(self) -> int:
        """Return how many clusters there are."""
        return self._sizes.total()

    def to_facts(self) -> dict[str, Any]:
        """Return the stage's facts; `bundled_turns` are among the protected."""
        count = self._counts
        raw = count["protected_turns"] + count["future_turns"] + count["giant_turns"]
        sizes = sorted(self._sizes.elements())
        return {
            "sessions": count["sessions"],
            "turns": count["clustered_turns"] + raw,
            "clustered_turns": count["clustered_turns"],
            "protected_turns": count["protected_turns"],
            "bundled_turns": count["bundled_turns"],
            "future_turns": count["future_turns"],
            "giant_turns": count["giant_turns"],
            "trivial_clusters": self._sizes[1],
            "cluster_turns": quantiles(sizes),
        }


class SummaryTally:
    """Counts summaries and rejected candidates as they are written."""

    def __init__(self) -> None:
        self._status: Counter[str] = Counter()
        self._method: Counter[str] = Counter()
        self._fallback: Counter[str] = Counter()
        self._outcome: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._align = array("d")
        self._cover = array("d")

    def add(self, summaries: Sequence[Summary], attempts: Sequence[Attempt]) -> None:
        """Count one batch."""
        self._outcome.update(attempt.outcome.value for attempt in attempts)
        for summary in summaries:
            self._status[summary.status] += 1
            if summary.fallback:
                self._fallback[summary.fallback] += 1
            if summary.report is not None:
                self._align.append(summary.report.align)
                self._cover.append(summary.report.cover)
            if summary.status == "accepted":
                self._accept(summary)

    def to_facts(self) -> dict[str, Any]:
        """Return the stage's facts: tokens and facts are those of accepted summaries."""
        sums = self._sums
        before, after = sums["source_tokens"], sums["summary_tokens"]
        return {
            "by_status": _sorted(self._status),
            "by_method": _sorted(self._method),
            "by_fallback": _sorted(self._fallback),
            "attempts_by_outcome": _sorted(self._outcome),
            "summarised_turns": sums["turns"],
            "source_tokens": before,
            "summary_tokens": after,
            "tokens_saved_share": round(1.0 - after / before, _DECIMALS) if before else None,
            "q_align": quantiles(sorted(self._align)),
            "q_cover": quantiles(sorted(self._cover)),
            "facts_kept": sums["facts_kept"],
            "facts_total": sums["facts_total"],
            "facts_kept_share": (
                round(sums["facts_kept"] / sums["facts_total"], _DECIMALS)
                if sums["facts_total"]
                else None
            ),
        }

    def _accept(self, summary: Summary) -> None:
        self._method[summary.method] += 1
        self._sums.update(
            turns=len(summary.source_ids),
            source_tokens=summary.source_tokens,
            summary_tokens=summary.summary_tokens,
            facts_kept=summary.facts.kept if summary.facts else 0,
            facts_total=summary.facts.total if summary.facts else 0,
        )


def quantiles(ascending: Sequence[float]) -> dict[str, float]:
    """Return min, p10, median, p90 and max by nearest rank, rounded; empty for no values.

    Args:
        ascending: Sorted values.
    """
    if not ascending:
        return {}
    last = len(ascending) - 1
    return {
        name: round(ascending[round(last * share)], _DECIMALS) for name, share in _QUANTILES.items()
    }


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
