"""What one recall searches: turns or the summaries of them, without what is archived.

What belongs here: the rules of the two views and of the archive, over masks. What does not: who may
see what (`scope`), the archive file (noctuary.archive.reading), ranking.

Nothing is lost and nothing is shown twice, whatever a recall may see:

- An archived memory is hidden from a recall that sees the memory that stands for it.
- A summary is searched where the recall may see every one of its sources and none of them is
  searched itself. So a summary of turns is searched in the view "summaries", and its turns are not;
  where one of its turns is out of scope or archived, the others are searched themselves. The
  summary of a compaction plan is searched where all that it stands for is hidden by the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.profile.rules import SUMMARIES
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Mask
from noctuary.recall.summaries import Summaries

if TYPE_CHECKING:
    from noctuary.archive.reading import ArchiveReader

ContentHashes = Callable[[Sequence[str]], Mapping[str, str]]


class ArchiveState(NamedTuple):
    """What is archived at the moment of a recall.

    Attributes:
        key: Names the answers: two states of one key hide alike in one snapshot.
        plans: Compaction plans in force, at least one.
        hidden_in: Content hashes of a snapshot -> ids of its archived memories to the ids of the
            memories that stand for them.
    """

    key: str
    plans: frozenset[str]
    hidden_in: Callable[[ContentHashes], Mapping[str, str]]


class Archived(NamedTuple):
    """The archived memories of one snapshot; arrays of one length.

    Attributes:
        positions: int64, the archived memories, distinct.
        successors: int64, what stands for each.
    """

    positions: NDArray[np.int64]
    successors: NDArray[np.int64]

    def seen_by(self, allowed: Mask | None) -> Archived:
        """Return those that are hidden from a recall which may see `allowed` (None: all)."""
        if allowed is None:
            return self
        kept = allowed[self.positions] & allowed[self.successors]
        return Archived(self.positions[kept], self.successors[kept])

    def successor_of(self, position: int) -> int | None:
        """Return what stands for a memory; None where it is not archived."""
        found = np.flatnonzero(self.positions == position)
        return int(self.successors[found[0]]) if found.size else None


class Searched(NamedTuple):
    """What the legs, the graph and the phases of one recall search.

    Attributes:
        allowed: Memories that the scope allows, shape (n,); None for all.
        memories: Memories that are searched, shape (n,); None for all. Never more than `allowed`.
        archived: Allowed memories that the archive hides; None for none.
        covered: Allowed memories that a searched summary of turns stands for, (n,); None for none.
        summaries: Summaries that are searched, shape (s,); None where none is.
    """

    allowed: Mask | None
    memories: Mask | None
    archived: Archived | None = None
    covered: Mask | None = None
    summaries: NDArray[np.bool_] | None = None

    @property
    def is_empty(self) -> bool:
        """Say whether nothing at all is searched."""
        if self.summaries is not None and self.summaries.any():
            return False
        return self.memories is not None and not self.memories.any()


def state_of(reader: ArchiveReader, moment_us: int | None) -> ArchiveState | None:
    """Return what an archive hides at a moment, or None where no plan is in force then.

    Args:
        reader: The archive.
        moment_us: Microseconds since the epoch; None: now.
    """
    plans = reader.applied_plans_at(moment_us)
    if not plans:
        return None

    def hidden_in(hashes: ContentHashes) -> Mapping[str, str]:
        return reader.hidden_in(hashes, moment_us)

    return ArchiveState(f"{reader.digest} {moment_us}", plans, hidden_in)


def find_archived(reader: SnapshotReader, state: ArchiveState) -> Archived:
    """Return what the archive hides in a snapshot from recalls that see the successors."""
    hidden = state.hidden_in(reader.content_hashes)
    places = reader.positions_of([*hidden, *hidden.values()])
    return Archived(
        np.array([places[memory] for memory in hidden], dtype=np.int64),
        np.array([places[successor] for successor in hidden.values()], dtype=np.int64),
    )


def find_searched(
    reader: SnapshotReader,
    allowed: Mask | None,
    turn_view: str,
    archived: Archived | None,
    plans: frozenset[str],
) -> Searched:
    """Apply the rules of this module.

    Args:
        reader: The snapshot.
        allowed: What the scope allows, shape (n,); None for everything.
        turn_view: "raw" or "summaries".
        archived: What the archive hides; None: nothing, or archived memories are asked for.
        plans: Compaction plans whose summaries may be searched.
    """
    archived = None if archived is None else archived.seen_by(allowed)
    memories, hidden = allowed, None
    if archived is not None and archived.positions.size:
        hidden = np.zeros(reader.count, dtype=np.bool_)
        hidden[archived.positions] = True
        memories = ~hidden if allowed is None else allowed & ~hidden
    shown = _of_plans(reader, hidden, plans)
    covered = None
    if turn_view == SUMMARIES and reader.summaries.size:
        summaries = reader.summaries
        of_turns = summaries.of_turns
        if memories is not None:
            of_turns = of_turns & summaries.arrays.where_all(memories)
        if of_turns.any():
            covered = summaries.arrays.covered(of_turns, reader.count)
            memories = ~covered if memories is None else memories & ~covered
            shown = of_turns if shown is None else shown | of_turns
    return Searched(allowed, memories, None if hidden is None else archived, covered, shown)


def _of_plans(
    reader: SnapshotReader, hidden: Mask | None, plans: frozenset[str]
) -> NDArray[np.bool_] | None:
    """Return the summaries of these plans that stand for hidden memories only, or None."""
    if hidden is None or not plans:
        return None
    summaries: Summaries = reader.summaries
    numbers = [number for number, plan in enumerate(summaries.plans) if plan in plans]
    if not numbers:
        return None
    shown = np.isin(summaries.arrays.plans, numbers) & summaries.arrays.where_all(hidden)
    return shown if shown.any() else None
