"""Which memories may be looked at together: of one user and one wing, no turns, no tombstones.

What belongs here: scope, order, and what an earlier finder has already taken. Stricter than recall
and the graph, where a memory without a wing may belong to any: what is written to a source is not
to be guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from noctuary.text.tombstone import is_tombstone
from noctuary.types import MemoryRecord

Scope = tuple[str | None, str | None]
"""User and wing."""


def scope_of(record: MemoryRecord) -> Scope:
    """Return whose it is and where it lives."""
    return record.user, record.wing


def age_key(record: MemoryRecord) -> tuple[int, int]:
    """Return what later means: by date, undated first; of one moment, by position."""
    return record.created_at_us, record.position


def is_open(record: MemoryRecord) -> bool:
    """Say whether a memory may be proposed for anything: no turn, no tombstone."""
    return not record.is_turn and not is_tombstone(record.content)


@dataclass(slots=True)
class Claims:
    """What earlier finders of this night have taken, by position.

    Attributes:
        superseded: Memories that are to become tombstones: nobody looks at them again.
        updated: Memories whose fields are to change: nobody touches them again this time.
    """

    superseded: set[int] = field(default_factory=set[int])
    updated: set[int] = field(default_factory=set[int])

    def free(self, records: Iterable[MemoryRecord]) -> list[MemoryRecord]:
        """Return the memories that nobody has taken."""
        return [r for r in records if not self.holds(r.position)]

    def holds(self, position: int) -> bool:
        """Say whether a memory is taken."""
        return position in self.superseded or position in self.updated


def by_scope(records: Iterable[MemoryRecord]) -> list[list[MemoryRecord]]:
    """Return the memories of each user and wing, each in order of position."""
    groups: defaultdict[Scope, list[MemoryRecord]] = defaultdict(list)
    for record in records:
        groups[scope_of(record)].append(record)
    return [
        sorted(groups[scope], key=lambda record: record.position)
        for scope in sorted(
            groups, key=lambda s: (s[0] or "", s[1] or "", s[0] is None, s[1] is None)
        )
    ]
