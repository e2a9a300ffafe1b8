"""When and whose every memory is, as arrays: some 40 bytes a memory where a record takes 1,200.

What belongs here: the columns that supersession asks of all memories. What does not: what few
memories say (`corpus`), comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.corpus.record_file import column_batches
from noctuary.graph.supersession.guards import Keys, keys_of
from noctuary.text.tombstone import is_tombstone
from noctuary.types import UNDATED_US, MemoryRecord

_NOBODY = ""
_NO_KEYS = Keys(0, 0)
_COLUMNS = (
    "position", "memory_id", "content", "created_at_us", "updated_at_us", "user", "wing", "is_turn",
)  # fmt: skip

Ints = NDArray[np.int64]


class Sighting(NamedTuple):
    """Where one memory stands; what `MemoryRecord` says of it, under the same names."""

    position: int
    user: str
    wing: str
    created_at_us: int


@dataclass(frozen=True, slots=True)
class MemoryColumns:
    """Columns over the n memories of a corpus, by position.

    Attributes:
        memory_ids: `pyarrow.ChunkedArray` of n strings.
        created_at_us: int64 (n,), UNDATED_US where unknown.
        updated_at_us: int64 (n,).
        owners: int32 (n,), index into `owner_names`.
        wings: int32 (n,), index into `wing_names`.
        turns: bool (n,).
        tombstones: bool (n,), marked as superseded in the source.
        marks: int64 (n,), the text's `guards.Keys.marks`; 0 for turns.
        alike: int64 (n,), the text's `guards.Keys.alike`; 0 for turns.
        owner_names: Users, sorted; "" for nobody.
        wing_names: Wings, sorted; "" for none.
    """

    memory_ids: Any
    created_at_us: Ints
    updated_at_us: Ints
    owners: NDArray[np.int32]
    wings: NDArray[np.int32]
    turns: NDArray[np.bool_]
    tombstones: NDArray[np.bool_]
    marks: Ints
    alike: Ints
    owner_names: tuple[str, ...]
    wing_names: tuple[str, ...]

    def __len__(self) -> int:
        """Return n."""
        return len(self.created_at_us)

    @staticmethod
    def read(records: Sequence[MemoryRecord]) -> MemoryColumns:
        """Walk through the memories once, in whatever order they come.

        Raises:
            ValueError: Positions are not 0..n-1, each once.
        """
        read = _Reading()
        for batch in column_batches(records, _COLUMNS):
            read.add(batch)
        return read.sorted()

    def sighting(self, position: int) -> Sighting:
        """Return where one memory stands."""
        return Sighting(
            position,
            self.owner_names[self.owners[position]],
            self.wing_names[self.wings[position]],
            int(self.created_at_us[position]),
        )

    def dated(self) -> NDArray[np.bool_]:
        """Return which memories have a date, shape (n,)."""
        return self.created_at_us != UNDATED_US


class _Reading:
    """Columns in the making."""

    def __init__(self) -> None:
        self._owners, self._wings = _Codes(), _Codes()
        self._ids: list[Any] = []
        self._parts: list[tuple[NDArray[Any], ...]] = []

    def add(self, batch: Any) -> None:
        contents, turns = (batch.column(name).to_pylist() for name in ("content", "is_turn"))
        marked = [is_tombstone(content) for content in contents]
        keys = [_NO_KEYS if t else keys_of(c) for c, t in zip(contents, turns, strict=True)]
        numbers = (batch.column(name) for name in ("position", "created_at_us", "updated_at_us"))
        self._parts.append(
            (
                *(column.to_numpy().astype(np.int64) for column in numbers),
                self._owners.of(batch.column("user").to_pylist()),
                self._wings.of(batch.column("wing").to_pylist()),
                np.array(turns, dtype=np.bool_),
                np.array(marked, dtype=np.bool_),
                *np.array(keys, dtype=np.int64).reshape(-1, 2).T,
            )
        )
        self._ids.append(batch.column("memory_id"))

    def sorted(self) -> MemoryColumns:
        import pyarrow as pa

        kinds = (
            np.int64,
            np.int64,
            np.int64,
            np.int32,
            np.int32,
            np.bool_,
            np.bool_,
            np.int64,
            np.int64,
        )
        found: list[NDArray[Any]] = [
            np.concatenate([part[at] for part in self._parts] or [np.empty(0, kind)]).astype(kind)
            for at, kind in enumerate(kinds)
        ]
        positions, created, updated, owners, wings, turns, marked, marks, alike = found
        ids = pa.chunked_array(self._ids, pa.string())
        order = _order(positions)
        if order is not None:
            ids = ids.take(order)
            created, updated, owners, wings, turns, marked, marks, alike = (
                column[order] for column in found[1:]
            )
        return MemoryColumns(
            ids, created, updated, self._owners.ranks[owners], self._wings.ranks[wings],
            turns, marked, marks, alike, self._owners.names, self._wings.names,
        )  # fmt: skip


class _Codes:
    """Numbers for the few names of a column, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, names: Sequence[str | None]) -> NDArray[np.int32]:
        numbers = self._numbers
        found = [numbers.setdefault(name or _NOBODY, len(numbers)) for name in names]
        return np.array(found, dtype=np.int32)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._numbers))

    @property
    def ranks(self) -> NDArray[np.int32]:
        """Return the index in `names` by number."""
        place = {name: rank for rank, name in enumerate(self.names)}
        return np.array([place[name] for name in self._numbers], dtype=np.int32)


def _order(positions: Ints) -> Ints | None:
    """Return the rows in order of position, or None where they are in order."""
    expected = np.arange(len(positions))
    if np.array_equal(positions, expected):
        return None
    order = np.argsort(positions, kind="stable")
    if not np.array_equal(positions[order], expected):
        raise ValueError(
            f"found {len(np.unique(positions))} positions for {len(positions)} memories, expected "
            f"0..{len(positions) - 1}, each once: export the corpus again"
        )
    return order
