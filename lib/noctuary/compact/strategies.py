"""The named ways of grouping a session's eligible turns, and the clusters of one session.

What belongs here: the names, the interface and the choice. What does not: which turns are eligible
(`eligibility`), how communities are found (`communities`), reading turns (`streaming`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from noctuary.compact.clusters import TARGET_CLUSTER_TURNS, Cluster, cut_evenly, make_cluster
from noctuary.compact.eligibility import (
    PROTECTED_TAIL_TURNS,
    Eligibility,
    SessionTurn,
    split_session,
)
from noctuary.corpus.speaker import find_speaker
from noctuary.text.sentences import ends_as_question
from noctuary.types import MemoryRecord

CHRONOLOGICAL = "chronological"
COMMUNITIES = "communities"

FOREVER_US = 2**63 - 1
"""A present after every date: no turn is from the future."""


class Strategy(Protocol):
    """Groups the eligible turns of one session, user and wing."""

    @property
    def name(self) -> str:
        """What settings and `Cluster.strategy` call it."""
        ...

    def group(self, turns: Sequence[SessionTurn]) -> list[Sequence[SessionTurn]]:
        """Return groups that hold every turn exactly once.

        Args:
            turns: At least one turn, chronological.

        Returns:
            Groups by their first turn, each chronological. Equal turns give equal groups.
        """
        ...


@dataclass(frozen=True, slots=True)
class Chronological:
    """Consecutive turns, evenly: the reference's partition (libravdb mathematics section 5).

    Attributes:
        target: Turns per cluster; non-positive means TARGET_CLUSTER_TURNS.
    """

    target: int = TARGET_CLUSTER_TURNS
    name: str = CHRONOLOGICAL

    def group(self, turns: Sequence[SessionTurn]) -> list[Sequence[SessionTurn]]:
        """Return parts of `partition_sizes`."""
        return cut_evenly(turns, self.target)


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
    strategy: Strategy,
    *,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> SessionClusters:
    """Return the clusters of one session of one user.

    A cluster never mixes wings: where a session spans several, each wing's turns are grouped on
    their own, so that a summary can be filtered like its sources. The tail is the session's.

    Args:
        turns: All turns of the session and user, chronological by (created_at_us, position).
        strategy: Who groups them.
        protected_tail: Newest turns that stay raw (see `split_session`).
        now_us: The present.
    """
    split = split_session(turns, protected_tail=protected_tail, now_us=now_us)
    wings: dict[str | None, list[SessionTurn]] = defaultdict(list)
    for turn in split.eligible:
        wings[turn.wing].append(turn)
    groups = [group for scoped in wings.values() for group in strategy.group(scoped)]
    clusters = [make_cluster(group, strategy.name, rank) for rank, group in enumerate(groups)]
    return SessionClusters(clusters, split)


def cluster_turns(
    records: Iterable[MemoryRecord],
    *,
    strategy: Strategy | None = None,
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
        strategy: Who groups; None means Chronological(target).
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
        chosen = strategy or Chronological(target)
        found = cluster_session(turns, chosen, protected_tail=protected_tail, now_us=now_us)
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
