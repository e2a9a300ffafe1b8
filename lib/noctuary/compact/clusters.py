"""Clusters of turns: the noun, its id, and the chronological partition formula.

What belongs here: what a cluster is and how a run of turns is cut evenly. What does not: which
turns may be compacted (`eligibility`), which strategy groups them (`strategies`), and summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from noctuary.compact.eligibility import SessionTurn
from noctuary.hashing import hash_text
from noctuary.types import UNDATED_US

TARGET_CLUSTER_TURNS = 20
# Turns per summary. Larger: fewer tokens in the searched set, but each summary covers more topics
# and is aligned less well with any one of them. The reference's default.

CLUSTER_ID_HEX_CHARS = 16
# 64 bits: the chance of a collision among a million clusters is about 3e-8.


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
        strategy: Name of the strategy that grouped them ("chronological" or "communities").
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
