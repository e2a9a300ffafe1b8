"""A snapshot with live rows behind its memories and summaries, looked up like one snapshot.

What belongs here: lookups by position. Memories stand below `count`, summaries behind them, live
rows from `first_live` on. What does not: which live rows a recall sees and how they rank
(`overlay`). Made per recall, and only where there are live rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import Positions
from noctuary.recall.reader import SnapshotReader, Words
from noctuary.recall.scope import Facet
from noctuary.recall.summaries import Summaries
from noctuary.types import MemoryRecord

if TYPE_CHECKING:
    from noctuary.graph.supersession.reading import SupersessionIndex

_FACETS = ("wing", "room", "category", "user", "session_id")


class OverlaidReader(SnapshotReader):
    """Answers for live rows itself and hands everything else to the snapshot.

    Attributes:
        base: The snapshot alone.
        rows: The live rows; row i stands at position first_live + i.
        first_live: Memories plus summaries of the snapshot.
        vectors_live: Unit vectors of the rows, (l, d); zeros where there is none (yet).
    """

    def __init__(self, base: SnapshotReader, rows: Sequence[MemoryRecord]) -> None:
        """Share everything that the snapshot has opened; it stays the owner."""
        self.__dict__.update(base.__dict__)
        self.base = base
        self.rows = tuple(rows)
        self.first_live = base.end
        dim = 0 if base.vectors is None else base.vectors.shape[1]
        self.vectors_live: NDArray[np.float32] = np.zeros((len(rows), dim), dtype=np.float32)
        self._created = np.array([r.created_at_us for r in rows], dtype=np.int64)
        self._importance = np.array([r.importance for r in rows], dtype=np.float32)
        self._live_codes: dict[str, NDArray[np.int32]] = {}
        self.facets = {name: self._widened(name, facet) for name, facet in base.facets.items()}

    @property
    def end(self) -> int:
        """The first position that nothing has."""
        return self.first_live + len(self.rows)

    @cached_property
    def summaries(self) -> Summaries:
        """The snapshot's summaries; a live row has full confidence, like a memory."""
        return _SummariesAndLive(self.base.summaries, self.first_live)

    @cached_property
    def summary_vectors(self) -> NDArray[np.float32] | None:
        """Unit vectors of the summaries and of the live rows behind them."""
        known = self.base.summary_vectors
        return None if known is None else np.concatenate([known, self.vectors_live])

    @cached_property
    def summary_words(self) -> Words:
        """Postings of the snapshot's summaries, opened once for all recalls."""
        return self.base.summary_words

    @cached_property
    def superseded(self) -> SupersessionIndex:
        """Which memory of the snapshot replaces which, read once for all recalls."""
        return self.base.superseded

    def describe(self, positions: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return the rows by position; those of the store itself have "live"."""
        wanted = [int(p) for p in positions]
        rows = self.base.describe(p for p in wanted if p < self.first_live)
        return {p: rows[p] if p in rows else self._describe_live(p) for p in wanted}

    def memory_ids(self, positions: Iterable[int]) -> dict[int, str]:
        """Return the id, as text, of each position."""
        wanted = [int(p) for p in positions]
        found = self.base.memory_ids(p for p in wanted if p < self.first_live)
        return {p: found[p] if p in found else self._at(p).memory_id for p in wanted}

    def public_ids(self, positions: Iterable[int]) -> dict[int, int | str]:
        """Return the public id of each position."""
        wanted = [int(p) for p in positions]
        found = self.base.public_ids(p for p in wanted if p < self.first_live)
        live = {p: self.public_id(self._at(p).memory_id) for p in wanted if p not in found}
        return {**found, **live}

    def created_at(self, positions: Positions) -> NDArray[np.int64]:
        """Return creation times."""
        return self._both(self.base.created_at, self._created, positions)

    def importance_at(self, positions: Positions) -> NDArray[np.float32]:
        """Return importance."""
        return self._both(self.base.importance_at, self._importance, positions)

    def codes_at(self, facet: str, positions: Positions) -> NDArray[np.int32]:
        """Return facet codes into `facets`, which knows the live rows' values as well."""
        return self._both(partial(self.base.codes_at, facet), self._live_codes[facet], positions)

    def _at(self, position: int) -> MemoryRecord:
        return self.rows[position - self.first_live]

    def _describe_live(self, position: int) -> dict[str, Any]:
        row = self._at(position)
        tags = tuple(t.strip() for t in row.tags.split(",") if t.strip())
        names = ("memory_id", "content", "category", "importance", "created_at_us", *_FACETS[:2])
        return {
            **{name: getattr(row, name) for name in names},
            "position": position,
            "tags": tags,
            "session_id": row.session_id,
            "user": row.user,
            "is_turn": int(row.is_turn),
            "sources": (),
            "live": True,
        }

    def _both(self, of_snapshot: Any, of_live: NDArray[Any], positions: Positions) -> NDArray[Any]:
        """Return values of snapshot and live positions, in the order asked."""
        live = positions >= self.first_live
        if not live.any():
            return of_snapshot(positions)
        found = np.empty(positions.shape, dtype=of_live.dtype)
        found[~live] = of_snapshot(positions[~live])
        found[live] = of_live[positions[live] - self.first_live]
        return found

    def _widened(self, name: str, facet: Facet) -> Facet:
        """Return a facet that also knows the values of live rows, behind the snapshot's."""
        values = list(facet.values)
        places = {value: code for code, value in enumerate(values)}
        codes: list[int] = []
        for row in self.rows:
            value = getattr(row, name)
            if value is not None and value not in places:
                places[value] = len(values)
                values.append(value)
            codes.append(-1 if value is None else places[value])
        self._live_codes[name] = np.array(codes, dtype=np.int32)
        return facet._replace(values=tuple(values))


class _SummariesAndLive(Summaries):
    """Summaries among positions that may be those of live rows."""

    def __init__(self, base: Summaries, first_live: int) -> None:
        self.__dict__.update(base.__dict__)
        self._base, self._first_live = base, first_live

    def confidences(self, positions: Positions) -> NDArray[np.float64]:
        found = np.ones(positions.size, dtype=np.float64)
        inside = positions < self._first_live
        found[inside] = self._base.confidences(positions[inside])
        return found

    def of_sources(self, positions: Positions) -> Any:
        return self._base.of_sources(positions)
