"""The size of a set's co-occurrence graph, counted without writing its edges down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bench.arms.cooccurrence import CooccurrenceGraph

REFERENCE = {"memories": 5452, "concepts": 19907, "edges": 2095624, "mean_degree": 768.8}
"""What the reference reports of its own graph (hybrid-recall-design B.4)."""


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """Size of a graph.

    Attributes:
        memories: Nodes, isolated ones included.
        isolated: Memories without an edge.
        concepts_extracted: Distinct concepts before pruning by document frequency.
        concepts: Concepts that join memories.
        edges: Undirected memory-memory edges.
        mean_degree: Edge ends per memory.
        size_bytes: Bytes of the sparse arrays that stand for all of it.
    """

    memories: int
    isolated: int
    concepts_extracted: int
    concepts: int
    edges: int
    mean_degree: float
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def graph_statistics(graph: CooccurrenceGraph) -> GraphStatistics:
    """Count a graph's nodes and edges."""
    degrees = [graph.neighbours(row)[0].size for row in range(graph.n_memories)]
    ends = sum(degrees)
    return GraphStatistics(
        memories=graph.n_memories,
        isolated=degrees.count(0),
        concepts_extracted=graph.n_extracted,
        concepts=graph.n_concepts,
        edges=ends // 2,
        mean_degree=round(ends / graph.n_memories, 1) if graph.n_memories else 0.0,
        size_bytes=graph.size_bytes,
    )
