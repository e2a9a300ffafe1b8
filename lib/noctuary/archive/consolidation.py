"""Groups of candidates and the summary that would stand for each.

What belongs here: which candidates belong together, and what follows from their summary. What does
not: how a summary is made and judged (`noctuary.compact`).

Candidates of one user, one wing and one chain of successors are a group: versions of one fact, and
what they have in common is the memory that replaced them all. A group never mixes users or wings. A
group of more than `group_size` is cut into even parts, oldest first.

- One member: it stands behind its successor, and needs no summary.
- Several: an extractive summary is made of them and judged like any other. It stands for them
  beside their successors. Where it is declined, nothing of the group is archived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.archive.candidate import Candidate
from noctuary.archive.rules import ArchiveRules
from noctuary.compact.cluster_text import ClusterText
from noctuary.compact.clusters import Cluster, cut_evenly, make_cluster
from noctuary.compact.eligibility import SessionTurn
from noctuary.compact.escalation import Encode, SummarySettings
from noctuary.compact.summaries import summarize_batch
from noctuary.compact.summary import Summary
from noctuary.progress import SILENT, Progress

STRATEGY = "supersession"
"""`Cluster.strategy` of a group: part of its id, so that it never equals a cluster of turns."""

GROUPS_AT_ONCE = 256
"""Groups summarised in one batch: more fill an encoder better, fewer bound memory and report
sooner."""

TASK = "compaction groups"

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
            progress.update(TASK, start + len(batch), len(several))
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
