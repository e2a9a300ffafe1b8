"""The graph of one snapshot as it lies on disk: a SQLite file and arrays. No scope, no wording."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.view.sight import Sight

MENTION_FIELDS = ("indptr", "positions", "roles", "starts", "ends")
STEP_FIELDS = (
    "indptr", "targets", "weights", "relations", "concepts", "valid_from_us", "valid_to_us",
    "recorded_at_us", "retracted_at_us",
)  # fmt: skip

_SQL_VARIABLES = 500  # below SQLite's oldest limit of 999
_AUTHOR_FIELDS = "tags, category, expanded_keywords, wing, room, session_id, user"


class Arrays(NamedTuple):
    """The arrays of a graph, M mentions of C concepts and E steps between n memories.

    Attributes:
        mentions: By MENTION_FIELDS: `indptr` (C+1,), the others (M,), sorted by concept, position.
        steps: By STEP_FIELDS: `indptr` (n+1,), the others (E,), sorted by source.
    """

    mentions: Mapping[str, NDArray[Any]]
    steps: Mapping[str, NDArray[Any]]


class Held(NamedTuple):
    """Pairs of a concept and a memory that holds it, each once; both int64 (k,), by concept."""

    concepts: NDArray[np.int64]
    positions: NDArray[np.int64]


class GraphSource:
    """What one scope may see of the graph of one snapshot."""

    def __init__(
        self,
        rows: sqlite3.Connection,
        arrays: Arrays,
        sight: Sight,
        relations: Sequence[str],
        *,
        ids_are_integers: bool,
    ) -> None:
        """Wrap an opened snapshot.

        Args:
            rows: Its tables.
            arrays: Its arrays.
            sight: Which memories may be seen.
            relations: Names of the step relations by code.
            ids_are_integers: Whether the source's own ids are numbers.
        """
        self._rows = rows
        self.mentions = arrays.mentions
        self.steps = arrays.steps
        self.sight = sight
        self.relations = tuple(relations)
        self._ids_are_integers = ids_are_integers

    @property
    def concept_count(self) -> int:
        """Concepts of the snapshot, whether they may be seen or not."""
        return int(self.mentions["indptr"].size) - 1

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self._rows.execute(sql, values).fetchall()

    def query_in(self, sql: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement that ends in `IN`, for any number of values."""
        wanted = list(dict.fromkeys(values))
        for start in range(0, len(wanted), _SQL_VARIABLES):
            chunk = wanted[start : start + _SQL_VARIABLES]
            yield from self.query(f"{sql} ({','.join('?' * len(chunk))})", chunk)

    def ids(self, positions: Iterable[int]) -> dict[int, int | str]:
        """Return the public id of each position."""
        found = self.query_in(
            "SELECT position, memory_id FROM memories WHERE position IN", map(int, positions)
        )
        return {p: int(i) if self._ids_are_integers else i for p, i in found}

    def contents(self, positions: Iterable[int]) -> dict[int, str]:
        """Return the text of each position."""
        sql = "SELECT position, content FROM memories WHERE position IN"
        return dict(self.query_in(sql, map(int, positions)))

    def author_fields(self, positions: Iterable[int]) -> dict[int, str]:
        """Return what stands in the author fields of each position, as one text."""
        sql = f"SELECT position, {_AUTHOR_FIELDS} FROM memories WHERE position IN"
        return {
            position: "\n".join(value for value in fields if value)
            for position, *fields in self.query_in(sql, map(int, positions))
        }

    def created_at_us(self, positions: Iterable[int]) -> dict[int, int]:
        """Return when each position came about, in microseconds; UNDATED_US where unknown."""
        sql = "SELECT position, created_at_us FROM memories WHERE position IN"
        return dict(self.query_in(sql, map(int, positions)))

    def rows_of(self, ordinal: int) -> slice:
        """Return where the mentions of a concept lie."""
        indptr = self.mentions["indptr"]
        return slice(int(indptr[ordinal]), int(indptr[ordinal + 1]))

    def holders(self, ordinal: int) -> NDArray[np.int64]:
        """Return the memories that hold a concept and may be seen, ascending."""
        positions = np.unique(self.mentions["positions"][self.rows_of(ordinal)])
        return positions[self.sight.seen[positions]].astype(np.int64)

    @cached_property
    def held(self) -> Held:
        """Every concept with every memory that holds it and may be seen."""
        positions = self.mentions["positions"]
        indptr = self.mentions["indptr"]
        first = np.ones(positions.size, dtype=np.bool_)
        first[1:] = positions[1:] != positions[:-1]
        first[indptr[:-1][indptr[:-1] < positions.size]] = True
        concepts = np.repeat(np.arange(self.concept_count, dtype=np.int64), np.diff(indptr))
        kept = first & self.sight.seen[positions]
        return Held(concepts[kept], positions[kept].astype(np.int64))

    @cached_property
    def frequencies(self) -> NDArray[np.int64]:
        """Memories per concept that hold it and may be seen, int64 (C,)."""
        return np.bincount(self.held.concepts, minlength=self.concept_count).astype(np.int64)

    @cached_property
    def steps_that_hold(self) -> NDArray[np.int64]:
        """Return indexes of the steps between memories that may be seen and that hold, (h,)."""
        ends = self.sight.effective_ends(self.steps["valid_to_us"], self.steps["retracted_at_us"])
        holds = self.sight.holds(self.steps["valid_from_us"], ends)
        holds &= self.sight.is_known(self.steps["recorded_at_us"])
        holds &= self.sight.seen[self.steps["targets"]] & self.sight.seen[self.step_sources]
        return np.flatnonzero(holds)

    @cached_property
    def step_sources(self) -> NDArray[np.int64]:
        """The memory from which each step starts, int64 (E,)."""
        indptr = self.steps["indptr"]
        return np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))
