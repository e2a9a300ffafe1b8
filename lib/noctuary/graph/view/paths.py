"""Explaining how two concepts are connected: every hop with its relation and its evidence."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from noctuary.graph.view.display import memories
from noctuary.graph.view.model import MemoryId, RelationView
from noctuary.graph.view.names import NameBook
from noctuary.graph.view.path_search import (
    COST_UNIT,
    MAX_EXPANDED,
    MAX_HOLDERS,
    MAX_WAYS,
    PathSearch,
    Ways,
)
from noctuary.graph.view.relation_views import positions_of, view_relation
from noctuary.graph.view.relations import RelationReader
from noctuary.graph.view.source import GraphSource

PATHS_SHOWN = 3
"""Equally cheap paths that are explained; the others are counted."""

EVIDENCE_SHOWN = 5
"""Shared memories named per hop, the newest; the others are counted."""

_HUBS_NAMED = 3
_UNNAMED = "(a name that only hidden memories hold)"


class HopView(NamedTuple):
    """One hop of a path.

    Attributes:
        start: Name of the concept it leaves.
        end: Name of the concept it reaches.
        relations: What is stated between the two and holds; empty where shared memories join them.
        shared: Newest memories that hold both; empty where a relation joins them.
        shared_count: How many memories hold both.
    """

    start: str
    end: str
    relations: tuple[RelationView, ...]
    shared: tuple[MemoryId, ...]
    shared_count: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "from": self.start,
            "to": self.end,
            "type": "stated" if self.relations else "shared_memories",
            "relations": [relation.to_json() for relation in self.relations],
            "shared": list(self.shared),
            "shared_count": self.shared_count,
        }


class PathView(NamedTuple):
    """How two concepts are connected.

    Attributes:
        start: Name of the first concept.
        end: Name of the other.
        paths: Equally cheap paths, in the order of their names, at most PATHS_SHOWN.
        found: How many there are (at most MAX_WAYS are counted).
        cost: Of each; 0 where there is none.
        max_hops: Longest path that was looked for.
        bounds: What cut the search short, in words; with any, "none" means "none was found".
    """

    start: str
    end: str
    paths: tuple[tuple[HopView, ...], ...]
    found: int
    cost: float
    max_hops: int
    bounds: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "from": self.start,
            "to": self.end,
            "found": self.found,
            "cost": self.cost,
            "paths": [[hop.to_json() for hop in path] for path in self.paths],
            "max_hops": self.max_hops,
            "bounds": list(self.bounds),
        }


def find_paths(
    source: GraphSource, book: NameBook, start: int, goal: int, max_hops: int
) -> PathView:
    """Return the cheapest paths between two concepts of at most `max_hops` hops (>= 1)."""
    names = (_name(book, start), _name(book, goal))
    if start == goal:
        return PathView(*names, (), 0, 0.0, max_hops, ())
    ways = PathSearch(source, start, goal, max_hops).run()
    chains = sorted(ways.chains, key=lambda chain: ([_name(book, c) for c in chain], chain))
    return PathView(
        *names,
        paths=tuple(
            tuple(_hop(source, book, a, b) for a, b in pairwise(chain))
            for chain in chains[:PATHS_SHOWN]
        ),
        found=len(chains),
        cost=ways.cost / COST_UNIT,
        max_hops=max_hops,
        bounds=_bounds(book, ways),
    )


def _name(book: NameBook, ordinal: int) -> str:
    return book.shown(ordinal) or _UNNAMED


def _hop(source: GraphSource, book: NameBook, start: int, end: int) -> HopView:
    as_of = source.sight.as_of_us
    found = RelationReader(source).around([start])
    stated = [r for r in found if {r.src, r.dst} == {start, end} and r.holds(as_of)]
    both = np.intersect1d(source.holders(start), source.holders(end))
    names = (_name(book, start), _name(book, end))
    if stated:
        ids = source.ids(p for r in stated for p in positions_of(r))
        relations = tuple(view_relation(r, start, names[1], ids) for r in stated)
        return HopView(*names, relations, (), int(both.size))
    created = source.created_at_us(both.tolist())
    newest = sorted(created, key=lambda p: (-created[p], p))[:EVIDENCE_SHOWN]
    ids = source.ids(newest)
    return HopView(*names, (), tuple(ids[p] for p in newest), int(both.size))


def _bounds(book: NameBook, ways: Ways) -> tuple[str, ...]:
    said: list[str] = []
    if ways.gave_up:
        said.append(f"stopped after looking at {MAX_EXPANDED:,} concepts")
    if ways.hubs:
        named = ", ".join(_name(book, hub) for hub in ways.hubs[:_HUBS_NAMED])
        more = len(ways.hubs) - _HUBS_NAMED
        rest = f" and {more} more" if more > 0 else ""
        said.append(f"walked through only the first {memories(MAX_HOLDERS)} of {named}{rest}")
    if ways.uncounted:
        said.append(f"counted only {MAX_WAYS} of the equally short paths")
    return tuple(said)
