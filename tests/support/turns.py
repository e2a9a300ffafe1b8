"""Turns by hand, for tests of what groups and summarises them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import SessionTurn, to_session_turn
from noctuary.core.types import MemoryRecord

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
    return replace(record, **changes)


def session_turns(records: Sequence[MemoryRecord]) -> list[SessionTurn]:
    """Return what clustering sees of some turns."""
    return [to_session_turn(record, record.session_id or "") for record in records]


def word_vectors(texts: Sequence[str], dimension: int = 32) -> NDArray[np.float32]:
    """Return unit vectors that are closer the more words two texts share; equal on every run."""
    rows = np.zeros((len(texts), dimension), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            seed = int.from_bytes(word.encode(), "little") % 2**32
            row += np.random.default_rng(seed).standard_normal(dimension, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=rows, where=norms > 0)
