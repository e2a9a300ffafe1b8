"""What a store at the other end of a connection must tell to be followed without a full reading.

What belongs here: the protocol. What does not: keeping what was captured (`noctuary.capture`), how
one kind of store answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from noctuary.corpus.source import DEFAULT_BATCH_ROWS, RawRow


@dataclass(frozen=True, slots=True)
class RowDigest:
    """One row of the store, without its text.

    Attributes:
        key: Its id.
        digest: Computed by the store over every column that `batches` gives and over the marks of
            sensitivity; equal digests mean an equal row.
    """

    key: int | str
    digest: str


@runtime_checkable
class ChangeFeed(Protocol):
    """A source that can be asked for less than everything; all of one pinned state.

    Tombstones are rows of it (with `deleted_at` set), hard deletes are not.
    """

    def now_us(self) -> int:
        """Return the store's own clock, read before anything else of the pinned state."""
        ...

    def changed_since(
        self, since_us: int, size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield the rows with updated_at >= since_us by ascending key, tombstones included."""
        ...

    def keys(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[int | str]]:
        """Yield the id of every row that is there, ascending."""
        ...

    def digests(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RowDigest]]:
        """Yield the digest of every row that is there, by ascending key."""
        ...

    def rows_of(
        self, keys: Sequence[int | str], size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield the rows of some ids by ascending key; an id that is not there is left out."""
        ...
