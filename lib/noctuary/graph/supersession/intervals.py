"""What supersession ends in the graph: intervals close, nothing is deleted.

What belongs here: the structural guard. What does not: which memories are superseded (`find`).

A superseded memory does not lose its edges for that. What ends is only

- a concept edge whose every piece of evidence is contradicted: the memory it stands in is
  superseded by one that states the same subject and relation with another object and does not
  repeat the old one ("is now" also ends what the subject "is");
- a memory edge that rests on the object inside such a statement, unless the successor leads to the
  same memory;
- for a near duplicate, only a memory edge that the newer memory restates: same concept, relation
  and target. Its facts are the newer one's too, so no concept edge ends.

Order of turns, and edges of other memories that lead to the superseded one, stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from noctuary.graph.model import NO_SPAN, ConceptEdge, Edge, Evidence, Graph, Supersession

CLOSABLE = frozenset({"mentions_subject", "mentions_tag"})
"""Memory edges that rest on what a text says; the order of turns rests on the session."""

ENDED_BY_IS_NOW = frozenset({"is_now", "is_a"})
"""Relations that a different `is_now` of the same subject contradicts. What it has, it may keep."""


class _End(NamedTuple):
    """When something stopped holding, and when the store learned it."""

    valid_to_us: int
    retracted_at_us: int


def close_intervals(graph: Graph, found: Iterable[Supersession]) -> Graph:
    """Return the graph with the intervals closed that the supersessions end.

    The same edges in the same order; closed ones keep their end, so that a second call changes
    nothing.

    Args:
        graph: Any graph.
        found: `Supersessions.found` and `Supersessions.others` of the same corpus.
    """
    successors = _by_older(found)
    if not successors:
        return graph
    statements = _Statements(graph.concept_edges)
    ends = [statements.end_of(edge, successors) for edge in graph.concept_edges]
    steps = _Steps(graph.edges)
    return replace(
        graph,
        concept_edges=tuple(
            _closed_concept_edge(edge, end)
            for edge, end in zip(graph.concept_edges, ends, strict=True)
        ),
        edges=tuple(
            _closed_edge(edge, _step_end(edge, successors, statements, steps))
            for edge in graph.edges
        ),
    )


def _by_older(found: Iterable[Supersession]) -> Mapping[int, list[Supersession]]:
    successors: dict[int, list[Supersession]] = defaultdict(list)
    for item in found:
        successors[item.older_position].append(item)
    return successors


class _Statements:
    """Which memory states what, by subject and relation."""

    def __init__(self, edges: Iterable[ConceptEdge]) -> None:
        self._objects: dict[tuple[int, str, str], set[str]] = defaultdict(set)
        self._edges_at: dict[int, list[tuple[ConceptEdge, Evidence]]] = defaultdict(list)
        for edge in edges:
            for evidence in edge.evidence:
                key = (evidence.position, edge.src_concept, edge.relation)
                self._objects[key].add(edge.dst_concept)
                self._edges_at[evidence.position].append((edge, evidence))

    def end_of(
        self, edge: ConceptEdge, successors: Mapping[int, list[Supersession]]
    ) -> _End | None:
        """Return when the last of its evidence was contradicted, None where some still stands."""
        ends: list[_End] = []
        for evidence in edge.evidence:
            end = self._contradicted(edge, successors.get(evidence.position, ()))
            if end is None:
                return None
            ends.append(end)
        return _End(max(e.valid_to_us for e in ends), max(e.retracted_at_us for e in ends))

    def under(self, position: int, concept: str, start: int, end: int) -> Iterable[ConceptEdge]:
        """Yield the statements of a memory whose object stands at a span."""
        for edge, evidence in self._edges_at.get(position, ()):
            if edge.dst_concept == concept and evidence.start <= start and end <= evidence.end:
                yield edge

    def contradicts(self, edge: ConceptEdge, item: Supersession) -> bool:
        """Say whether the newer memory states another object for the same subject and relation."""
        if item.reason == "near_duplicate":
            return False
        if item.reason != "explicit" and item.concept_id != edge.src_concept:
            return False
        stated = self._stated(item.newer_position, edge.src_concept, edge.relation)
        if edge.relation in ENDED_BY_IS_NOW:
            stated = stated | self._stated(item.newer_position, edge.src_concept, "is_now")
        return bool(stated) and edge.dst_concept not in stated

    def _stated(self, position: int, subject: str, relation: str) -> set[str]:
        return self._objects.get((position, subject, relation), set())

    def _contradicted(self, edge: ConceptEdge, items: Iterable[Supersession]) -> _End | None:
        ends = [
            _End(item.valid_to_us, item.recorded_at_us)
            for item in items
            if self.contradicts(edge, item)
        ]
        # The first contradiction ended it; later ones only say more.
        return min(ends, default=None)


class _Steps:
    """Which steps every memory offers."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._targets = {(e.src_position, e.dst_position) for e in edges}
        self._steps = {(e.src_position, e.dst_position, e.relation, e.concept_id) for e in edges}

    def leads(self, source: int, edge: Edge) -> bool:
        """Say whether a memory leads to the edge's target by any relation."""
        return source == edge.dst_position or (source, edge.dst_position) in self._targets

    def restates(self, source: int, edge: Edge) -> bool:
        """Say whether a memory has the same edge: concept, relation and target."""
        return (source, edge.dst_position, edge.relation, edge.concept_id) in self._steps


def _step_end(
    edge: Edge,
    successors: Mapping[int, list[Supersession]],
    statements: _Statements,
    steps: _Steps,
) -> _End | None:
    if edge.relation not in CLOSABLE or edge.evidence_position != edge.src_position:
        return None
    items = successors.get(edge.src_position, ())
    ends = [
        _End(item.valid_to_us, item.recorded_at_us)
        for item in items
        if _ends_step(edge, item, statements, steps)
    ]
    return min(ends, default=None)


def _ends_step(edge: Edge, item: Supersession, statements: _Statements, steps: _Steps) -> bool:
    newer = item.newer_position
    if item.reason == "near_duplicate":
        return steps.restates(newer, edge)
    if edge.evidence_start == NO_SPAN or steps.leads(newer, edge):
        return False
    resting_on = statements.under(
        edge.src_position, edge.concept_id, edge.evidence_start, edge.evidence_end
    )
    return any(statements.contradicts(statement, item) for statement in resting_on)


def _closed_concept_edge(edge: ConceptEdge, end: _End | None) -> ConceptEdge:
    if end is None or edge.valid_to_us is not None:
        return edge
    return replace(
        edge,
        valid_to_us=max(end.valid_to_us, edge.valid_from_us),
        retracted_at_us=end.retracted_at_us,
    )


def _closed_edge(edge: Edge, end: _End | None) -> Edge:
    if end is None or edge.valid_to_us is not None:
        return edge
    # An edge begins with the later of its two memories, which may be later than what ended it.
    return replace(
        edge,
        valid_to_us=max(end.valid_to_us, edge.valid_from_us),
        retracted_at_us=end.retracted_at_us,
    )
