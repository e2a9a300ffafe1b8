"""The plan of adaptive compaction: memories to archive, the reasons, and their replacements.

Making a plan writes nothing. A plan is a function of the snapshot, the counts of use, the rules and
the archive. Idle days are counted to the moment of the night's count and not to the
clock, so that the same plan, with the same id, comes out until a night changes something.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.archive import ArchiveReader
from noctuary.compact.clusters import (
    Cluster,
    ClusterText,
    SessionTurn,
    cut_evenly,
    make_cluster,
    split_session,
)
from noctuary.compact.summaries import Encode, Summary, SummarySettings, summarize_batch
from noctuary.core import store as layout
from noctuary.core.files import hash_json, read_array
from noctuary.core.manifest import Manifest, quick_check, read_manifest, read_pointer
from noctuary.core.settings import CompactionSettings
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import open_rows
from noctuary.core.types import DAY_US, SILENT, UNDATED_US, Progress
from noctuary.embed.fingerprint import EncoderFingerprint, require_same
from noctuary.embed.lean import HEADER_FILE, LeanEncoder
from noctuary.graph.successors import CONFIDENCES
from noctuary.text.marks import ends_as_question, find_speaker
from noctuary.usage.reader import (
    BATCH_ROWS,
    Usage,
    UsageReader,
    decayed,
    idle_days,
    last_accessed,
    ltp_multiplier,
    ltp_score,
)
from noctuary.work.stage import BatchTimings


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """Criteria of archiving, from a profile and the settings."""

    compaction_threshold: float = 0.3  # scores below it may be archived, in [0, 1]; 0 archives none
    compaction_age_days: int = 30  # least days since the last access
    decay_lambda: float = 0.0  # decay of the score per idle day, >= 0
    protected_tail_turns: int = 4
    group_size: int = 20  # target members of a group, >= 1
    density: float = 0.0  # share of a group that its summary keeps; 0 for the summarizer's own
    preserve_threshold: float = 0.65  # least alignment of a summary
    max_scan_depth: int = 0  # superseded memories examined in all, 0 for every one


def archive_rules(flags: Mapping[str, Any], compaction: CompactionSettings) -> ArchiveRules:
    """Read the rules from a profile's flags and the settings."""
    return ArchiveRules(
        compaction_threshold=flags["compaction_threshold"],
        compaction_age_days=flags["compaction_age_days"],
        decay_lambda=flags["decay_lambda"] if flags["decay_enabled"] else 0.0,
        protected_tail_turns=compaction.protected_tail_turns,
        group_size=compaction.cluster_size,
        density=compaction.density,
        preserve_threshold=compaction.preserve_threshold,
        max_scan_depth=flags["max_scan_depth"],
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that meets every criterion; its successor replaces it, the head ends the chain."""

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int
    user: str | None
    wing: str | None
    session_id: str | None  # of a turn
    head_id: str
    successor_id: str
    successor_hash: str
    supersede_reason: str
    confidence: int  # 0 low, 1 medium, 2 high
    ltp_score: float  # in [0, 1], without decay
    decayed_ltp: float  # compared with the threshold; decayed where decay is on
    idle_days: float  # since the last retrieval, else since it was made; >= 0
    was_recalled: bool

    def trace(self, rules: ArchiveRules, consolidated_into: str | None) -> dict[str, Any]:
        """Return the full justification; ids and numbers, no text of a memory."""
        faded = f" (decayed from {self.ltp_score:.2f})" if rules.decay_lambda else ""
        last = "last_accessed" if self.was_recalled else "never recalled, created"
        return {
            "memory_id": self.memory_id,
            "action": "compact",
            "reason": (
                f"ltp={self.decayed_ltp:.2f} < {rules.compaction_threshold:g}{faded}, "
                f"superseded_by={self.successor_id} ({self.supersede_reason}, "
                f"{CONFIDENCES[self.confidence]}), {last}={int(self.idle_days)} days ago >= "
                f"{rules.compaction_age_days}"
            ),
            "ltp_score": round(self.ltp_score, 6),
            "decayed_ltp": round(self.decayed_ltp, 6),
            "is_superseded": True,
            "superseded_by": self.successor_id,
            "supersede_reason": self.supersede_reason,
            "confidence": CONFIDENCES[self.confidence],
            "days_since_access": int(self.idle_days),
            "was_recalled": self.was_recalled,
            "consolidated_into": consolidated_into,
        }


# Finding candidates: every superseded memory is examined, batch by batch. The RFC scans every
# memory and then asks which are superseded; here the cost follows the number of replacements.

# Least grade (`noctuary.graph.successors`) of a successor that was stated ("supersedes #12", "X is
# now Y", a newer value), and of one that is only similar: of 20 near duplicates that were
# inspected, 4 were lookalikes (decision 0036), and archived memories are hidden by default.
LEAST_CONFIDENCE = 1
LEAST_CONFIDENCE_OF_NEAR_DUPLICATES = 2

PINNED_TAG = "pinned"  # memories with this tag are never archived

_SUPERSEDED = f"""
SELECT o.position, o.memory_id, o.content_hash, o.created_at_us, o.user, o.wing,
    CASE WHEN o.is_turn THEN o.session_id END AS session_id, h.memory_id AS head_id,
    n.memory_id AS successor_id, n.content_hash AS successor_hash, s.reason AS supersede_reason,
    s.confidence, o.tags,
    s.confidence >= CASE WHEN s.reason = 'near_duplicate'
        THEN {LEAST_CONFIDENCE_OF_NEAR_DUPLICATES} ELSE {LEAST_CONFIDENCE} END AS is_sure
FROM supersessions s
JOIN memories o ON o.position = s.older
JOIN memories n ON n.position = s.newer
JOIN memories h ON h.position = s.head
ORDER BY s.older
"""
_OF_CANDIDATE = 12  # its first columns, which a candidate has under their names

CountsOf = Callable[[Sequence[str]], Usage]
"""Memory ids to recent retrievals, days and last retrieval: `UsageReader.counts`."""


@dataclass(slots=True)
class Scan:
    """Counts and timings of one scan over the superseded memories."""

    total: int = 0
    first: int = 0  # not 0 only with max_scan_depth
    scanned: int = 0
    # Why others are no candidates: archived, unsure, pinned, used, recent, tail.
    left: Counter[str] = field(default_factory=Counter[str])
    ltp_scan_ms: float = 0.0  # for counts and scores
    supersede_check_ms: float = 0.0  # for reading successors and judging how sure they are
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
    db: sqlite3.Connection,
    counts_of: CountsOf,
    rules: ArchiveRules,
    *,
    as_of_us: int,
    archived: Collection[str] = (),
    progress: Progress = SILENT,
) -> tuple[list[Candidate], Scan]:
    """Return the memories that meet every criterion at `as_of_us`, by position, and the scan."""
    scan = Scan(total=int(db.execute("SELECT COUNT(*) FROM supersessions").fetchone()[0]))
    depth = min(rules.max_scan_depth or scan.total, scan.total)
    scan.first = scan_start(scan.total, depth, as_of_us)

    def read(first: int, stop: int) -> Iterator[Any]:
        cursor = db.cursor()
        cursor.row_factory = sqlite3.Row
        yield from islice(cursor.execute(_SUPERSEDED), first, stop)

    # All, or so many from the day's starting point, around the end.
    around = max(scan.first + depth - scan.total, 0)
    rows = chain(read(scan.first, scan.first + depth), read(0, around))
    found: list[Candidate] = []
    started = time.perf_counter()
    while batch := list(islice(rows, BATCH_ROWS)):
        why_not = [_why_not(row, archived) for row in batch]
        scan.left.update(filter(None, why_not))
        checked = time.perf_counter()
        sure = [row for row, reason in zip(batch, why_not, strict=True) if not reason]
        found += _scored(sure, counts_of, rules, as_of_us, scan.left)
        ended = time.perf_counter()
        scan.supersede_check_ms += (checked - started) * 1000
        scan.ltp_scan_ms += (ended - checked) * 1000
        offset = (scan.first + scan.scanned) % scan.total
        scan.timings.add(offset, len(batch), (ended - started) * 1000)
        scan.scanned += len(batch)
        progress.update("compaction candidates", scan.scanned, depth)
        started = time.perf_counter()
    kept = _outside_tails(found, db, rules.protected_tail_turns, as_of_us)
    scan.left["tail"] = len(found) - len(kept)
    scan.left += Counter()  # drops reasons that never occurred
    return sorted(kept, key=lambda candidate: candidate.position), scan


def scan_start(total: int, depth: int, as_of_us: int) -> int:
    """Return where a scan of `depth` begins: each day where the one before would have ended."""
    return 0 if not 0 < depth < total else as_of_us // DAY_US * depth % total


def _why_not(row: sqlite3.Row, archived: Collection[str]) -> str:
    """Return why a memory is ruled out before its use is counted, or ""."""
    if row["memory_id"] in archived:
        return "archived"
    if not row["is_sure"]:
        return "unsure"
    is_pinned = any(tag.strip().casefold() == PINNED_TAG for tag in row["tags"].split(","))
    return "pinned" if is_pinned else ""


def _scored(
    rows: Sequence[sqlite3.Row], counts_of: CountsOf, rules: ArchiveRules, as_of_us: int,
    left: Counter[str],
) -> Iterator[Candidate]:  # fmt: skip
    recent, _, last_us = counts_of([row["memory_id"] for row in rows])
    created = np.array([row["created_at_us"] for row in rows], dtype=np.int64)
    score = ltp_score(ltp_multiplier(recent))
    # A moment without a date gives 0 days: undated memories are not known to be old.
    idle = idle_days(last_accessed(last_us, created), as_of_us)
    compared = decayed(score, idle, rules.decay_lambda)
    for i, row in enumerate(rows):
        if not compared[i] < rules.compaction_threshold:
            left["used"] += 1
        elif not idle[i] >= rules.compaction_age_days:
            left["recent"] += 1
        else:
            yield Candidate(
                *tuple(row)[:_OF_CANDIDATE],
                ltp_score=float(score[i]),
                decayed_ltp=float(compared[i]),
                idle_days=float(idle[i]),
                was_recalled=bool(last_us[i] != UNDATED_US),
            )


_TURNS = (
    "SELECT position, memory_id, content_hash, created_at_us, session_id, user, wing, content "
    "FROM memories WHERE is_turn = 1 AND session_id = ? ORDER BY created_at_us, position"
)


def _outside_tails(
    candidates: Sequence[Candidate], db: sqlite3.Connection, tail: int, now_us: int
) -> list[Candidate]:
    """Leave out turns that compaction would leave raw: the tail of their session, giants, ..."""
    eligible: set[str] = set()
    # One at a time: a long conversation is the most that is in memory.
    for session_id in sorted({c.session_id for c in candidates if c.session_id is not None}):
        of_user: dict[str, list[SessionTurn]] = defaultdict(list)
        for *columns, text in db.execute(_TURNS, [session_id]):
            said = {"speaker": find_speaker(text), "asks": ends_as_question(text)}
            turn = SessionTurn(*columns, **said, chars=len(text))
            of_user[turn.user or ""].append(turn)
        for turns in of_user.values():
            split = split_session(turns, protected_tail=tail, now_us=now_us)
            eligible.update(turn.memory_id for turn in split.eligible)
    return [c for c in candidates if c.session_id is None or c.memory_id in eligible]


# Groups of candidates and the summary that would replace each.
#
# Candidates of one user, one wing and one chain of successors are a group: versions of one fact. A
# group of more than `group_size` is cut into even parts, oldest first. A single member is replaced
# by its successor and needs no summary. For several, an extractive summary is made and judged like
# any other; if it is declined, no member of the group is archived.

STRATEGY = "supersession"  # `Cluster.strategy` of a group: part of its id
GROUPS_AT_ONCE = 256  # summarised in one batch
NO_VECTORS = "the snapshot has no vectors: a summary could not be judged"

ContentsOf = Callable[[Sequence[str]], Mapping[str, str]]


class Encoding(NamedTuple):
    """Vectors of memories by position, and of texts, to judge summaries by."""

    vectors_of: Callable[[Sequence[int]], NDArray[np.floating[Any]]]
    encode: Encode


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates that would be archived together or not at all."""

    group_id: str  # of the members and their contents: the same every night until one changes
    head_id: str
    members: tuple[Candidate, ...]  # chronological
    summary: Summary | None  # None for a single member and for a declined group
    reason: str  # why the group is not archived; "" where it is

    @property
    def is_archived(self) -> bool:
        """Return whether the plan archives them."""
        return not self.reason

    @property
    def summary_id(self) -> str | None:
        """Return the id of the summary that replaces the group, or None."""
        return None if self.summary is None else self.summary.summary_id


def consolidate(
    candidates: Sequence[Candidate],
    contents_of: ContentsOf,
    encoding: Encoding | None,
    rules: ArchiveRules,
    progress: Progress = SILENT,
) -> list[Group]:
    """Return the groups by first position; without an encoding only single ones are archived."""
    chains: dict[tuple[str, str, str], list[Candidate]] = defaultdict(list)
    for c in sorted(candidates, key=lambda c: (c.created_at_us, c.position)):
        chains[c.user or "", c.wing or "", c.head_id].append(c)
    parts = [part for members in chains.values() for part in cut_evenly(members, rules.group_size)]
    groups = [(part, _cluster(part)) for part in sorted(parts, key=lambda part: part[0].position)]
    judged: dict[str, Summary] = {}
    if encoding is not None:
        several = [cluster for _, cluster in groups if not cluster.trivial]
        judged = _summarize(several, contents_of, encoding, rules, progress)
    return [_group(part, cluster, judged.get(cluster.cluster_id)) for part, cluster in groups]


def _summarize(
    clusters: Sequence[Cluster], contents_of: ContentsOf, encoding: Encoding, rules: ArchiveRules,
    progress: Progress,
) -> dict[str, Summary]:  # fmt: skip
    settings = SummarySettings(rules.density, rules.preserve_threshold)
    judged: dict[str, Summary] = {}
    for start in range(0, len(clusters), GROUPS_AT_ONCE):
        some = clusters[start : start + GROUPS_AT_ONCE]
        texts = contents_of([memory_id for cluster in some for memory_id in cluster.member_ids])
        vectors = [encoding.vectors_of(cluster.member_positions) for cluster in some]
        contents = [[texts[memory_id] for memory_id in cluster.member_ids] for cluster in some]
        batch = list(map(ClusterText, some, contents, vectors))
        made = summarize_batch(batch, encoding.encode, settings=settings)
        judged |= {summary.cluster_id: summary for summary in made}
        progress.update("compaction groups", start + len(some), len(clusters))
    return judged


def _cluster(part: Sequence[Candidate]) -> Cluster:
    """Return a group as a cluster without a session."""
    members = [
        SessionTurn(c.position, c.memory_id, c.content_hash, c.created_at_us, "", c.user, c.wing,
                    speaker=None, asks=False, chars=0)
        for c in part
    ]  # fmt: skip
    return make_cluster(members, STRATEGY, 0)


def _group(part: Sequence[Candidate], cluster: Cluster, summary: Summary | None) -> Group:
    """Return a group; the reason of a declined one quotes no memory, as a plan holds no text."""
    reason = ""
    if not cluster.trivial:
        if summary is None:
            reason = NO_VECTORS
        elif summary.facts is not None and not summary.facts.passed:
            reason = "summary declined: it says what its sources do not say"
        elif summary.status != "accepted":
            reason = f"summary declined: {summary.reason}"
    kept = None if reason else summary
    return Group(cluster.cluster_id, part[0].head_id, tuple(part), kept, reason)


PLAN_ID_HEX_CHARS = 16
_PLAN_VERSION = "1"  # part of every id; raised when equal contents would mean something else

NOT_COUNTED = (
    "no plan: no night has counted yet how memories are used ({}), and what is not known to be "
    "unused is not archived"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Memories to archive."""

    snapshot_id: str
    as_of_us: int  # the moment that idle days are counted to
    rules: ArchiveRules
    candidates: tuple[Candidate, ...] = ()  # by position
    groups: tuple[Group, ...] = ()  # the same memories, by first position
    scan: Scan = field(default_factory=Scan)
    consolidation_ms: float = 0.0
    total_ms: float = 0.0
    warning: str | None = None  # missing inputs of the plan

    @property
    def plan_id(self) -> str:
        """Return the hash of the archived memories and their replacements, scores left out."""
        entries = sorted(
            (c.memory_id, c.content_hash, c.successor_id, c.successor_hash, g.summary_id or "")
            for g, c in self.archived
        )
        return hash_json([_PLAN_VERSION, entries])[:PLAN_ID_HEX_CHARS]

    @property
    def archived(self) -> tuple[tuple[Group, Candidate], ...]:
        """Return the memories to archive, each with its group."""
        return tuple((g, c) for g in self.groups if g.is_archived for c in g.members)

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Return the summaries that would be created."""
        return tuple(g.summary for g in self.groups if g.summary is not None)

    @property
    def timings_ms(self) -> dict[str, float]:
        """Return the duration of each step."""
        took = {
            "ltp_scan_ms": self.scan.ltp_scan_ms,
            "supersede_check_ms": self.scan.supersede_check_ms,
            "consolidation_plan_ms": self.consolidation_ms,
            "total_ms": self.total_ms,
        }
        return {name: round(ms, 2) for name, ms in took.items()}

    def traces(self) -> list[dict[str, Any]]:
        """Return the justification of every candidate; "keep" where its group is not archived."""
        group_of = {c.memory_id: group for group in self.groups for c in group.members}
        traces: list[dict[str, Any]] = []
        for candidate in self.candidates:
            group = group_of[candidate.memory_id]
            trace = candidate.trace(self.rules, group.summary_id)
            if not group.is_archived:
                trace |= {"action": "keep", "reason": f"{trace['reason']}; kept: {group.reason}"}
            traces.append(trace)
        return traces

    def to_json(self) -> dict[str, Any]:
        """Return the plan without any text; RFC 914's names, memory_id for drawer_id."""
        groups = [
            {
                "group_id": group.group_id,
                "head_id": group.head_id,
                "memory_ids": [candidate.memory_id for candidate in group.members],
                "summary_id": group.summary_id,
                "would_archive": group.is_archived,
                "reason": group.reason,
            }
            for group in self.groups
        ]
        return {
            "plan_id": self.plan_id,
            "snapshot_id": self.snapshot_id,
            "as_of_us": self.as_of_us,
            "rules": asdict(self.rules),
            "candidates": self.traces(),
            "groups": groups,
            "would_archive": len(self.archived),
            "would_create_summaries": len(self.summaries),
            "summary_count": len(self.summaries),
            "superseded": self.scan.total,
            "not_candidates": dict(sorted(self.scan.left.items())),
            "phase_timing_ms": {"adaptive_compaction": self.timings_ms},
            "paginated_scoring": self.scan.timings.report(),
            "pagination_state": self.scan.pagination_state(),
            "warning": self.warning,
        }


def plan_store(paths: StorePaths, rules: ArchiveRules, progress: Progress = SILENT) -> Plan:
    """Return the plan of a store's serving snapshot; writes nothing, needs no work directory.

    Without readable use counts the plan is empty, with a warning. SnapshotMissingError if nothing
    was published yet, SnapshotCorruptError if the serving snapshot is damaged.
    """
    snapshot_id = read_pointer(paths).snapshot_id
    directory = paths.snapshots / snapshot_id
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
    with closing(UsageReader(paths.usage)) as usage:
        if usage.warning is not None:
            warning = NOT_COUNTED.format(usage.warning)
            return Plan(snapshot_id, UNDATED_US, rules, warning=warning)
        archive, encoding = ArchiveReader(paths.archive), _encoding(paths, directory, manifest)
        with closing(open_rows(directory)) as db:
            started = time.perf_counter()
            hidden = archive.hidden_in(partial(_look_up, db, "content_hash"))
            candidates, scan = find_candidates(
                db, usage.counts, rules,
                as_of_us=usage.as_of_us, archived=hidden, progress=progress,
            )  # fmt: skip
            chosen, contents_of = time.perf_counter(), partial(_look_up, db, "content")
            groups = consolidate(candidates, contents_of, encoding, rules, progress)
            ended = time.perf_counter()
        took = (ended - chosen) * 1000, (ended - started) * 1000
        found = tuple(candidates), tuple(groups), scan
        return Plan(snapshot_id, usage.as_of_us, rules, *found, *took, _warning(archive, scan))


def _look_up(db: sqlite3.Connection, column: str, memory_ids: Sequence[str]) -> dict[str, str]:
    """Return a column of every known id; SQLite of before 3.32 allows 999 values in a statement."""
    found: dict[str, str] = {}
    for start in range(0, len(memory_ids), 500):
        some = memory_ids[start : start + 500]
        marks = ",".join("?" * len(some))
        sql = f"SELECT memory_id, {column} FROM memories WHERE memory_id IN ({marks})"
        found.update(db.execute(sql, some))
    return found


def _warning(archive: ArchiveReader, scan: Scan) -> str | None:
    if archive.warning is not None or not scan.not_scanned:
        return archive.warning
    return (
        f"max_scan_depth ended the scan after {scan.scanned:,} of {scan.total:,} superseded "
        f"memories: {scan.not_scanned:,} were not looked at; the plan of another day begins "
        "elsewhere"
    )


def _encoding(paths: StorePaths, directory: Path, manifest: Manifest) -> Encoding | None:
    """Return the vectors and the numpy encoder; None if this machine lacks the encoder."""
    if manifest.encoder is None or manifest.encoder_digest is None:
        return None
    place = paths.encoders / manifest.encoder_digest
    # Where a provider made the vectors there is none either: summaries are not sent in passing.
    if not (place / HEADER_FILE).is_file():
        return None
    vectors = read_array(directory / layout.VECTORS_FILE)
    expected = EncoderFingerprint.from_json(manifest.encoder)

    @cache
    def opened() -> LeanEncoder:
        """Open it with the first text: most plans have no group to judge."""
        encoder = LeanEncoder.open(place)
        require_same(expected, encoder.fingerprint)
        return encoder

    def vectors_of(positions: Sequence[int]) -> NDArray[np.floating[Any]]:
        return np.asarray(vectors[list(positions)])

    def encode(texts: list[str]) -> NDArray[np.float32]:
        return opened().encode_documents(texts)

    return Encoding(vectors_of, encode)
