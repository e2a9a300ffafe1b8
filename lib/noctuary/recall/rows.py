"""Which rows one recall searches: scope, archive, summaries and what the store itself changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, to_micros
from noctuary.recall.inputs import ArchiveState
from noctuary.recall.profile import SUMMARIES
from noctuary.recall.query import Mask, Scope, aware, moment_of
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.arrays import OF_TURNS
from noctuary.text.reach import PROJECT

if TYPE_CHECKING:
    from noctuary.sources.live import LiveRow, LiveState


# Which rows a recall searches, of those that it may see:
#
# - An archived memory is hidden from a recall that sees its replacement.
# - A summary is searched where the recall may see every one of its sources and none of them is
#   searched itself. So a summary of turns is searched in the view "summaries", and its turns are
#   not, until a hit opens it; where one of its turns is out of scope or archived, the others are
#   searched themselves.
#   The summary of a compaction plan is searched where all of its sources are hidden by the
#   archive.


class Rows(NamedTuple):
    """Which rows of the table one recall searches."""

    allowed: Mask | None = None  # memories that the scope allows, shape (n,); None for all
    memories: Mask | None = None  # those that may come back, shape (n,); None for all
    # All rows that are searched, shape (reader.end,); None for every memory, every live row and no
    # summary.
    searched: Mask | None = None
    hidden: NDArray[np.int64] | None = None  # positions of allowed memories that are not searched
    stands: NDArray[np.int64] | None = None  # the rows that are searched in their place
    # All rows that may come back, shape (reader.end,): `searched` with turns in the place of their
    # summaries; None where no summary of turns is searched.
    turns: Mask | None = None

    @staticmethod
    def of(
        reader: SnapshotReader, allowed: Mask | None, memories: Mask | None,
        summaries: Mask | None = None,
    ) -> Rows:  # fmt: skip
        """Return rows that search these memories (n,), these summaries (s,) and all live rows."""
        if memories is None or reader.end == reader.count:
            return Rows(allowed, memories, memories)
        searched = np.zeros(reader.end, dtype=np.bool_)
        searched[: reader.count] = memories
        if summaries is not None:
            searched[reader.count : reader.first_live] = summaries
        searched[reader.first_live :] = True
        return Rows(allowed, searched[: reader.count], searched)

    @property
    def is_empty(self) -> bool:
        """Say whether nothing is searched."""
        return self.searched is not None and not self.searched.any()

    @property
    def hide_any(self) -> bool:
        """Whether memories that the scope allows are not searched, or only after a hit."""
        return self.hidden is not None or self.turns is not None

    def are_summaries(self, positions: NDArray[np.int64]) -> Mask:
        """Tell which of the positions that are searched are summaries of turns."""
        return np.zeros(positions.shape, np.bool_) if self.turns is None else ~self.turns[positions]

    def are_behind(self, positions: NDArray[np.int64]) -> Mask:
        """Tell which of the positions that may come back are turns behind a summary."""
        if self.turns is None or self.searched is None:
            return np.zeros(positions.shape, np.bool_)
        return ~self.searched[positions]

    def opened(self, turns: NDArray[np.int64]) -> Rows:
        """Return rows that search these turns behind summaries too, and no summary of turns."""
        if self.turns is None or self.searched is None:
            return self
        searched = self.turns & self.searched
        searched[turns] = True
        count = None if self.memories is None else self.memories.size
        return self._replace(memories=searched[:count], searched=searched)

    def stands_for(self, position: int) -> int | None:
        """Return the row that is searched in place of a memory; None if it is searched itself."""
        if self.hidden is None or self.stands is None:
            return None
        found = np.flatnonzero(self.hidden == position)
        return int(self.stands[found[0]]) if found.size else None


Archived = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Distinct positions of the archived memories of a snapshot, and of their replacements."""


def find_archived(reader: SnapshotReader, state: ArchiveState) -> Archived:
    """Return what the archive hides in a snapshot from recalls that see the successors."""
    hidden = state.hidden_in(reader.content_hashes)
    places = reader.positions_of([*hidden, *hidden.values()])
    found = [[places[memory] for memory in ids] for ids in (hidden, hidden.values())]
    return np.array(found[0], dtype=np.int64), np.array(found[1], dtype=np.int64)


def find_rows(
    reader: SnapshotReader,
    allowed: Mask | None,
    turn_view: str,
    archived: Archived | None,
    plans: frozenset[str],
) -> Rows:
    """Apply the rules above; `archived` is None where archived memories are asked for."""
    hidden = stands = np.empty(0, dtype=np.int64)
    if archived is not None:
        hidden, stands = archived
        if allowed is not None:
            kept = allowed[hidden] & allowed[stands]
            hidden, stands = hidden[kept], stands[kept]
    memories, shown = allowed, None
    if hidden.size:
        is_hidden = np.zeros(reader.count, dtype=np.bool_)
        is_hidden[hidden] = True
        memories = ~is_hidden if allowed is None else allowed & ~is_hidden
        numbers = [n for n, plan in enumerate(reader.compaction_plans) if plan in plans]
        if numbers:
            arrays = reader.summaries.arrays
            of_plans = np.isin(arrays.plans, numbers) & arrays.where_all(is_hidden)
            shown = of_plans if of_plans.any() else None
    behind = None
    if turn_view == SUMMARIES and reader.summaries.size:
        arrays = reader.summaries.arrays
        of_turns = arrays.plans == OF_TURNS
        if memories is not None:
            of_turns = of_turns & arrays.where_all(memories)
        if of_turns.any():
            covered = arrays.covered(of_turns, reader.count)
            memories = np.ones_like(covered) if memories is None else memories
            behind = Rows.of(reader, allowed, memories, shown)
            memories = memories & ~covered
            shown = of_turns if shown is None else shown | of_turns
            turns = np.flatnonzero(covered)
            hidden = np.concatenate([hidden, turns])
            summaries = reader.summaries.summary_of[turns].astype(np.int64)
            stands = np.concatenate([stands, reader.count + summaries])
    rows = Rows.of(reader, allowed, memories, shown)
    rows = rows._replace(hidden=hidden if hidden.size else None, stands=stands)
    if behind is None:
        return rows
    return rows._replace(memories=behind.memories, turns=behind.searched)


def through_hidden(links: Mapping[int, Successor], rows: Rows) -> dict[int, Successor]:
    """Return the links (a memory to its direct successor) without successors that are hidden.

    Each gives way to its own successor, as far as needed and with the least confidence on the way.
    Without a visible one nothing is superseded: a memory never gives way to one that the recall
    would not show.
    """
    if rows.memories is None:
        return dict(links)
    found: dict[int, Successor] = {}
    for older, link in links.items():
        newer, confidence = link.newer, link.confidence
        for _ in links:
            if rows.memories[newer] or newer not in links:
                break
            confidence = min(confidence, links[newer].confidence)
            newer = links[newer].newer
        if rows.memories[newer]:
            found[older] = link._replace(newer=newer, confidence=confidence)
    return found


class Successor(NamedTuple):
    """What the night found to replace a memory; all are positions but the rest."""

    newer: int  # the direct successor, which may have one itself
    reason: str  # "explicit", "is_now", "newer_value" or "near_duplicate"
    confidence: int  # 0 low, 1 medium, 2 high
    similarity: float | None  # cosine of the two, where one was needed
    age_gap_days: int  # 0 where a date is missing
    evidence: int  # the memory that says so


class Seen(NamedTuple):
    """The rows in its scope, its mask (n,) of the snapshot, and how many rows differ."""

    state: LiveState
    mask: Mask | None
    gained: int
    changed: int
    lost: int


def see(state: LiveState, reader: SnapshotReader, scope: Scope, mask: Mask | None) -> Seen:
    """Apply a recall's scope to live rows and hide from it what they replace.

    Rows of named users are denied by default, as `build_mask` denies memories. What a user shares
    is known to the next snapshot only: until then a live row is its owner's.
    """
    rows = tuple(row for row in state.rows if _is_allowed(row, scope))
    places = reader.positions_of(state.hidden)
    hidden = np.array(sorted(places.values()), dtype=np.int64)
    seen = hidden if mask is None else hidden[mask[hidden]]
    before = {int(p) for p in seen.tolist()}
    # Of counts, too, only what the recall may see: a row of others changes none of them.
    held = [places.get(row.memory.memory_id) for row in rows]
    changed = sum(p is not None and p in before for p in held)
    if seen.size:
        mask = np.ones(reader.count, dtype=np.bool_) if mask is None else mask.copy()
        mask[seen] = False
    kept = state._replace(rows=rows)
    return Seen(kept, mask, len(rows) - changed, changed, len(before) - changed)


def _is_allowed(row: LiveRow, scope: Scope) -> bool:
    memory = row.memory
    if memory.user is not None and memory.user != scope.user:
        return False
    for name in ("wing", "room", "category"):
        wanted = getattr(scope, name)
        reaches = name == "wing" and scope.person and row.reach > PROJECT
        if wanted is not None and getattr(memory, name) != wanted and not reaches:
            return False
    if memory.valid_until_us is not None and memory.valid_until_us <= moment_of(scope):
        return False
    as_of, created_us = scope.as_of, memory.created_at_us
    return as_of is None or created_us == UNDATED_US or created_us <= to_micros(aware(as_of))
