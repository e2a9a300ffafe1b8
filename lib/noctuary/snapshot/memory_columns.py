"""What a snapshot tells of its memories beside their rows: dates, importance, facets. Build side.

What belongs here: columns of the corpus as arrays, made batch by batch. What does not: sessions
(noctuary.graph.sessions), texts (`row_file`), writing the arrays (`build`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.corpus.record_file import column_batches
from noctuary.snapshot import layout
from noctuary.types import MemoryRecord


@dataclass(frozen=True, slots=True, eq=False)
class Facet:
    """A scope column of n memories.

    Attributes:
        values: Distinct, not empty, sorted.
        codes: int32, shape (n,): index of each memory's value, -1 for none.
    """

    values: Sequence[str]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryColumns:
    """Columns of n memories by position.

    Attributes:
        created_at_us: int64, shape (n,).
        importance: float32, shape (n,).
        turns: How many memories are turns of a conversation.
        facets: By name, those of `layout.FACETS`.
    """

    created_at_us: NDArray[np.int64]
    importance: NDArray[np.float32]
    turns: int
    facets: Mapping[str, Facet]


def read_columns(records: Sequence[MemoryRecord]) -> MemoryColumns:
    """Return the columns of a corpus; memory is that of the arrays and of the distinct values.

    Args:
        records: Ordered by position from 0; a `RecordFile` is read without making records.
    """
    numbers: dict[str, list[NDArray[Any]]] = {"created_at_us": [], "importance": []}
    coded = {facet: _Coding() for facet in layout.FACETS}
    turns = 0
    for batch in column_batches(records, [*numbers, "is_turn", *layout.FACETS]):
        turns += batch.column("is_turn").true_count
        for name, parts in numbers.items():
            parts.append(batch.column(name).to_numpy())
        for facet, coding in coded.items():
            coding.add(batch.column(facet))
    return MemoryColumns(
        created_at_us=_joined(numbers["created_at_us"], np.dtype(np.int64)),
        importance=_joined(numbers["importance"], np.dtype(np.float64)).astype(np.float32),
        turns=turns,
        facets={facet: coding.finish() for facet, coding in coded.items()},
    )


class _Coding:
    """Gives values numbers as they come, and sorts them at the end."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._parts: list[NDArray[np.int64]] = []

    def add(self, column: Any) -> None:
        """Append a pyarrow.StringArray; null and "" are none."""
        encoded = column.dictionary_encode()
        known = self._numbers
        # One entry more: a null reads the last one.
        number_of = [
            known.setdefault(value, len(known)) if value else -1
            for value in encoded.dictionary.to_pylist()
        ] + [-1]
        at: NDArray[Any] = encoded.indices.fill_null(len(number_of) - 1).to_numpy()
        self._parts.append(np.array(number_of, dtype=np.int64)[at])

    def finish(self) -> Facet:
        """Return what came."""
        values = sorted(self._numbers)
        rank_of = np.full(len(values) + 1, -1, dtype=np.int64)
        rank_of[[self._numbers[value] for value in values]] = np.arange(len(values))
        codes = rank_of[_joined(self._parts, np.dtype(np.int64))]
        return Facet(values, codes.astype(np.int32))


def _joined(parts: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])
