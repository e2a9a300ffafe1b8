"""What a source must be able to do to be tidied, all of it inside one transaction.

What belongs here: the interface, and judging a row as the export would. What does not: one kind of
database (`sqlite`, `postgres`), what is written (`noctuary.curate.apply`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from noctuary.corpus.normalize import Accepted, normalize
from noctuary.corpus.sensitive import find_sensitivity
from noctuary.corpus.source import RawRow
from noctuary.settings import CorpusSettings
from noctuary.types import MemoryRecord

RESTORED = ("content", "tags", "expanded_keywords", "importance", "updated_at")
"""Columns that curation writes, and that undo puts back."""

BUSY_TIMEOUT_MS = 30_000
"""How long to wait for another writer; the store's own clients wait as long."""


class StoredRow(NamedTuple):
    """A row of the source, locked by this transaction.

    Attributes:
        row_id: Its id there.
        record: The memory that it is, or None where it is sensitive, deleted or damaged.
    """

    row_id: int
    record: MemoryRecord | None


class Transaction(Protocol):
    """A source between BEGIN and COMMIT; nobody else writes to the rows it has read."""

    def row(self, row_id: int) -> StoredRow | None:
        """Return a row, or None where there is none."""
        ...

    def ids_with_text(self, content: str) -> Sequence[int]:
        """Return the ids of all rows with exactly this content, ascending."""
        ...

    def image(self, row_id: int) -> str | None:
        """Return the columns of a row as canonical JSON, derived ones left out; None without it."""
        ...

    def update(self, row_id: int, values: Mapping[str, object]) -> None:
        """Set columns of a row."""
        ...

    def copy(self, row_id: int, values: Mapping[str, object]) -> int:
        """Insert a row like another one but for some columns, and return its id."""
        ...

    def take_back(self, row_id: int) -> None:
        """Remove a row that `copy` made, in the way in which the source removes rows."""
        ...

    def restore(self, row_id: int, image: str) -> None:
        """Set the columns RESTORED to what an image says, exactly."""
        ...

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the journal's, `?` for each value, and return its rows."""
        ...

    def forget_lost_rows(self) -> None:
        """Drop the journal's images of rows that are sensitive or deleted by now."""
        ...


class WritableStore(Protocol):
    """A source that can be tidied.

    Attributes:
        display: What it is called in messages; no secret.
        notes: What its owner should know before writing, as sentences.
    """

    display: str
    notes: tuple[str, ...]

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin to write; commit at the end of the block, roll back whatever is raised in it.

        Raises:
            SourceError: The source is locked by another writer, or cannot be written.
        """
        ...

    def has_journal(self) -> bool:
        """Say whether anything was ever written; takes no lock."""
        ...

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from the journal outside of a transaction."""
        ...

    def close(self) -> None:
        """Release the source; safe to call twice."""
        ...


def judge(row_id: int, fields: Mapping[str, object], settings: CorpusSettings) -> StoredRow:
    """Return a row with the memory that an export of it would give.

    Args:
        row_id: Its id.
        fields: The columns that an export reads.
        settings: As of the night that made the proposals.
    """
    raw = RawRow(locator=f"id {row_id}", key=row_id, fields=fields)
    if find_sensitivity(raw) is not None:
        return StoredRow(row_id, None)
    verdict = normalize(raw, position=0, now_us=time.time_ns() // 1000, settings=settings)
    return StoredRow(row_id, verdict.record if isinstance(verdict, Accepted) else None)
