"""A proposal: what could be done to some memories of a source, and why. Holds no text of them.

What belongs here: the nouns and the stable ids. What does not: finding (`propose`), writing
(`apply`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from noctuary.hashing import hash_json, hash_text
from noctuary.types import MemoryRecord

Action = Literal["ADD", "UPDATE", "SUPERSEDE", "NOOP"]
"""ADD: a new row, made of the targets' own words; UPDATE: fields of a row that stays; SUPERSEDE:
tombstones alone; NOOP: looked at and left alone. ADD and UPDATE supersede other targets as well."""

Kind = Literal[
    "exact_duplicate", "fragments", "superseded", "near_duplicate", "contradiction", "tombstone"
]
Role = Literal["superseded", "updated", "kept", "looked_at"]
"""What becomes of a target: a tombstone; other fields; it stays as it is (and must be there, and
unchanged, when the others are written); nothing."""

ACTIONS: tuple[str, ...] = get_args(Action)
KINDS: tuple[str, ...] = get_args(Kind)

ID_CHARS = 16
"""Of the hash, in an id: 64 bits among at most millions of proposals."""

_VERSION = "curation/1"


class Target(NamedTuple):
    """One memory that a proposal is about.

    Attributes:
        memory_id: The source's id, as text.
        position: In the corpus of that night.
        role: One of Role.
        content_hash: Of every field of the memory, when it was looked at.
        text_hash: Of its content alone: what another copy of the source must have.
    """

    memory_id: str
    position: int
    role: Role
    content_hash: str
    text_hash: str


class Piece(NamedTuple):
    """A stretch of one memory's content, for a text that is joined from several.

    Attributes:
        before: Separator that goes before it: punctuation and spaces, no text.
        memory_id: The memory.
        start: First character.
        end: One past the last one.
    """

    before: str
    memory_id: str
    start: int
    end: int


class Span(NamedTuple):
    """Where a memory says what the proposal rests on: characters [start, end); -1 where unknown."""

    memory_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why.

    Attributes:
        reason: One sentence for people, without any text of a memory.
        spans: Where it is said.
        cosine: Of the two memories' vectors, in [-1, 1], or None.
        shingles: Jaccard of their character trigrams, in [0, 1], or None.
    """

    reason: str
    spans: tuple[Span, ...] = ()
    cosine: float | None = None
    shingles: float | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What could be done.

    Attributes:
        action: One of Action.
        kind: What the targets are to each other.
        confidence: In [0, 1]: how sure it is that they are what `kind` says.
        user: Whose memories they are, all of them, or None for nobody's.
        wing: The wing of all of them, or None.
        targets: In order of position.
        evidence: Why.
        pieces: The joined text of an ADD, in order; empty for every other action.
        fields: Fields of the target `updated` that an UPDATE fills up from the superseded ones.
        proposal_id: Hash of all of the above that decides what would be written; set by `named`.
    """

    action: Action
    kind: Kind
    confidence: float
    user: str | None
    wing: str | None
    targets: tuple[Target, ...]
    evidence: Evidence
    pieces: tuple[Piece, ...] = ()
    fields: tuple[str, ...] = ()
    proposal_id: str = ""

    @property
    def memory_ids(self) -> tuple[str, ...]:
        """Return the ids of all targets."""
        return tuple(target.memory_id for target in self.targets)

    def having(self, *roles: Role) -> tuple[Target, ...]:
        """Return the targets with one of some roles."""
        return tuple(target for target in self.targets if target.role in roles)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            **asdict(self),
            "targets": [target._asdict() for target in self.targets],
            "evidence": {**asdict(self.evidence), "spans": _dicts(self.evidence.spans)},
            "pieces": _dicts(self.pieces),
            "fields": list(self.fields),
        }


def target_of(record: MemoryRecord, role: Role) -> Target:
    """Return a memory in its role."""
    text_hash = hash_text(record.content)
    return Target(record.memory_id, record.position, role, record.content_hash, text_hash)


def named(proposal: Proposal) -> Proposal:
    """Return the proposal with its targets in order and its id.

    The id depends on what would be done to which contents: the same corpus gives the same ids, and
    an edited memory gives others. Positions, confidence and evidence do not count.
    """
    ordered = sorted(proposal.targets, key=lambda target: target.position)
    identity = {
        "version": _VERSION,
        "action": proposal.action,
        "kind": proposal.kind,
        "targets": sorted([t.memory_id, t.role, t.content_hash] for t in ordered),
        "pieces": _dicts(proposal.pieces),
        "fields": list(proposal.fields),
    }
    return replace(proposal, targets=tuple(ordered), proposal_id=hash_json(identity)[:ID_CHARS])


def _dicts(items: Sequence[Piece] | Sequence[Span]) -> list[dict[str, Any]]:
    return [item._asdict() for item in items]
