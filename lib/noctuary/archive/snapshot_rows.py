"""What a plan reads of a published snapshot: its superseded memories, their sessions, their texts.

What belongs here: queries on rows.sqlite, opened immutable, so that reading leaves no file behind.
What does not: what the rows mean for a plan (`scan`, `consolidation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.compact.eligibility import SessionTurn
from noctuary.corpus.speaker import find_speaker
from noctuary.immutable import connect_immutable
from noctuary.text.sentences import ends_as_question

_IDS_AT_ONCE = 500
"""Values in one statement; SQLite of before 3.32 allows 999."""


class SupersededRow(NamedTuple):
    """A memory, its direct successor, and the last of the chain.

    Attributes:
        position: Of the memory.
        memory_id: Its id.
        content_hash: Of everything it says.
        created_at_us: UNDATED_US where unknown.
        tags: Comma-separated.
        user: Whose it is, or None.
        wing: Its wing, or None.
        session_id: Its conversation, or None.
        is_turn: 1 for a turn of a conversation.
        successor_id: The memory that replaces it.
        successor_hash: Content hash of that one.
        head_id: The memory that stands at the end of the chain.
        reason: How the night knows, one of `noctuary.graph.supersession.links.REASONS`.
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine of the two, or None.
        age_gap_days: Whole days between the two.
    """

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int
    tags: str
    user: str | None
    wing: str | None
    session_id: str | None
    is_turn: int
    successor_id: str
    successor_hash: str
    head_id: str
    reason: str
    confidence: int
    similarity: float | None
    age_gap_days: int


_SUPERSEDED = """
SELECT o.position, o.memory_id, o.content_hash, o.created_at_us, o.tags, o.user, o.wing,
    o.session_id, o.is_turn, n.memory_id, n.content_hash, h.memory_id, s.reason, s.confidence,
    s.similarity, s.age_gap_days
FROM supersessions s
JOIN memories o ON o.position = s.older
JOIN memories n ON n.position = s.newer
JOIN memories h ON h.position = s.head
ORDER BY s.older
"""

_TURNS = (
    "SELECT position, memory_id, content_hash, created_at_us, session_id, user, wing, content "
    "FROM memories WHERE is_turn = 1 AND session_id IN ({}) ORDER BY created_at_us, position"
)


class SnapshotRows:
    """The rows of one snapshot, read only; close it after use."""

    def __init__(self, path: Path) -> None:
        self._db = connect_immutable(path)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def count_superseded(self) -> int:
        """Return how many memories have a successor, whatever its grade."""
        return int(self._db.execute("SELECT COUNT(*) FROM supersessions").fetchone()[0])

    def superseded(self, first: int, stop: int, batch: int) -> Iterator[list[SupersededRow]]:
        """Yield the superseded memories from the `first`-th up to before `stop`, by position."""
        wanted = islice(self._db.execute(_SUPERSEDED), first, max(stop, first))
        while rows := list(islice(wanted, batch)):
            yield [SupersededRow(*row) for row in rows]

    def content_hashes(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the content hash of every known id."""
        return dict(self._look_up("memory_id", "memory_id, content_hash", memory_ids))

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id."""
        return dict(self._look_up("memory_id", "memory_id, content", memory_ids))

    def sessions(self, session_ids: Iterable[str]) -> dict[tuple[str, str], list[SessionTurn]]:
        """Return all turns of some conversations, chronological, by (session, user or "")."""
        found: dict[tuple[str, str], list[SessionTurn]] = {}
        # One at a time: a long conversation is the most that is in memory beside the result.
        for session_id in sorted(set(session_ids)):
            for row in self._db.execute(_TURNS.format("?"), [session_id]):
                turn = _turn(row)
                found.setdefault((session_id, turn.user or ""), []).append(turn)
        return found

    def _look_up(self, key: str, columns: str, values: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for start in range(0, len(values), _IDS_AT_ONCE):
            some = values[start : start + _IDS_AT_ONCE]
            marks = ",".join("?" * len(some))
            sql = f"SELECT {columns} FROM memories WHERE {key} IN ({marks})"
            yield from self._db.execute(sql, some)


def _turn(row: tuple[Any, ...]) -> SessionTurn:
    *columns, content = row
    return SessionTurn(
        *columns,
        speaker=find_speaker(content),
        asks=ends_as_question(content),
        chars=len(content),
    )
