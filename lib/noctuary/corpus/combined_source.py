"""A memory store and another source of the same kind of ids as one.

What belongs here: merging the two in key order. What does not: reading either. The other are the
turns of agents' transcripts (`noctuary.transcripts.turns_source`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from noctuary.corpus.source import (
    DEFAULT_BATCH_ROWS,
    Closing,
    RawRow,
    Source,
    SourceIdentity,
    batch_rows,
)

MAX_TAKEN = 1_000_000
"""Negative ids of a store that are held to keep turns from being named alike."""


class CombinedSource(Closing):
    """A source with the rows of another joined to it; see `noctuary.corpus.source.Source`.

    It is named as the first: that is the store which its owner writes. Ids of the two should
    differ; of a row of each with the same id the store's comes first, and the export reports the
    other as a duplicate.

    Attributes:
        primary: The memory store.
    """

    def __init__(self, primary: Source, joined: Source) -> None:
        """Join two open sources of one kind of ids, which are closed with this one."""
        self.primary = primary
        self._joined = joined

    def identity(self) -> SourceIdentity:
        """Return what the store is, with the state of what is joined among its marks."""
        identity, joined = self.primary.identity(), self._joined.identity()
        marks = {f"{joined.kind}_{name}": mark for name, mark in joined.marker.items()}
        return replace(identity, marker={**identity.marker, **marks})

    def count(self) -> int:
        """Return the number of rows of both."""
        return self.primary.count() + self._joined.count()

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows of both by ascending id, the store's first among equals."""
        yield from batch_rows(self._merged(size), size)

    def close(self) -> None:
        """Close both."""
        try:
            self._joined.close()
        finally:
            self.primary.close()

    def _merged(self, size: int) -> Iterator[RawRow]:
        others = (row for batch in self._joined.batches(size) for row in batch)
        other = next(others, None)
        for batch in self.primary.batches(size):
            for row in batch:
                while other is not None and _is_before(other.key, row.key):
                    yield other
                    other = next(others, None)
                yield row
        while other is not None:
            yield other
            other = next(others, None)


def _is_before(one: int | str | None, other: int | str | None) -> bool:
    """Say whether a joined row's id sorts before a store's; one without stays in its place."""
    if isinstance(one, int):
        return isinstance(other, int) and one < other
    return isinstance(one, str) and isinstance(other, str) and one < other


def negative_ids(source: Source) -> frozenset[int]:
    """Return the negative ids of a source, which come first in its order; `MAX_TAKEN` at most."""
    found: set[int] = set()
    for batch in source.batches():
        for row in batch:
            if isinstance(row.key, int):
                if row.key >= 0 or len(found) >= MAX_TAKEN:
                    return frozenset(found)
                found.add(row.key)
    return frozenset(found)
