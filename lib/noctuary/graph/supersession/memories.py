"""What every source asks of two memories: do their scopes agree, and which one is newer.

Decided here, as for recall (`noctuary.recall.phases.supersede`): both belong to the same user, or
to nobody; wings that differ keep both, and a memory without a wing may belong to any.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple, Protocol

from noctuary.graph.extraction import Extraction
from noctuary.types import UNDATED_US, MemoryRecord

_LAST = 2**63
"""After every position."""


class Moment(NamedTuple):
    """When a memory was made; positions order those of one moment."""

    created_at_us: int
    position: int


class Placed(Protocol):
    """Whatever tells when and whose a memory is: a MemoryRecord, or a `columns.Sighting`."""

    @property
    def position(self) -> int:
        """Row of the corpus."""
        ...

    @property
    def user(self) -> str | None:
        """Whose memory it is; None or "" for nobody's."""
        ...

    @property
    def wing(self) -> str | None:
        """Its wing; None or "" for none."""
        ...

    @property
    def created_at_us(self) -> int:
        """Microseconds since the epoch, or UNDATED_US."""
        ...


class Memory(NamedTuple):
    """A memory and what was found in it."""

    record: MemoryRecord
    extraction: Extraction


Memories = Mapping[int, Memory]
"""By position, in ascending order of position whatever the order of the input. All memories of a
small corpus (`line_up`), or the few that state something (`corpus.Corpus`)."""


def line_up(records: Sequence[MemoryRecord], extractions: Sequence[Extraction]) -> Memories:
    """Return the memories by position.

    Raises:
        ValueError: The two do not line up, or two memories share a position.
    """
    if len(records) != len(extractions):
        raise ValueError(
            f"found {len(extractions)} extractions for {len(records)} memories, expected one each"
        )
    pairs = zip(records, extractions, strict=True)
    memories = {r.position: Memory(r, e) for r, e in sorted(pairs, key=lambda p: p[0].position)}
    if len(memories) != len(records):
        raise ValueError(
            f"found {len(memories)} positions for {len(records)} memories, expected one each: "
            "export the corpus again"
        )
    return memories


def owner_of(record: Placed) -> str:
    """Return whose memory it is; "" for nobody's."""
    return record.user or ""


def wing_of(record: Placed) -> str:
    """Return its wing; "" for a memory without one."""
    return record.wing or ""


def wings_agree(one: str, other: str) -> bool:
    """Say whether two memories of these wings may replace one another."""
    return one == other or not one or not other


def in_scope(one: Placed, other: Placed) -> bool:
    """Say whether the two belong to one user and to wings that agree."""
    return owner_of(one) == owner_of(other) and wings_agree(wing_of(one), wing_of(other))


def is_dated(record: Placed) -> bool:
    """Say whether it is known when the memory was made."""
    return record.created_at_us != UNDATED_US


def moment_of(record: Placed) -> Moment:
    """Return what newer and newest mean."""
    return Moment(record.created_at_us, record.position)


class Timeline:
    """Dated memories of one user by wing, to be asked for the next or the last one in scope."""

    def __init__(self, records: Iterable[Placed]) -> None:
        self._by_wing: dict[str, list[Moment]] = defaultdict(list)
        for record in records:
            if is_dated(record):
                self._by_wing[wing_of(record)].append(moment_of(record))
        for line in self._by_wing.values():
            line.sort()

    def later(self, record: Placed) -> Iterator[int]:
        """Yield the positions of strictly later memories in scope, the earliest first."""
        after = Moment(record.created_at_us, _LAST)
        tails = (
            islice(line, bisect_right(line, after), None) for line in self._lines(wing_of(record))
        )
        yield from (moment.position for moment in merge(*tails))

    def last_before(self, record: Placed) -> int | None:
        """Return the newest strictly earlier memory in scope, or None."""
        before = Moment(record.created_at_us, -1)
        ends = [(line, bisect_left(line, before)) for line in self._lines(wing_of(record))]
        newest = max((line[end - 1] for line, end in ends if end), default=None)
        return None if newest is None else newest.position

    def _lines(self, wing: str) -> list[list[Moment]]:
        if not wing:
            return list(self._by_wing.values())
        return [self._by_wing[w] for w in (wing, "") if w in self._by_wing]
