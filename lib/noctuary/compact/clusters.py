"""Clusters of turns: the noun, its id, the chronological partition formula, one session's clusters.

What belongs here: what a cluster is and how a session's turns are cut evenly. What does not: which
turns may be compacted (`eligibility`), reading turns (`streaming`), and summaries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from noctuary.compact.eligibility import (
    PROTECTED_TAIL_TURNS,
    Eligibility,
    SessionTurn,
    split_session,
)
from noctuary.corpus.speaker import find_speaker
from noctuary.hashing import hash_text
from noctuary.text.sentences import ends_as_question
from noctuary.types import UNDATED_US, MemoryRecord

TARGET_CLUSTER_TURNS = 20
# Turns per summary. Larger: fewer tokens in the searched set, but each summary covers more topics
# and is aligned less well with any one of them. The reference's default.

CLUSTER_ID_HEX_CHARS = 16
# 64 bits: the chance of a collision among a million clusters is about 3e-8.

CHRONOLOGICAL = "chronological"
"""`Cluster.strategy` of consecutive turns: part of every id."""

FOREVER_US = 2**63 - 1
"""A present after every date: no turn is from the future."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Turns of one session that are summarised together, in (created_at_us, position) order.

    Attributes:
        cluster_id: 16 hex characters of the strategy, the session, the members' ids and their
            content hashes, so that the same turns give the same id on every night and an edit
            gives another.
        session_id: The session all members belong to.
        user: Whose turns they are, or None.
        wing: The wing all members belong to, or None.
        strategy: Who grouped them: CHRONOLOGICAL, or a compaction plan (noctuary.archive).
        ordinal: 0-based rank among the clusters of its session, by first member.
        member_positions: Corpus positions in chronological order.
        member_ids: Memory ids, parallel to member_positions.
        first_us: Earliest known time of a member, UNDATED_US where no member has one.
        last_us: Latest known time of a member, likewise.
        trivial: True for a single member: there is nothing to compress.
    """

    cluster_id: str
    session_id: str
    user: str | None
    wing: str | None
    strategy: str
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


def cut_evenly(
    turns: Sequence[SessionTurn], target: int = TARGET_CLUSTER_TURNS
) -> list[Sequence[SessionTurn]]:
    """Cut a chronological run into consecutive parts of `partition_sizes`."""
    parts: list[Sequence[SessionTurn]] = []
    start = 0
    for size in partition_sizes(len(turns), target):
        parts.append(turns[start : start + size])
        start += size
    return parts


def make_cluster(members: Sequence[SessionTurn], strategy: str, ordinal: int) -> Cluster:
    """Return the cluster of some turns of one session, user and wing.

    Args:
        members: At least one turn, chronological.
        strategy: Who grouped them.
        ordinal: Rank among the clusters of the session.
    """
    first = members[0]
    ids = tuple(member.memory_id for member in members)
    hashes = (member.content_hash for member in members)
    dated = [member.created_at_us for member in members if member.created_at_us != UNDATED_US]
    return Cluster(
        cluster_id=hash_text(strategy, first.session_id, *ids, *hashes)[:CLUSTER_ID_HEX_CHARS],
        session_id=first.session_id,
        user=first.user,
        wing=first.wing,
        strategy=strategy,
        ordinal=ordinal,
        member_positions=tuple(member.position for member in members),
        member_ids=ids,
        first_us=min(dated, default=UNDATED_US),
        last_us=max(dated, default=UNDATED_US),
        trivial=len(members) == 1,
    )


class SessionClusters(NamedTuple):
    """What became of one session's turns.

    Attributes:
        clusters: By ordinal.
        split: Which turns were eligible, and why others were not.
    """

    clusters: list[Cluster]
    split: Eligibility


def cluster_session(
    turns: Sequence[SessionTurn],
    target: int = TARGET_CLUSTER_TURNS,
    *,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> SessionClusters:
    """Return the clusters of one session of one user, cut evenly (libravdb section 5).

    A cluster never mixes wings: where a session spans several, each wing's turns are grouped on
    their own, so that a summary can be filtered like its sources. The tail is the session's.

    Args:
        turns: All turns of the session and user, chronological by (created_at_us, position).
        target: Turns per cluster; non-positive means TARGET_CLUSTER_TURNS.
        protected_tail: Newest turns that stay raw (see `split_session`).
        now_us: The present.
    """
    split = split_session(turns, protected_tail=protected_tail, now_us=now_us)
    wings: dict[str | None, list[SessionTurn]] = defaultdict(list)
    for turn in split.eligible:
        wings[turn.wing].append(turn)
    groups = [group for scoped in wings.values() for group in cut_evenly(scoped, target)]
    clusters = [make_cluster(group, CHRONOLOGICAL, rank) for rank, group in enumerate(groups)]
    return SessionClusters(clusters, split)


def cluster_turns(
    records: Iterable[MemoryRecord],
    *,
    target: int = TARGET_CLUSTER_TURNS,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> list[Cluster]:
    """Return the clusters of a corpus that is in memory; `streaming.iter_sessions` is for files.

    Deterministic: the order of `records` does not matter. A session is the pair of session id and
    user, so that two users who share an id never share a cluster. Memories that are no turns, and
    turns without a session, stay raw.

    Args:
        records: The corpus, in any order.
        target: Turns per cluster; non-positive means TARGET_CLUSTER_TURNS.
        protected_tail: Newest turns per session that stay raw.
        now_us: The present; later dates are from the future.
    """
    sessions: dict[tuple[str, bool, str], list[SessionTurn]] = defaultdict(list)
    for record in records:
        if record.is_turn and record.session_id is not None:
            key = (record.session_id, record.user is not None, record.user or "")
            sessions[key].append(to_session_turn(record, record.session_id))
    clusters: list[Cluster] = []
    for key in sorted(sessions):
        turns = sorted(sessions[key], key=lambda turn: (turn.created_at_us, turn.position))
        found = cluster_session(turns, target, protected_tail=protected_tail, now_us=now_us)
        clusters += found.clusters
    return clusters


def to_session_turn(record: MemoryRecord, session_id: str) -> SessionTurn:
    """Return what clustering needs of a turn."""
    return SessionTurn(
        position=record.position,
        memory_id=record.memory_id,
        content_hash=record.content_hash,
        created_at_us=record.created_at_us,
        session_id=session_id,
        user=record.user,
        wing=record.wing,
        speaker=find_speaker(record.content),
        asks=ends_as_question(record.content),
        chars=len(record.content),
    )
