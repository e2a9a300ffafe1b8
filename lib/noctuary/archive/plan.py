"""The plan of adaptive compaction: what would be archived, why, and what would stand for it.

What belongs here: one pass from a snapshot and the counts of use to a plan, and how a plan reads.
What does not: finding the files of a store (`planning`), carrying a plan out (`writing`). Making a
plan writes nothing.

A plan is a function of the snapshot, the counts of use, the rules and what is archived already.
Idle days are counted to the moment of the night's count and not to the clock, so that the same
plan, with the same id, comes out until a night changes something.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from noctuary.archive.candidate import Candidate
from noctuary.archive.consolidation import Encoding, Group, consolidate
from noctuary.archive.reading import ArchiveReader
from noctuary.archive.rules import ArchiveRules
from noctuary.archive.scan import CountsOf, Scan, find_candidates
from noctuary.archive.snapshot_rows import SnapshotRows
from noctuary.compact.summary import Summary
from noctuary.hashing import hash_json
from noctuary.progress import SILENT, Progress

PLAN_ID_HEX_CHARS = 16
"""64 bits among the plans of one store."""

_PLAN_VERSION = "1"
"""Part of every id; raised when equal contents would mean something else."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be archived.

    Attributes:
        plan_id: Of what would be archived and what would stand for it; independent of scores.
        snapshot_id: The snapshot it was made from.
        as_of_us: The moment that idle days are counted to.
        rules: What decided.
        candidates: Every memory that meets the criteria, by position.
        groups: The same memories in groups, by first position.
        scan: What was looked at.
        timings_ms: ltp_scan_ms, supersede_check_ms, consolidation_plan_ms and total_ms.
        warning: What the plan could not know, or None.
    """

    plan_id: str
    snapshot_id: str
    as_of_us: int
    rules: ArchiveRules
    candidates: tuple[Candidate, ...]
    groups: tuple[Group, ...]
    scan: Scan
    timings_ms: Mapping[str, float]
    warning: str | None = None

    @property
    def archived(self) -> tuple[tuple[Group, Candidate], ...]:
        """Return what would be archived, each with its group."""
        return tuple((g, c) for g in self.groups if g.is_archived for c in g.members)

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Return the summaries that would be created."""
        return tuple(g.summary for g in self.groups if g.is_archived and g.summary is not None)

    def hook_context(self) -> dict[str, Any]:
        """Return what `post_compaction_plan` is told; ids and numbers, no text of a memory."""
        return {
            "candidates": self.traces(),
            "groups": [_group_json(group) for group in self.groups],
            "would_archive": len(self.archived),
            "would_create_summaries": len(self.summaries),
        }

    def traces(self) -> list[dict[str, Any]]:
        """Return the justification of every candidate; "keep" where its group is not archived."""
        group_of = {c.memory_id: group for group in self.groups for c in group.members}
        return [_trace(candidate, group_of[candidate.memory_id], self.rules)
                for candidate in self.candidates]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the plan without any text; RFC 914's names, memory_id for drawer_id."""
        return {
            "plan_id": self.plan_id,
            "snapshot_id": self.snapshot_id,
            "as_of_us": self.as_of_us,
            "rules": self.rules.to_json(),
            **self.hook_context(),
            "summary_count": len(self.summaries),
            "superseded": self.scan.total,
            "not_candidates": dict(sorted(self.scan.left.items())),
            "phase_timing_ms": {"adaptive_compaction": dict(self.timings_ms)},
            "paginated_scoring": self.scan.timings.report(),
            "pagination_state": self.scan.pagination_state(),
            "warning": self.warning,
        }


def make_plan(
    rows: SnapshotRows,
    counts_of: CountsOf,
    archive: ArchiveReader,
    rules: ArchiveRules,
    *,
    snapshot_id: str,
    as_of_us: int,
    encoding: Encoding | None,
    progress: Progress = SILENT,
) -> Plan:
    """Find the candidates, group them, make and judge their summaries; write nothing.

    Args:
        rows: The snapshot.
        counts_of: What is known about use.
        archive: What is archived already: that is no candidate.
        rules: What decides.
        snapshot_id: Of the snapshot.
        as_of_us: The moment that idle days are counted to.
        encoding: How summaries are judged; None where the store has no vectors.
        progress: Told after each batch.
    """
    started = time.perf_counter()
    candidates, scan = find_candidates(
        rows,
        counts_of,
        rules,
        as_of_us=as_of_us,
        archived=archive.hidden_in(rows.content_hashes),
        progress=progress,
    )
    chosen = time.perf_counter()
    groups = consolidate(candidates, rows.contents, encoding, rules, progress)
    ended = time.perf_counter()
    timings = {
        "ltp_scan_ms": scan.ltp_scan_ms,
        "supersede_check_ms": scan.supersede_check_ms,
        "consolidation_plan_ms": (ended - chosen) * 1000,
        "total_ms": (ended - started) * 1000,
    }
    return Plan(
        plan_id=_plan_id(groups),
        snapshot_id=snapshot_id,
        as_of_us=as_of_us,
        rules=rules,
        candidates=tuple(candidates),
        groups=tuple(groups),
        scan=scan,
        timings_ms={name: round(ms, 2) for name, ms in timings.items()},
        warning=_warning(archive, scan),
    )


def empty_plan(rules: ArchiveRules, *, snapshot_id: str, as_of_us: int, warning: str) -> Plan:
    """Return a plan that archives nothing, and says why."""
    names = ("ltp_scan_ms", "supersede_check_ms", "consolidation_plan_ms", "total_ms")
    nothing: dict[str, float] = {name: 0.0 for name in names}
    return Plan(_plan_id([]), snapshot_id, as_of_us, rules, (), (), Scan(), nothing, warning)


def _plan_id(groups: list[Group]) -> str:
    entries = sorted(
        (c.memory_id, c.content_hash, c.successor_id, c.successor_hash, g.summary_id or "")
        for g in groups
        if g.is_archived
        for c in g.members
    )
    return hash_json([_PLAN_VERSION, entries])[:PLAN_ID_HEX_CHARS]


def _warning(archive: ArchiveReader, scan: Scan) -> str | None:
    if archive.warning is not None:
        return archive.warning
    if not scan.not_scanned:
        return None
    return (
        f"max_scan_depth ended the scan after {scan.scanned:,} of {scan.total:,} superseded "
        f"memories: {scan.not_scanned:,} were not looked at; the plan of another day begins "
        "elsewhere"
    )


def _trace(candidate: Candidate, group: Group, rules: ArchiveRules) -> dict[str, Any]:
    trace = candidate.trace(rules, group.summary_id)
    if group.is_archived:
        return trace
    return {**trace, "action": "keep", "reason": f"{trace['reason']}; kept: {group.reason}"}


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "head_id": group.head_id,
        "memory_ids": [candidate.memory_id for candidate in group.members],
        "summary_id": group.summary_id,
        "would_archive": group.is_archived,
        "reason": group.reason,
    }
