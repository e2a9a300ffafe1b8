"""The nouns that every part of noctuary shares. Plain frozen dataclasses, standard library only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from noctuary.hashing import hash_text
from noctuary.values import dataclass

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

UNDATED_US = -(2**63)
"""`created_at_us` of a memory whose source gave no date (the smallest int64)."""

DAMAGED_TEXT = "(the text of this memory is damaged: `noctuary doctor` says what to do)"
"""In the place of a text that is not the one that was published."""

SUMMARY_ID_CHARS = 16
"""64 bits tell the summaries of a store apart."""


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


CONTENT_HASH_VERSION = "memory/1"
"""Part of every content hash; raise it when the meaning of a field changes."""


def content_hash(record: MemoryRecord) -> str:
    """Return the SHA-256 over every field of a memory except its position."""
    optional = (record.session_id, record.wing, record.room, record.user)
    return hash_text(
        CONTENT_HASH_VERSION,
        record.memory_id,
        record.content,
        record.category,
        record.tags,
        record.expanded_keywords,
        repr(record.importance),
        str(record.created_at_us),
        str(record.updated_at_us),
        str(record.is_turn),
        *("-" if value is None else f"+{value}" for value in optional),
    )


def corpus_digest(content_hashes: Iterable[str]) -> str:
    """Return the digest of the memories with these content hashes, in their order."""
    digest = hashlib.sha256(CONTENT_HASH_VERSION.encode())
    for known in content_hashes:
        digest.update(bytes.fromhex(known))
    return digest.hexdigest()


def published_text(row: Mapping[str, Any]) -> str:
    """Return the content of a row of `memories`, DAMAGED_TEXT where its hash is of another row."""
    try:
        # A record by its names, without the cost of making one.
        record: Any = SimpleNamespace(**{**row, "is_turn": bool(row["is_turn"])})
        if content_hash(record) == row["content_hash"]:
            return str(row["content"])
    except (AttributeError, TypeError):
        pass  # not even the types are right
    return DAMAGED_TEXT


def summary_id(cluster_id: str, method: str, text: str) -> str:
    """Return the id of a summary: equal for equal cluster, method and text, on every night."""
    return hash_text("summary", cluster_id, method, text)[:SUMMARY_ID_CHARS]


def to_micros(moment: datetime) -> int:
    """Return microseconds since the epoch of an aware datetime."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime | None:
    """Return the UTC datetime of a microsecond count, or None for UNDATED_US."""
    if micros == UNDATED_US:
        return None
    return _EPOCH + timedelta(microseconds=micros)
