"""Sessions as arrays: who follows whom, who speaks. Numpy only; read by recall, made by the night.

Belongs here: the arrays and how they follow from the memories. Does not belong here: scoring
(`conversation`), files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mnemon.values import dataclass

if TYPE_CHECKING:
    from mnemon.types import MemoryRecord

MIN_MEMBERS = 2
"""Smallest session kept: a session of one memory relates it to nothing."""


@dataclass(frozen=True, slots=True)
class SessionArrays:
    """Sessions of n memories: S sessions with M members in all.

    A session is the memories of one owner and one wing that carry the same session id.

    Attributes:
        codes: int32 (n,), the session of every memory, -1 for none.
        places: int32 (n,), the memory's index in `order`, -1 for none.
        order: int32 (M,), members by session, then time, then position.
        indptr: int64 (S+1,); the members of session s are order[indptr[s]:indptr[s+1]].
        turns: int8 (n,), 1 for a turn of a conversation, 0 for any other memory.
        speakers: int32 (n,), ordinal of the concept that speaks, -1 for none.
    """

    codes: NDArray[np.int32]
    places: NDArray[np.int32]
    order: NDArray[np.int32]
    indptr: NDArray[np.int64]
    turns: NDArray[np.int8]
    speakers: NDArray[np.int32]


def session_key(record: MemoryRecord) -> tuple[str, str, str] | None:
    """Return what tells sessions apart: an id is only unique inside its owner and its wing."""
    if not record.session_id or not record.session_id.strip():
        return None
    return (record.user or "", record.wing or "", record.session_id)


def build_sessions(
    records: Sequence[MemoryRecord], speakers: Mapping[int, int] | None = None
) -> SessionArrays:
    """Return the sessions of a corpus.

    Args:
        records: Ordered by position from 0.
        speakers: By position, the ordinal of the concept that speaks there.
    """
    members: dict[tuple[str, str, str], list[MemoryRecord]] = defaultdict(list)
    for record in records:
        key = session_key(record)
        if key is not None:
            members[key].append(record)
    kept = [members[key] for key in sorted(members) if len(members[key]) >= MIN_MEMBERS]
    n = len(records)
    codes = np.full(n, -1, dtype=np.int32)
    places = np.full(n, -1, dtype=np.int32)
    order: list[int] = []
    for code, session in enumerate(kept):
        for record in sorted(session, key=lambda r: (r.created_at_us, r.position)):
            codes[record.position] = code
            places[record.position] = len(order)
            order.append(record.position)
    spoken = np.full(n, -1, dtype=np.int32)
    for position, ordinal in (speakers or {}).items():
        spoken[position] = ordinal
    return SessionArrays(
        codes=codes,
        places=places,
        order=np.array(order, dtype=np.int32),
        indptr=np.cumsum([0, *(len(session) for session in kept)], dtype=np.int64),
        turns=np.array([r.is_turn for r in records], dtype=np.int8),
        speakers=spoken,
    )
