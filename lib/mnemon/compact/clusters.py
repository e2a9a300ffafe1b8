"""Which old turns are summarised together: a deterministic chronological partition per session.

What belongs here: eligibility (the protected recent tail), the partition and the ids of its
clusters. What does not: summaries, similarity, or anything that depends on a model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mnemon.hashing import hash_text
from mnemon.types import UNDATED_US, MemoryRecord

TARGET_CLUSTER_TURNS = 20
# Turns per summary. Larger: fewer tokens in the searched set, but each summary covers more topics
# and is aligned less well with any one of them. The reference's default.

PROTECTED_TAIL_TURNS = 4
# The newest turns of each session stay raw: they are what the conversation still refers to. Larger
# protects more context and compacts less. The reference excludes the last 4.

CLUSTER_ID_HEX_CHARS = 16
# 64 bits: the chance of a collision among a million clusters is about 3e-8.


@dataclass(frozen=True, slots=True)
class Cluster:
    """A run of consecutive eligible turns of one session, in (created_at_us, position) order.

    Attributes:
        cluster_id: 16 hex characters of the session, the members' ids and their content hashes, so
            that the same turns give the same id on every night and an edit gives another.
        session_id: The session all members belong to.
        ordinal: 0-based rank among the clusters of its session, oldest first.
        member_positions: Corpus positions in chronological order.
        member_ids: Memory ids, parallel to member_positions.
        first_us: Earliest known time of a member, UNDATED_US where no member has one.
        last_us: Latest known time of a member, likewise.
        trivial: True for a single member: there is nothing to compress.
    """

    cluster_id: str
    session_id: str
    ordinal: int
    member_positions: tuple[int, ...]
    member_ids: tuple[str, ...]
    first_us: int
    last_us: int
    trivial: bool


def cluster_count(turns: int, target: int = TARGET_CLUSTER_TURNS) -> int:
    """Return c = ceil(max(n, 1) / k); a non-positive k means the default (libravdb section 5)."""
    size = target if target > 0 else TARGET_CLUSTER_TURNS
    return -(-max(turns, 1) // size)


def cluster_index(turn: int, turns: int, count: int) -> int:
    """Return floor(i * c / max(n, 1)), the cluster of the i-th of n turns (libravdb section 5)."""
    return turn * count // max(turns, 1)


def partition_sizes(turns: int, target: int = TARGET_CLUSTER_TURNS) -> list[int]:
    """Return how many turns each cluster holds, in order; empty for no turns.

    The sizes sum to `turns` and differ by at most one.
    """
    if turns <= 0:
        return []
    count = cluster_count(turns, target)
    starts = [-(-j * turns // count) for j in range(count + 1)]
    return [end - start for start, end in pairwise(starts)]


def eligible_turns(
    records: Iterable[MemoryRecord], *, protected_tail: int = PROTECTED_TAIL_TURNS
) -> list[list[MemoryRecord]]:
    """Return the turns that may be compacted, one chronological list per session.

    Chronological is by (created_at_us, position). A session is the pair of user and session id, so
    that two users who share an id never share a cluster. Turns without a session are no
    conversation and stay raw; undated turns count as oldest, by their smallest time.

    Args:
        records: The corpus, in any order.
        protected_tail: How many of the newest turns of each session stay raw; negative counts as 0.
    """
    sessions: dict[tuple[str, str], list[MemoryRecord]] = defaultdict(list)
    for record in records:
        if record.is_turn and record.session_id is not None:
            sessions[record.session_id, record.user or ""].append(record)
    tail = max(protected_tail, 0)
    result: list[list[MemoryRecord]] = []
    for key in sorted(sessions):
        turns = sorted(sessions[key], key=_chronological)
        if len(turns) > tail:
            result.append(turns[: len(turns) - tail])
    return result


def cluster_turns(
    records: Iterable[MemoryRecord],
    *,
    target: int = TARGET_CLUSTER_TURNS,
    protected_tail: int = PROTECTED_TAIL_TURNS,
) -> list[Cluster]:
    """Partition the eligible turns of every session into clusters of about `target` turns.

    Deterministic: the order of `records` does not matter. A cluster never mixes sessions, users or
    wings: where one session spans several wings, each wing's turns are partitioned on their own, so
        that a summary can be
    filtered like its sources.

    Args:
        records: The corpus; memories that are no turns are ignored.
        target: Turns per cluster; non-positive means TARGET_CLUSTER_TURNS.
        protected_tail: Newest turns per session that stay raw.

    Source: libravdb mathematics section 5.
    """
    clusters: list[Cluster] = []
    for turns in eligible_turns(records, protected_tail=protected_tail):
        ordinal = 0
        for scoped in _by_wing(turns):
            start = 0
            for size in partition_sizes(len(scoped), target):
                clusters.append(_cluster(scoped[start : start + size], ordinal))
                start, ordinal = start + size, ordinal + 1
    return clusters


def _chronological(record: MemoryRecord) -> tuple[int, int]:
    return record.created_at_us, record.position


def _by_wing(turns: Sequence[MemoryRecord]) -> list[list[MemoryRecord]]:
    wings: dict[str | None, list[MemoryRecord]] = defaultdict(list)
    for turn in turns:
        wings[turn.wing].append(turn)
    return list(wings.values())


def _cluster(members: Sequence[MemoryRecord], ordinal: int) -> Cluster:
    session_id = members[0].session_id or ""
    ids = tuple(member.memory_id for member in members)
    hashes = tuple(member.content_hash for member in members)
    dated = [member.created_at_us for member in members if member.created_at_us != UNDATED_US]
    return Cluster(
        cluster_id=hash_text(session_id, *ids, *hashes)[:CLUSTER_ID_HEX_CHARS],
        session_id=session_id,
        ordinal=ordinal,
        member_positions=tuple(member.position for member in members),
        member_ids=ids,
        first_us=min(dated, default=UNDATED_US),
        last_us=max(dated, default=UNDATED_US),
        trivial=len(members) == 1,
    )
