"""Which memories may be archived, and what each is judged by."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from noctuary.compact.clusters import SessionTurn, split_session
from noctuary.core.settings import CompactionSettings
from noctuary.core.sqlite import connect_immutable
from noctuary.core.types import SILENT, UNDATED_US, Progress
from noctuary.graph.successors import CONFIDENCES
from noctuary.text.marks import ends_as_question, find_speaker
from noctuary.usage.reader import (
    Counts,
    decayed,
    idle_days,
    last_accessed,
    ltp_multiplier,
    ltp_score,
)
from noctuary.work.stage import BatchTimings

# What decides which memories may be archived, as plain numbers.


LEAST_CONFIDENCE = 1
"""Least grade (`noctuary.graph.successors`) of a successor that was stated ("supersedes
#12", "X is now Y", a newer value). 0 would archive memories of which half the text may still hold,
2 none whose subject alone was named."""

LEAST_CONFIDENCE_OF_NEAR_DUPLICATES = 2
"""The same for successors that only look alike. Of 20 near duplicates that were looked at, 4 were
lookalikes (decision 0016): 1 would hide more of those, and what is archived is hidden unasked."""


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
            reason: One of `noctuary.graph.duplicates.REASONS`.
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


# One memory that may be archived, and why: the noun and its trace.


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


# What a plan reads of a published snapshot: its superseded memories, their sessions, their texts.


_IDS_AT_ONCE = 500
"""Values in one statement; SQLite of before 3.32 allows 999."""


class SupersededRow(NamedTuple):
    """A memory, its direct successor, and the last of the chain.

    Attributes:
        position: Of the memory.
        memory_id: Its id.
        content_hash: Of everything it says.
        created_at_us: UNDATED_US where unknown.
        tags: Comma-separated.
        user: Whose it is, or None.
        wing: Its wing, or None.
        session_id: Its conversation, or None.
        is_turn: 1 for a turn of a conversation.
        successor_id: The memory that replaces it.
        successor_hash: Content hash of that one.
        head_id: The memory that stands at the end of the chain.
        reason: How the night knows, one of `noctuary.graph.duplicates.REASONS`.
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine of the two, or None.
        age_gap_days: Whole days between the two.
    """

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int
    tags: str
    user: str | None
    wing: str | None
    session_id: str | None
    is_turn: int
    successor_id: str
    successor_hash: str
    head_id: str
    reason: str
    confidence: int
    similarity: float | None
    age_gap_days: int


_SUPERSEDED = """
SELECT o.position, o.memory_id, o.content_hash, o.created_at_us, o.tags, o.user, o.wing,
    o.session_id, o.is_turn, n.memory_id, n.content_hash, h.memory_id, s.reason, s.confidence,
    s.similarity, s.age_gap_days
FROM supersessions s
JOIN memories o ON o.position = s.older
JOIN memories n ON n.position = s.newer
JOIN memories h ON h.position = s.head
ORDER BY s.older
"""

_TURNS = (
    "SELECT position, memory_id, content_hash, created_at_us, session_id, user, wing, content "
    "FROM memories WHERE is_turn = 1 AND session_id IN ({}) ORDER BY created_at_us, position"
)


class SnapshotRows:
    """The rows of one snapshot, read only; close it after use."""

    def __init__(self, path: Path) -> None:
        self._db = connect_immutable(path)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def count_superseded(self) -> int:
        """Return how many memories have a successor, whatever its grade."""
        return int(self._db.execute("SELECT COUNT(*) FROM supersessions").fetchone()[0])

    def superseded(self, first: int, stop: int, batch: int) -> Iterator[list[SupersededRow]]:
        """Yield the superseded memories from the `first`-th up to before `stop`, by position."""
        wanted = islice(self._db.execute(_SUPERSEDED), first, max(stop, first))
        while rows := list(islice(wanted, batch)):
            yield [SupersededRow(*row) for row in rows]

    def content_hashes(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the content hash of every known id."""
        return dict(self._look_up("memory_id", "memory_id, content_hash", memory_ids))

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id."""
        return dict(self._look_up("memory_id", "memory_id, content", memory_ids))

    def sessions(self, session_ids: Iterable[str]) -> dict[tuple[str, str], list[SessionTurn]]:
        """Return all turns of some conversations, chronological, by (session, user or "")."""
        found: dict[tuple[str, str], list[SessionTurn]] = {}
        # One at a time: a long conversation is the most that is in memory beside the result.
        for session_id in sorted(set(session_ids)):
            for row in self._db.execute(_TURNS.format("?"), [session_id]):
                turn = _turn(row)
                found.setdefault((session_id, turn.user or ""), []).append(turn)
        return found

    def _look_up(self, key: str, columns: str, values: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(values), _IDS_AT_ONCE):
            some = values[start : start + _IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            sql = f"SELECT {columns} FROM memories WHERE {key} IN ({marks})"
            yield from self._db.execute(sql, some)


def _turn(row: tuple[Any, ...]) -> SessionTurn:
    *columns, content = row
    return SessionTurn(
        *columns,
        speaker=find_speaker(content),
        asks=ends_as_question(content),
        chars=len(content),
    )


# Finding candidates: every superseded memory is looked at, batch by batch.
#
# The RFC scans every memory and then asks which are superseded. Here the superseded ones are read
# first, because all three must hold: the result is the same, and the cost follows what was
# replaced and not the size of the store.
#
# `max_scan_depth` bounds how many are looked at. A plan writes nothing, so it cannot remember
# where it stopped: the starting point follows from the day of the count, so that every one has its
# turn.


PINNED_TAG = "pinned"
"""What authors tag with this is never archived; phase 6 of recall lifts the same memories."""

CountsOf = Callable[[Sequence[str]], Counts]
"""Memory ids to recent retrievals, days and last retrieval: `UsageReader.counts`."""

_DAY_US = 86_400_000_000

CANDIDATES_TASK = "compaction candidates"


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
            progress.update(CANDIDATES_TASK, scan.scanned, min(scan.total, _depth(scan, rules)))
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
