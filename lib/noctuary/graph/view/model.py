"""What a look at the graph returns: plain values that texts, charts and JSON are made of.

Moments are microseconds since the epoch; None where there is none. Ids are the source's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from noctuary.graph.view.display import iso

MemoryId = int | str


class MergeView(NamedTuple):
    """Two names that are one concept, and why.

    Attributes:
        name: Folded name that was merged away.
        canonical: Folded name that stands for it.
        reason: "alias", "minhash", "embedding" or "rule".
        score: Jaccard or cosine in [0, 1]; 1 for aliases and rules.
        detail: What was compared, or which rule.
    """

    name: str
    canonical: str
    reason: str
    score: float
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self._asdict())


class MemoryView(NamedTuple):
    """One memory that holds the concept.

    Attributes:
        memory_id: Its id.
        created_at_us: When it came about.
        role: Its strongest role.
        line: The line of its content that holds the evidence, else its first line.
        start: First character of the evidence in the line, or -1 where an author field holds it.
        end: One past its last character, or -1.
        replaced_by: The memory that superseded it, or None.
        replaced_at_us: When that was.
    """

    memory_id: MemoryId
    created_at_us: int
    role: str
    line: str
    start: int
    end: int
    replaced_by: MemoryId | None
    replaced_at_us: int | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "id": self.memory_id,
            "created_at": iso(self.created_at_us),
            "role": self.role,
            "line": self.line,
            "span": None if self.start < 0 else [self.start, self.end],
            "replaced_by": self.replaced_by,
            "replaced_at": iso(self.replaced_at_us),
        }


class RelationView(NamedTuple):
    """A relation that memories state between the concept and another.

    Attributes:
        relation: Its type.
        outward: Whether the concept is its subject.
        other: Name of the other concept.
        other_ordinal: Which concept that is.
        weight: In (0, 1], 1 - 1 / (1 + number of memories that state it).
        evidence: The memories that state it and may be seen.
        valid_from_us: When the earliest of them was created.
        valid_to_us: Exclusive end, None while it holds.
        closed_by: The memory that ended it, or None where it is not known.
    """

    relation: str
    outward: bool
    other: str
    other_ordinal: int
    weight: float
    evidence: tuple[MemoryId, ...]
    valid_from_us: int
    valid_to_us: int | None
    closed_by: MemoryId | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "relation": self.relation,
            "direction": "out" if self.outward else "in",
            "other": self.other,
            "weight": round(self.weight, 6),
            "evidence": list(self.evidence),
            "valid_from": iso(self.valid_from_us),
            "valid_to": iso(self.valid_to_us),
            "open": self.valid_to_us is None,
            "closed_by": self.closed_by,
        }


class NeighbourView(NamedTuple):
    """A concept that the same memories hold.

    Attributes:
        name: Its name.
        ordinal: Which concept it is.
        kind: Its kind.
        shared: Memories that hold both.
        held: Memories that hold it.
        score: shared / held ** SPECIFICITY_POWER (`noctuary.graph.view.neighbours`).
    """

    name: str
    ordinal: int
    kind: str
    shared: int
    held: int
    score: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "shared": self.shared,
            "held": self.held,
            "score": round(self.score, 6),
        }


class StepView(NamedTuple):
    """A memory that others lead to over the concept.

    Attributes:
        memory_id: The memory led to.
        created_at_us: When it came about.
        line: Its first line.
        relation: How: the type of the strongest step.
        sources: Number of memories that lead there.
        weight: The strongest step's weight, in (0, 1].
    """

    memory_id: MemoryId
    created_at_us: int
    line: str
    relation: str
    sources: int
    weight: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "id": self.memory_id,
            "created_at": iso(self.created_at_us),
            "line": self.line,
            "relation": self.relation,
            "sources": self.sources,
            "weight": round(self.weight, 6),
        }


class ConceptView(NamedTuple):
    """One concept with everything around it; lists are cut to a limit, totals are not.

    Attributes:
        name: Its name.
        kind: Its strongest kind.
        concept_id: 16 hex digits.
        aliases: Other spellings, sorted.
        held: Memories that hold it.
        roles: Number of those memories by role, strongest role first.
        merges: Names that were merged into it.
        memories: By role, then newest first.
        relations: Open ones first, then the newest.
        neighbours: Best score first.
        steps: Most sources first.
        totals: Length of each list before it was cut, by name.
        as_of_us: The moment of valid time that is shown, or None for now.
        known_at_us: The moment of transaction time, or None for now.
    """

    name: str
    kind: str
    concept_id: str
    aliases: tuple[str, ...]
    held: int
    roles: dict[str, int]
    merges: tuple[MergeView, ...]
    memories: tuple[MemoryView, ...]
    relations: tuple[RelationView, ...]
    neighbours: tuple[NeighbourView, ...]
    steps: tuple[StepView, ...]
    totals: dict[str, int]
    as_of_us: int | None = None
    known_at_us: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        lists = ("merges", "memories", "relations", "neighbours", "steps")
        return {
            "concept": {
                "name": self.name,
                "kind": self.kind,
                "concept_id": self.concept_id,
                "aliases": list(self.aliases),
                "memories": self.held,
                "roles": dict(self.roles),
            },
            **{name: [item.to_json() for item in getattr(self, name)] for name in lists},
            "totals": dict(self.totals),
            "as_of": iso(self.as_of_us),
            "known_at": iso(self.known_at_us),
        }
