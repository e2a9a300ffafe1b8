"""Turns by hand, for tests of what groups and summarises them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import (
    FOREVER_US,
    PROTECTED_TAIL_TURNS,
    TARGET_CLUSTER_TURNS,
    Cluster,
    SessionTurn,
    cluster_session,
)
from noctuary.core.types import MemoryRecord
from noctuary.text.marks import ends_as_question, find_speaker

HOUR_US = 3_600_000_000


def turn(position: int, session: str | None = "s", **changes: Any) -> MemoryRecord:
    """Return a turn of Ann's, one hour after the turn before it."""
    record = MemoryRecord(
        position=position,
        memory_id=f"m{position}",
        content=f"Ann: line {position}",
        category="dialog_turn",
        tags="",
        expanded_keywords="",
        importance=0.5,
        created_at_us=position * HOUR_US,
        updated_at_us=position * HOUR_US,
        session_id=session,
        wing=None,
        room=None,
        user=None,
        is_turn=True,
        content_hash=f"hash-{position}",
    )
    return record._replace(**changes)


def session_turns(records: Sequence[MemoryRecord]) -> list[SessionTurn]:
    """Return what clustering sees of some turns."""
    return [
        SessionTurn(
            r.position, r.memory_id, r.content_hash, r.created_at_us, r.session_id or "", r.user,
            r.wing, find_speaker(r.content), ends_as_question(r.content), len(r.content),
        )
        for r in records
    ]  # fmt: skip


def cluster_turns(
    records: Iterable[MemoryRecord],
    *,
    target: int = TARGET_CLUSTER_TURNS,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> list[Cluster]:
    """Return the clusters of a corpus that is in memory, in any order: the oracle of the files'.

    Memories that are no turns, and turns without a session, stay raw. A session is the pair of
    session id and user.
    """
    sessions: dict[tuple[str, bool, str], list[SessionTurn]] = defaultdict(list)
    for record in records:
        if record.is_turn and record.session_id is not None:
            key = (record.session_id, record.user is not None, record.user or "")
            sessions[key] += session_turns([record])
    clusters: list[Cluster] = []
    for key in sorted(sessions):
        turns = sorted(sessions[key], key=lambda turn: (turn.created_at_us, turn.position))
        found, _ = cluster_session(turns, target, protected_tail=protected_tail, now_us=now_us)
        clusters += found
    return clusters


def cluster_index(turn: int, turns: int, count: int) -> int:
    """Return floor(i * c / max(n, 1)), the cluster of the i-th of n turns (libravdb section 5)."""
    return turn * count // max(turns, 1)


def word_vectors(texts: Sequence[str], dimension: int = 32) -> NDArray[np.float32]:
    """Return unit vectors that are closer the more words two texts share; equal on every run."""
    rows = np.zeros((len(texts), dimension), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            seed = int.from_bytes(word.encode(), "little") % 2**32
            row += np.random.default_rng(seed).standard_normal(dimension, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=rows, where=norms > 0)
