"""The nouns that every part of mnemon shares. Plain frozen dataclasses, standard library only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mnemon.values import dataclass

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

UNDATED_US = -(2**63)
"""`created_at_us` of a memory whose source gave no date (the smallest int64)."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One exported memory: what every builder reads.

    Attributes:
        position: 0-based rank in the source's key order; rows of every array of a snapshot.
        memory_id: The source's own id, as text.
        content: The text, NUL-free, never empty.
        category: The source's category, possibly empty.
        tags: Comma-separated, as authored (the scope tags included).
        expanded_keywords: Space-separated author keywords, possibly empty.
        importance: In [0, 1].
        created_at_us: Microseconds since the epoch, UTC; UNDATED_US where unknown.
        updated_at_us: As above.
        session_id: The conversation it belongs to, or None.
        wing: The project or area it belongs to, or None.
        room: The topic inside the wing, or None.
        user: Whose memory it is, or None.
        is_turn: True for a turn of a conversation (as against a distilled memory).
        content_hash: SHA-256 over every field that a derived artifact may depend on, position
            excluded.
    """

    position: int
    memory_id: str
    content: str
    category: str
    tags: str
    expanded_keywords: str
    importance: float
    created_at_us: int
    updated_at_us: int
    session_id: str | None
    wing: str | None
    room: str | None
    user: str | None
    is_turn: bool
    content_hash: str


def to_micros(moment: datetime) -> int:
    """Return microseconds since the epoch of an aware datetime."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime | None:
    """Return the UTC datetime of a microsecond count, or None for UNDATED_US."""
    if micros == UNDATED_US:
        return None
    return _EPOCH + timedelta(microseconds=micros)
