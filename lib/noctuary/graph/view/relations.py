"""Stated relations of concepts as one scope may see them. No wording, no cutting to a limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from noctuary.foreign_json import parse_json
from noctuary.graph.view.source import GraphSource

_COLUMNS = "src, dst, relation, weight, evidence, valid_from_us, valid_to_us, retracted_at_us"


class SeenRelation(NamedTuple):
    """A stated relation of which at least one statement may be seen.

    Attributes:
        src: Ordinal of the subject.
        dst: Ordinal of the object.
        relation: Its type.
        weight: In (0, 1]; counts only what may be seen.
        positions: Memories that state it and may be seen, ascending, never empty.
        valid_from_us: When the earliest of them was created.
        valid_to_us: Exclusive end, None while it holds or what ended it may not be seen.
        closer: Position of the memory that ended it, or None where it is not known.
    """

    src: int
    dst: int
    relation: str
    weight: float
    positions: tuple[int, ...]
    valid_from_us: int
    valid_to_us: int | None
    closer: int | None

    def holds(self, as_of_us: int | None) -> bool:
        """Say whether it is valid at a moment; None: whether it has not ended."""
        if as_of_us is None:
            return self.valid_to_us is None
        ended = self.valid_to_us is not None and self.valid_to_us <= as_of_us
        return self.valid_from_us <= as_of_us and not ended


class RelationReader:
    """Reads the relations of one source; its sight decides what they say."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source

    def around(self, ordinals: Iterable[int]) -> list[SeenRelation]:
        """Return the relations from or to any of these concepts, each once, in a fixed order.

        With a moment of valid time, only those that held then; else ended ones as well.
        """
        wanted = list(ordinals)
        rows: dict[tuple[Any, ...], None] = {}
        for end in ("src", "dst"):
            sql = f"SELECT {_COLUMNS} FROM concept_edges WHERE {end} IN"
            rows.update(dict.fromkeys(self._source.query_in(sql, wanted)))
        return self._seen(list(rows))

    def everything(self) -> list[SeenRelation]:
        """Return every relation of the graph, as `around` does for some concepts."""
        return self._seen(self._source.query(f"SELECT {_COLUMNS} FROM concept_edges"))

    def _seen(self, rows: Sequence[tuple[Any, ...]]) -> list[SeenRelation]:
        decoded = [_Row.read(row) for row in rows]
        sight = self._source.sight
        decoded = [row for row in decoded if any(sight.seen[p] for p in row.positions)]
        closers = self._closers(row for row in decoded if row.valid_to_us is not None)
        found = [self._as_seen(row, closers) for row in decoded]
        if sight.as_of_us is not None:
            found = [relation for relation in found if relation.holds(sight.as_of_us)]
        return sorted(found, key=lambda r: (r.src, r.relation, r.dst, r.valid_from_us))

    def _as_seen(self, row: _Row, closers: dict[tuple[int, int], list[int]]) -> SeenRelation:
        sight = self._source.sight
        positions = tuple(p for p in row.positions if sight.seen[p])
        weight, valid_from = row.weight, row.valid_from_us
        if len(positions) < len(row.positions):
            weight = 1.0 - 1.0 / (1.0 + len(positions))
            valid_from = min(self._source.created_at_us(positions).values())
        valid_to, closer = self._end_of(row, closers)
        return SeenRelation(
            row.src, row.dst, row.relation, weight, positions, valid_from, valid_to, closer
        )

    def _end_of(
        self, row: _Row, closers: dict[tuple[int, int], list[int]]
    ) -> tuple[int | None, int | None]:
        """Return the end and what made it; an end that only hidden memories know is none."""
        sight = self._source.sight
        if row.valid_to_us is None:
            return None, None
        if sight.known_at_us is not None and (row.retracted_at_us or 0) > sight.known_at_us:
            return None, None
        makers = {m for p in row.positions for m in closers.get((p, row.valid_to_us), ())}
        if not makers:
            return row.valid_to_us, None
        visible = [m for m in makers if sight.allowed[m]]
        return (row.valid_to_us, min(visible)) if visible else (None, None)

    def _closers(self, rows: Iterable[_Row]) -> dict[tuple[int, int], list[int]]:
        """Return the memories that superseded others, by what they superseded and when."""
        sql = "SELECT older, valid_to_us, newer FROM supersessions WHERE older IN"
        closers: dict[tuple[int, int], list[int]] = {}
        for older, valid_to, newer in self._source.query_in(
            sql, (p for row in rows for p in row.positions)
        ):
            closers.setdefault((older, valid_to), []).append(newer)
        return closers


class _Row(NamedTuple):
    src: int
    dst: int
    relation: str
    weight: float
    positions: tuple[int, ...]
    valid_from_us: int
    valid_to_us: int | None
    retracted_at_us: int | None

    @classmethod
    def read(cls, row: Sequence[Any]) -> _Row:
        src, dst, relation, weight, evidence, valid_from, valid_to, retracted = row
        positions = sorted({int(place[0]) for place in parse_json(evidence)})
        return cls(src, dst, relation, weight, tuple(positions), valid_from, valid_to, retracted)
