"""Finding candidates: every superseded memory is looked at, batch by batch.

What belongs here: the three criteria of RFC 914, phase 13 (low LTP score, superseded, long idle),
all of which must hold, and what protects a memory in spite of them. What does not: grouping and
summaries (`consolidation`).

The RFC scans every memory and then asks which are superseded. Here the superseded ones are read
first, because all three must hold: the result is the same, and the cost follows what was replaced
and not the size of the store.

`max_scan_depth` bounds how many are looked at. A plan writes nothing, so it cannot remember where
it stopped: the starting point follows from the day of the count, so that every one has its turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noctuary.archive.candidate import Candidate
from noctuary.archive.rules import ArchiveRules
from noctuary.archive.snapshot_rows import SnapshotRows, SupersededRow
from noctuary.compact.eligibility import split_session
from noctuary.progress import SILENT, Progress
from noctuary.types import UNDATED_US
from noctuary.usage.ltp import decayed, idle_days, last_accessed, ltp_multiplier, ltp_score
from noctuary.usage.reading import Counts
from noctuary.work.batches import BatchTimings

PINNED_TAG = "pinned"
"""What authors tag with this is never archived; phase 6 of recall lifts the same memories."""

CountsOf = Callable[[Sequence[str]], Counts]
"""Memory ids to recent retrievals, days and last retrieval: `UsageReader.counts`."""

_DAY_US = 86_400_000_000

TASK = "compaction candidates"


@dataclass(slots=True)
class Scan:
    """What was looked at and what became of it.

    Attributes:
        total: Superseded memories of the snapshot.
        first: The first one that was looked at; not 0 only with max_scan_depth.
        scanned: How many were looked at.
        left: Why others are no candidates, by reason: unsure, used, recent, pinned, tail, archived.
        ltp_scan_ms: Time for counts and scores.
        supersede_check_ms: Time for reading successors and judging how sure they are.
        timings: The batches.
    """

    total: int = 0
    first: int = 0
    scanned: int = 0
    left: Counter[str] = field(default_factory=Counter[str])
    ltp_scan_ms: float = 0.0
    supersede_check_ms: float = 0.0
    timings: BatchTimings = field(default_factory=BatchTimings)

    @property
    def not_scanned(self) -> int:
        """Superseded memories that max_scan_depth left out."""
        return self.total - self.scanned

    def pagination_state(self) -> dict[str, Any]:
        """Return the RFC's object for a replay packet."""
        return {
            "total": self.total,
            "batches_processed": len(self.timings.rows),
            "last_offset": (self.first + self.scanned) % max(self.total, 1),
            "scan_depth_reached": self.not_scanned > 0,
        }


def find_candidates(
    rows: SnapshotRows,
    counts_of: CountsOf,
    rules: ArchiveRules,
    *,
    as_of_us: int,
    archived: Collection[str] = (),
    progress: Progress = SILENT,
) -> tuple[list[Candidate], Scan]:
    """Return the memories that meet every criterion, by position, and what was looked at.

    Args:
        rows: The snapshot.
        counts_of: What is known about use.
        rules: What is compared with what.
        as_of_us: The moment that idle days are counted to.
        archived: Ids that are archived already.
        progress: Told after each batch.
    """
    scan = Scan(total=rows.count_superseded())
    found: list[Candidate] = []
    for first, stop in _ranges(scan, rules, as_of_us):
        for batch in _timed_batches(rows, first, stop, rules, scan):
            started = time.perf_counter()
            sure = [row for row in batch if _is_open(row, rules, archived, scan)]
            checked = time.perf_counter()
            found += _scored(sure, counts_of(_ids(sure)), rules, as_of_us, scan)
            scan.supersede_check_ms += (checked - started) * 1000
            scan.ltp_scan_ms += (time.perf_counter() - checked) * 1000
            progress.update(TASK, scan.scanned, min(scan.total, _depth(scan, rules)))
    found = _outside_tails(found, rows, rules, as_of_us, scan)
    return sorted(found, key=lambda candidate: candidate.position), scan


def scan_start(total: int, depth: int, as_of_us: int) -> int:
    """Return where a bounded scan begins: each day where the one before would have ended.

    Args:
        total: Superseded memories.
        depth: How many are looked at; 0 or at least `total` for all, which begins at 0.
        as_of_us: A moment of the day in question.
    """
    return 0 if not 0 < depth < total else as_of_us // _DAY_US * depth % total


def _depth(scan: Scan, rules: ArchiveRules) -> int:
    return rules.max_scan_depth or scan.total


def _ranges(scan: Scan, rules: ArchiveRules, as_of_us: int) -> Iterator[tuple[int, int]]:
    """Yield what to look at: all, or so many from the day's starting point, around the end."""
    depth = min(_depth(scan, rules), scan.total)
    scan.first = scan_start(scan.total, depth, as_of_us)
    stop = min(scan.first + depth, scan.total)
    yield scan.first, stop
    yield 0, depth - (stop - scan.first)


def _timed_batches(
    rows: SnapshotRows, first: int, stop: int, rules: ArchiveRules, scan: Scan
) -> Iterator[list[SupersededRow]]:
    batches = rows.superseded(first, stop, rules.batch_size)
    offset = first
    while True:
        started = time.perf_counter()
        batch = next(batches, None)
        scan.supersede_check_ms += (time.perf_counter() - started) * 1000
        if batch is None:
            return
        scan.scanned += len(batch)
        yield batch
        scan.timings.add(offset, len(batch), (time.perf_counter() - started) * 1000)
        offset += len(batch)


def _is_open(
    row: SupersededRow, rules: ArchiveRules, archived: Collection[str], scan: Scan
) -> bool:
    """Say whether a memory's use is worth looking up, and count why not."""
    reason = None
    if row.memory_id in archived:
        reason = "archived"
    elif not rules.is_sure(row.reason, row.confidence, row.similarity, row.age_gap_days):
        reason = "unsure"
    elif any(tag.strip().casefold() == PINNED_TAG for tag in row.tags.split(",")):
        reason = "pinned"
    if reason is not None:
        scan.left[reason] += 1
    return reason is None


def _ids(rows: Sequence[SupersededRow]) -> list[str]:
    return [row.memory_id for row in rows]


def _scored(
    rows: Sequence[SupersededRow], counts: Counts, rules: ArchiveRules, as_of_us: int, scan: Scan
) -> Iterator[Candidate]:
    recent, _, last_us = counts
    created = np.array([row.created_at_us for row in rows], dtype=np.int64)
    score = ltp_score(ltp_multiplier(recent, rules.max_boost), rules.max_boost)
    # A moment without a date gives 0 days: what has no date is not known to be old.
    idle = idle_days(last_accessed(last_us, created), as_of_us)
    compared = decayed(score, idle, rules.decay_lambda)
    for i, row in enumerate(rows):
        if not compared[i] < rules.compaction_threshold:
            scan.left["used"] += 1
        elif not idle[i] >= rules.compaction_age_days:
            scan.left["recent"] += 1
        else:
            yield Candidate(
                position=row.position,
                memory_id=row.memory_id,
                content_hash=row.content_hash,
                created_at_us=row.created_at_us,
                user=row.user,
                wing=row.wing,
                session_id=row.session_id if row.is_turn else None,
                head_id=row.head_id,
                successor_id=row.successor_id,
                successor_hash=row.successor_hash,
                supersede_reason=row.reason,
                confidence=row.confidence,
                ltp_score=float(score[i]),
                decayed_ltp=float(compared[i]),
                idle_days=float(idle[i]),
                was_recalled=bool(last_us[i] != UNDATED_US),
            )


def _outside_tails(
    candidates: Sequence[Candidate],
    rows: SnapshotRows,
    rules: ArchiveRules,
    as_of_us: int,
    scan: Scan,
) -> list[Candidate]:
    """Leave out turns that compaction would leave raw: the tail of their session, giants, ..."""
    sessions = {c.session_id for c in candidates if c.session_id is not None}
    eligible = {
        turn.memory_id
        for turns in rows.sessions(sessions).values()
        for turn in split_session(
            turns, protected_tail=rules.protected_tail_turns, now_us=as_of_us
        ).eligible
    }
    kept = [c for c in candidates if c.session_id is None or c.memory_id in eligible]
    scan.left["tail"] += len(candidates) - len(kept)
    scan.left += Counter()  # drops reasons that never occurred
    return kept
