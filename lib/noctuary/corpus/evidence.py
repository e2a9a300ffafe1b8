"""What a store says about its own memories: links, concepts, edges, shares.

What belongs here: the nouns, and the protocol of a source that has them. What does not: how one
kind of store is asked, what of it leaves the store (`noctuary.corpus.evidence_tables`: only what is
about exported memories), what the graph makes of it.

Links and edges are evidence, not truth: a server's concepts were found by a model of its own
(research/peers.md 2.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

SUPERSEDES = "supersedes"
PART_OF = "part-of"
SEE_ALSO = "see-also"
RESOLVED_BY = "resolved-by"
LINK_TYPES = (PART_OF, SUPERSEDES, SEE_ALSO, RESOLVED_BY)
"""Of memory_links (claude-memory, migration 006); of supersedes the first memory is the newer."""


@dataclass(frozen=True, slots=True)
class MemoryLink:
    """One memory points at another.

    Attributes:
        from_id: The memory that points, as `MemoryRecord.memory_id`.
        to_id: The memory that is pointed at.
        link_type: One of LINK_TYPES.
        created_at_us: When it was made; UNDATED_US where unknown.
        user: Whose link it is, or None.
    """

    from_id: str
    to_id: str
    link_type: str
    created_at_us: int
    user: str | None


@dataclass(frozen=True, slots=True)
class KnownConcept:
    """A concept that the store names.

    Attributes:
        name: Its canonical name.
        aliases: Other names.
        category: The store's own kind, possibly empty.
    """

    name: str
    aliases: tuple[str, ...]
    category: str


@dataclass(frozen=True, slots=True)
class KnownMention:
    """A memory that is about a concept, as the store has it."""

    memory_id: str
    concept: str
    relation: str


@dataclass(frozen=True, slots=True)
class KnownEdge:
    """A relation between two concepts, and the memories that say so.

    Attributes:
        source: Canonical name of the concept it starts from.
        target: Canonical name of the concept it leads to.
        relation: As the store names it.
        weight: The store's own weight, >= 0.
        evidence: Ids of memories; one without any is of no use and dropped.
    """

    source: str
    target: str
    relation: str
    weight: int
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """A memory of one user that another may read (memory_shares, and tag_shares spelled out)."""

    memory_id: str
    shared_with: str


@runtime_checkable
class HasEvidence(Protocol):
    """A source that says more about its memories than their rows; all of one pinned state."""

    def links(self) -> Iterator[MemoryLink]:
        """Yield every link between memories that are there."""
        ...

    def concepts(self) -> Iterator[KnownConcept]:
        """Yield every concept."""
        ...

    def mentions(self) -> Iterator[KnownMention]:
        """Yield which memory is about which concept."""
        ...

    def edges(self) -> Iterator[KnownEdge]:
        """Yield every relation between concepts."""
        ...

    def shares(self) -> Iterator[Share]:
        """Yield who else may read which memory."""
        ...
