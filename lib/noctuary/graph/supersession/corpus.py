"""A corpus as supersession asks about it: columns of all memories, texts of the few that state.

What belongs here: which memories are held as objects, and looking one up. What does not: reading
statements (`statements`), files.

At a million memories, records and findings as objects are some 2 GB. Only a memory that states
something, or is a `key: value` one, is read as a text: some twentieth of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from noctuary.corpus.record_file import column_batches
from noctuary.corpus.tables import MEMORIES_FILE, column_names
from noctuary.graph.extraction import Extraction
from noctuary.graph.supersession.columns import MemoryColumns
from noctuary.graph.supersession.memories import Memory
from noctuary.types import MemoryRecord


class Outlines(Protocol):
    """Gives, each time anew, what memories say; of the findings, subjects and tags are enough."""

    def __call__(self, *, stated_only: bool = False) -> Iterable[tuple[int, Extraction]]:
        """Yield position and extraction of every memory with a subject, a tag or a statement.

        Args:
            stated_only: Leave out memories that neither state anything nor are a `key: value`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Corpus:
    """The memories of one night.

    Attributes:
        columns: Of all memories.
        stating: Memories that may state something, by position, ascending.
        outlines: What all memories are about and tagged with.
    """

    columns: MemoryColumns
    stating: Mapping[int, Memory]
    outlines: Outlines

    @staticmethod
    def read(records: Sequence[MemoryRecord], outlines: Outlines) -> Corpus:
        """Read the columns, and the memories that state something.

        Raises:
            ValueError: Positions are not 0..n-1, each once, or an outline is of no memory.
        """
        columns = MemoryColumns.read(records)
        said = dict(outlines(stated_only=True))
        if said and not 0 <= min(said) <= max(said) < len(columns):
            raise ValueError(
                f"found outlines of positions {min(said)}..{max(said)}, expected positions in "
                f"0..{len(columns) - 1}: the state belongs to another corpus"
            )
        chosen = {r.position: r for r in _records_at(records, said, len(columns))}
        stating = {p: Memory(chosen[p], said[p]) for p in sorted(said)}
        return Corpus(columns, stating, outlines)


def _records_at(
    records: Sequence[MemoryRecord], wanted: Iterable[int], n: int
) -> Iterator[MemoryRecord]:
    is_wanted = np.zeros(n, dtype=np.bool_)
    is_wanted[list(wanted)] = True
    names = column_names(MEMORIES_FILE)
    if not is_wanted.any():
        return
    for batch in column_batches(records, names):
        rows = np.flatnonzero(is_wanted[batch.column("position").to_numpy()])
        columns = [column.to_pylist() for column in batch.take(rows).columns]
        yield from (MemoryRecord(*values) for values in zip(*columns, strict=True))
