"""The most connected concepts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from noctuary.graph.view.names import NameBook
from noctuary.graph.view.relations import RelationReader
from noctuary.graph.view.source import GraphSource


class TopView(NamedTuple):
    """A concept and how it is connected.

    Attributes:
        name: Its name.
        kind: Its kind.
        memories: Memories that hold it.
        relations: Stated relations from or to it that hold.
        steps: Steps between memories that rest on it and hold.
    """

    name: str
    kind: str
    memories: int
    relations: int
    steps: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self._asdict())


def top_concepts(
    source: GraphSource, book: NameBook, limit: int, kind: str | None = None
) -> tuple[TopView, ...]:
    """Return the most connected concepts, at most `limit`.

    By relations and steps together, then by memories that hold them, then by ordinal.

    Args:
        source: The graph.
        book: Its names.
        limit: How many, >= 0.
        kind: Only concepts of this kind; None for all.
    """
    held, size = source.frequencies, source.concept_count
    relations = np.zeros(size, dtype=np.int64)
    as_of = source.sight.as_of_us
    for relation in RelationReader(source).everything():
        if relation.holds(as_of):
            relations[[relation.src, relation.dst]] += 1
    resting = source.steps["concepts"][source.steps_that_hold]
    steps = np.bincount(resting[resting >= 0], minlength=size)
    wanted = held > 0
    kinds: dict[int, str] = dict(source.query("SELECT ordinal, kind FROM concepts"))
    if kind is not None:
        wanted &= np.array([kinds[i] == kind for i in range(size)], dtype=np.bool_)
    chosen = np.flatnonzero(wanted)
    order = np.lexsort((chosen, -held[chosen], -(relations + steps)[chosen]))
    views: list[TopView] = []
    for ordinal in chosen[order].tolist():
        if len(views) == limit:
            break
        name = book.shown(ordinal)
        if name is not None:
            counts = (int(held[ordinal]), int(relations[ordinal]), int(steps[ordinal]))
            views.append(TopView(name, kinds[ordinal], *counts))
    return tuple(views)


def kinds_of(source: GraphSource) -> tuple[str, ...]:
    """Return the kinds of the concepts that may be seen, sorted."""
    held = source.frequencies > 0
    rows = source.query("SELECT ordinal, kind FROM concepts")
    return tuple(sorted({str(kind) for ordinal, kind in rows if held[ordinal]}))
