"""Describing one concept: everything around it that a scope may see, cut to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noctuary.graph.arrays import ROLES
from noctuary.graph.view.lines import evidence_line
from noctuary.graph.view.merges import merges_into
from noctuary.graph.view.model import (
    ConceptView,
    MemoryView,
    NeighbourView,
    RelationView,
    StepView,
)
from noctuary.graph.view.names import NameBook
from noctuary.graph.view.neighbours import Neighbours, neighbours_of, targets_of
from noctuary.graph.view.relation_views import positions_of, view_relation
from noctuary.graph.view.relations import RelationReader
from noctuary.graph.view.source import GraphSource


def describe_concept(source: GraphSource, book: NameBook, ordinal: int, limit: int) -> ConceptView:
    """Return a concept that `book.find` found, its lists cut to a limit (>= 0)."""
    names = book.names(ordinal)
    if names is None:
        raise ValueError(f"found concept {ordinal}, expected one that may be seen")
    ((concept_id, kind),) = source.query(
        "SELECT concept_id, kind FROM concepts WHERE ordinal = ?", [ordinal]
    )
    holds = _strongest_mentions(source, ordinal)
    relations = _relations(source, book, ordinal)
    neighbours, neighbour_count = _neighbours(source, book, neighbours_of(source, ordinal), limit)
    steps, step_count = _steps(source, ordinal, limit)
    merges = merges_into(source, names)
    return ConceptView(
        name=names.shown,
        kind=str(kind),
        concept_id=str(concept_id),
        aliases=names.aliases,
        held=len(holds),
        roles=_roles(source, ordinal),
        merges=merges,
        memories=_memories(source, holds[:limit]),
        relations=tuple(relations[:limit]),
        neighbours=neighbours,
        steps=steps,
        totals={
            "merges": len(merges),
            "memories": len(holds),
            "relations": len(relations),
            "neighbours": neighbour_count,
            "steps": step_count,
        },
        as_of_us=source.sight.as_of_us,
        known_at_us=source.sight.known_at_us,
    )


class _Hold(NamedTuple):
    """The strongest and first place where a memory holds the concept."""

    position: int
    role: int
    start: int
    end: int


def _strongest_mentions(source: GraphSource, ordinal: int) -> list[_Hold]:
    """Return one place per memory, by role, then newest first."""
    rows = source.rows_of(ordinal)
    columns = [source.mentions[f][rows].tolist() for f in ("positions", "roles", "starts", "ends")]
    best: dict[int, _Hold] = {}
    for position, role, start, end in zip(*columns, strict=True):
        hold = _Hold(position, role, start, end)
        if source.sight.seen[position] and (
            position not in best or _strength(hold) < _strength(best[position])
        ):
            best[position] = hold
    created = source.created_at_us(best)
    return sorted(best.values(), key=lambda h: (h.role, -created[h.position], h.position))


def _strength(hold: _Hold) -> tuple[int, bool, int]:
    # A span says more than an author field of the same role.
    return hold.role, hold.start < 0, hold.start


def _roles(source: GraphSource, ordinal: int) -> dict[str, int]:
    rows = source.rows_of(ordinal)
    positions, roles = source.mentions["positions"][rows], source.mentions["roles"][rows]
    seen = source.sight.seen[positions]
    counts = {
        name: int(np.unique(positions[seen & (roles == code)]).size)
        for code, name in enumerate(ROLES)
    }
    return {name: count for name, count in counts.items() if count}


def _memories(source: GraphSource, holds: Sequence[_Hold]) -> tuple[MemoryView, ...]:
    positions = [hold.position for hold in holds]
    replaced = _replacements(source, positions)
    ids = source.ids([*positions, *(newer for newer, _ in replaced.values())])
    contents, created = source.contents(positions), source.created_at_us(positions)
    found: list[MemoryView] = []
    for position, role, start, end in holds:
        newer, when = replaced.get(position, (None, None))
        line = evidence_line(contents[position], start, end)
        replaced_by = None if newer is None else ids[newer]
        found.append(
            MemoryView(ids[position], created[position], ROLES[role], *line, replaced_by, when)
        )
    return tuple(found)


def _replacements(source: GraphSource, positions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the newest memory that may be seen and replaced each of these, and when."""
    sight = source.sight
    found: dict[int, tuple[int, int]] = {}
    sql = "SELECT older, newer, valid_to_us FROM supersessions WHERE older IN"
    for older, newer, when in source.query_in(sql, positions):
        happened = sight.as_of_us is None or when <= sight.as_of_us
        if happened and sight.allowed[newer]:
            found[older] = max(found.get(older, (newer, when)), (newer, when), key=_by_moment)
    return found


def _by_moment(replacement: tuple[int, int]) -> tuple[int, int]:
    newer, when = replacement
    return when, newer


def _relations(source: GraphSource, book: NameBook, ordinal: int) -> list[RelationView]:
    """Return the relations whose other end may be named: open ones first, then the newest."""
    views: list[RelationView] = []
    found = RelationReader(source).around([ordinal])
    ids = source.ids(p for relation in found for p in positions_of(relation))
    for relation in found:
        other = relation.dst if relation.src == ordinal else relation.src
        name = book.shown(other)
        if name is not None:
            views.append(view_relation(relation, ordinal, name, ids))
    return sorted(
        views,
        key=lambda v: (
            v.valid_to_us is not None, -v.valid_from_us, v.relation, not v.outward, v.other
        ),
    )  # fmt: skip


def _neighbours(
    source: GraphSource, book: NameBook, found: Neighbours, limit: int
) -> tuple[tuple[NeighbourView, ...], int]:
    """Return the best neighbours that may be named, and how many there are in all."""
    views: list[NeighbourView] = []
    for ordinal, shared, held, score in zip(*(column.tolist() for column in found), strict=True):
        if len(views) == limit:
            break
        name = book.shown(ordinal)
        if name is not None:
            kind = source.query("SELECT kind FROM concepts WHERE ordinal = ?", [ordinal])[0][0]
            views.append(NeighbourView(name, ordinal, str(kind), shared, held, score))
    return tuple(views), int(found.ordinals.size)


def _steps(source: GraphSource, ordinal: int, limit: int) -> tuple[tuple[StepView, ...], int]:
    targets = targets_of(source, ordinal)
    positions = targets.positions[:limit].tolist()
    ids, contents = source.ids(positions), source.contents(positions)
    created = source.created_at_us(positions)
    views = tuple(
        StepView(
            memory_id=ids[position],
            created_at_us=created[position],
            line=evidence_line(contents[position], -1, -1).text,
            relation=source.relations[int(targets.relations[i])],
            sources=int(targets.sources[i]),
            weight=float(targets.weights[i]),
        )
        for i, position in enumerate(positions)
    )
    return views, int(targets.positions.size)
