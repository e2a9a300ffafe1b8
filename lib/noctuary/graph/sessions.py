"""Sessions as arrays: who follows whom, who speaks. Numpy only; read by recall, made by the night.

Belongs here: the arrays and how they follow from the memories. Does not belong here: scoring
(`conversation`), files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noctuary.values import dataclass

if TYPE_CHECKING:
    from noctuary.types import MemoryRecord

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
    records: Iterable[MemoryRecord], speakers: Mapping[int, int] | None = None
) -> SessionArrays:
    """Return the sessions of a corpus; no record is kept.

    Args:
        records: Ordered by position from 0.
        speakers: By position, the ordinal of the concept that speaks there.
    """
    numbers: dict[tuple[str, str, str], int] = {}
    keys, created, turns = array("q"), array("q"), array("b")
    for record in records:
        key = session_key(record)
        keys.append(-1 if key is None else numbers.setdefault(key, len(numbers)))
        created.append(record.created_at_us)
        turns.append(record.is_turn)
    ranks, sizes = _rank_sessions(np.array(keys), numbers)
    members = np.flatnonzero(ranks >= 0)
    order = members[np.lexsort((members, np.array(created)[members], ranks[members]))]
    places = np.full(len(keys), -1, dtype=np.int32)
    places[order] = np.arange(order.size)
    spoken = np.full(len(keys), -1, dtype=np.int32)
    for position, ordinal in (speakers or {}).items():
        spoken[position] = ordinal
    return SessionArrays(
        codes=ranks.astype(np.int32),
        places=places,
        order=order.astype(np.int32),
        indptr=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        turns=np.array(turns, dtype=np.int8),
        speakers=spoken,
    )


def _rank_sessions(
    keys: NDArray[np.int64], numbers: Mapping[tuple[str, str, str], int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every memory's session by rank of its key, -1 for none, and the sessions' sizes.

    Args:
        keys: Number of every memory's key, -1 for none, shape (n,).
        numbers: From key to number, 0..k-1.
    """
    counts = np.bincount(keys[keys >= 0], minlength=len(numbers))
    kept = [number for _, number in sorted(numbers.items()) if counts[number] >= MIN_MEMBERS]
    # One entry more: a memory without a key reads the last one.
    rank_of = np.full(len(numbers) + 1, -1, dtype=np.int64)
    rank_of[kept] = np.arange(len(kept))
    return rank_of[keys], counts[kept]
