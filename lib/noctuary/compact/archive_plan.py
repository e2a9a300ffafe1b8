"""The plan of adaptive compaction: what would be archived, and why."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.archive import ArchiveReader
from noctuary.compact.archive_candidates import (
    ArchiveRules,
    Candidate,
    CountsOf,
    Scan,
    SnapshotRows,
    find_candidates,
)
from noctuary.compact.clusters import Cluster, ClusterText, SessionTurn, cut_evenly, make_cluster
from noctuary.compact.escalation import Encode, SummarySettings
from noctuary.compact.summaries import summarize_batch
from noctuary.compact.summarizers import Summary
from noctuary.core import store as layout
from noctuary.core.files import hash_json, read_array
from noctuary.core.manifest import Manifest, quick_check, read_manifest, read_pointer
from noctuary.core.store import StorePaths
from noctuary.core.types import SILENT, UNDATED_US, Progress
from noctuary.embed.fingerprint import EncoderFingerprint, require_same
from noctuary.embed.lean import HEADER_FILE, LeanEncoder
from noctuary.usage.reader import UsageReader

# Groups of candidates and the summary that would stand for each.
#
# Candidates of one user, one wing and one chain of successors are a group: versions of one fact,
# and what they have in common is the memory that replaced them all. A group never mixes users or
# wings. A group of more than `group_size` is cut into even parts, oldest first.
#
# - One member: it stands behind its successor, and needs no summary.
# - Several: an extractive summary is made of them and judged like any other. It stands for them
#   beside their successors. Where it is declined, nothing of the group is archived.


STRATEGY = "supersession"
"""`Cluster.strategy` of a group: part of its id, so that it never equals a cluster of turns."""

GROUPS_AT_ONCE = 256
"""Groups summarised in one batch: more fill an encoder better, fewer bound memory and report
sooner."""

GROUPS_TASK = "compaction groups"

NO_VECTORS = "the snapshot has no vectors: a summary could not be judged"

ContentsOf = Callable[[Sequence[str]], Mapping[str, str]]
VectorsOf = Callable[[Sequence[int]], NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How summaries are judged in this store.

    Attributes:
        vectors_of: Document vectors of positions, shape (n, d).
        encode: Document vectors of texts, from the same model.
    """

    vectors_of: VectorsOf
    encode: Encode


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates that would be archived together or not at all.

    Attributes:
        group_id: Of the members and what they say: the same on every night until one changes.
        head_id: The memory at the end of their chain.
        members: Chronological.
        summary: What would stand for them; None for a single member and for a declined group.
        is_archived: Whether the plan archives them.
        reason: Why not; "" where it does.
    """

    group_id: str
    head_id: str
    members: tuple[Candidate, ...]
    summary: Summary | None
    is_archived: bool
    reason: str

    @property
    def summary_id(self) -> str | None:
        """Return the id of the summary that stands for the group, or None."""
        return None if self.summary is None else self.summary.summary_id


def consolidate(
    candidates: Sequence[Candidate],
    contents_of: ContentsOf,
    encoding: Encoding | None,
    rules: ArchiveRules,
    progress: Progress = SILENT,
) -> list[Group]:
    """Return the groups, sorted by their first member's position.

    Args:
        candidates: What meets every criterion.
        contents_of: Texts by memory id.
        encoding: None where the store has no vectors: groups of several are not archived then.
        rules: Size of a group, densities and threshold.
        progress: Told after each batch of groups.
    """
    parts = sorted(_parts(candidates, rules.group_size), key=lambda part: part[0].position)
    groups = [(part, _cluster(part)) for part in parts]
    several = [group for group in groups if len(group[0]) > 1]
    judged: dict[str, Summary] = {}
    if encoding is not None:
        for start in range(0, len(several), GROUPS_AT_ONCE):
            batch = several[start : start + GROUPS_AT_ONCE]
            judged |= _summarize(batch, contents_of, encoding, rules)
            progress.update(GROUPS_TASK, start + len(batch), len(several))
    return [_group(part, cluster, judged.get(cluster.cluster_id)) for part, cluster in groups]


def _parts(candidates: Sequence[Candidate], size: int) -> list[list[Candidate]]:
    groups: dict[tuple[str, str, str], list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        groups[candidate.user or "", candidate.wing or "", candidate.head_id].append(candidate)
    parts: list[list[Candidate]] = []
    for members in groups.values():
        by_id = {member.memory_id: member for member in members}
        ordered = sorted(members, key=lambda c: (c.created_at_us, c.position))
        for part in cut_evenly([_member(c) for c in ordered], size):
            parts.append([by_id[turn.memory_id] for turn in part])
    return parts


def _member(candidate: Candidate) -> SessionTurn:
    """Return what a cluster needs to know; a group belongs to no session."""
    return SessionTurn(
        position=candidate.position,
        memory_id=candidate.memory_id,
        content_hash=candidate.content_hash,
        created_at_us=candidate.created_at_us,
        session_id="",
        user=candidate.user,
        wing=candidate.wing,
        speaker=None,
        asks=False,
        chars=0,
    )


def _cluster(part: Sequence[Candidate]) -> Cluster:
    return make_cluster([_member(candidate) for candidate in part], STRATEGY, 0)


def _summarize(
    groups: Sequence[tuple[Sequence[Candidate], Cluster]],
    contents_of: ContentsOf,
    encoding: Encoding,
    rules: ArchiveRules,
) -> dict[str, Summary]:
    """Return the outcome of groups of several members, by cluster id."""
    texts = contents_of([c.memory_id for part, _ in groups for c in part])
    batch = [
        ClusterText(
            cluster,
            [texts[c.memory_id] for c in part],
            encoding.vectors_of([c.position for c in part]),
        )
        for part, cluster in groups
    ]
    settings = SummarySettings(rules.density, rules.aggressive_density, rules.preserve_threshold)
    made = summarize_batch(batch, encoding.encode, settings=settings).summaries
    return {summary.cluster_id: summary for summary in made}


def _group(part: Sequence[Candidate], cluster: Cluster, summary: Summary | None) -> Group:
    accepted = summary if summary is not None and summary.status == "accepted" else None
    reason = ""
    if len(part) > 1 and accepted is None:
        reason = NO_VECTORS if summary is None else f"summary declined: {_declined(summary)}"
    return Group(cluster.cluster_id, part[0].head_id, tuple(part), accepted, not reason, reason)


def _declined(summary: Summary) -> str:
    """Return why, without quoting: a plan holds no text, and a fact report names what is said."""
    if summary.facts is not None and not summary.facts.passed:
        return "it says what its sources do not say"
    return summary.reason


# The plan of adaptive compaction: what would be archived, why, and what would stand for it.
#
# Making a plan writes nothing.
#
# A plan is a function of the snapshot, the counts of use, the rules and what is archived already.
# Idle days are counted to the moment of the night's count and not to the clock, so that the same
# plan, with the same id, comes out until a night changes something.


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


# A store's plan: from its published snapshot and its counts of use. Needs no work directory.
#
# Summaries of groups are judged with the store's query encoder (`encoders/<digest>`, the numpy
# forward pass), which gives the vectors of the snapshot's model to float32 rounding and stores
# nothing. A snapshot of a model that it cannot run has no plan for groups of several.


NOT_COUNTED = (
    "no plan: no night has counted yet how memories are used ({}), and what is not known to be "
    "unused is not archived"
)


def plan_store(paths: StorePaths, rules: ArchiveRules, progress: Progress = SILENT) -> Plan:
    """Return the plan of a store's serving snapshot; writes nothing anywhere.

    Without readable counts of use the plan is empty and says so.

    Args:
        paths: The store.
        rules: What decides.
        progress: Told after each batch.

    Raises:
        SnapshotMissingError: Nothing was published yet.
        SnapshotCorruptError: The serving snapshot is damaged.
    """
    pointer = read_pointer(paths)
    directory = paths.snapshots / pointer.snapshot_id
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
    usage = UsageReader(paths.usage)
    try:
        if usage.warning is not None:
            warning = NOT_COUNTED.format(usage.warning)
            return empty_plan(
                rules, snapshot_id=pointer.snapshot_id, as_of_us=UNDATED_US, warning=warning
            )
        with closing(SnapshotRows(directory / layout.ROWS_FILE)) as rows:
            return make_plan(
                rows,
                usage.counts,
                ArchiveReader(paths.archive),
                rules,
                snapshot_id=pointer.snapshot_id,
                as_of_us=usage.as_of_us,
                encoding=_encoding(paths, directory, manifest),
                progress=progress,
            )
    finally:
        usage.close()


def _encoding(paths: StorePaths, directory: Path, manifest: Manifest) -> Encoding | None:
    """Return how summaries are judged; None where this machine cannot encode for the snapshot."""
    if manifest.encoder is None or manifest.encoder_digest is None:
        return None
    place = paths.encoders / manifest.encoder_digest
    # Where a provider made the vectors there is none either: summaries are not sent in passing.
    if not (place / HEADER_FILE).is_file():
        return None
    vectors = read_array(directory / layout.VECTORS_FILE)
    expected = EncoderFingerprint.from_json(manifest.encoder)

    def vectors_of(positions: Any) -> NDArray[Any]:
        return np.asarray(vectors[list(positions)])

    return Encoding(vectors_of, _LazyEncoder(place, expected))


class _LazyEncoder:
    """Opens the encoder with the first text: most plans have no group to judge."""

    def __init__(self, directory: Path, expected: EncoderFingerprint) -> None:
        self._directory, self._expected = directory, expected
        self._encode: Callable[[list[str]], NDArray[Any]] | None = None

    def __call__(self, texts: list[str]) -> NDArray[Any]:
        if self._encode is None:
            encoder = LeanEncoder.open(self._directory)
            require_same(self._expected, encoder.fingerprint)
            self._encode = encoder.encode_documents
        return self._encode(texts)
