"""What a recall does not search: archived memories, and turns behind their summaries.

Nothing is lost and nothing is shown twice, whatever a recall may see:

- An archived memory is hidden from a recall that sees the memory that stands for it.
- A summary is searched where the recall may see every one of its sources and none of them is
  searched itself. So a summary of turns is searched in the view "summaries", and its turns are
  not; where one of its turns is out of scope or archived, the others are searched themselves.
  The summary of a compaction plan is searched where all that it stands for is hidden by the
  archive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from noctuary.recall.candidates import Positions, Successor
from noctuary.recall.inputs import ArchiveState
from noctuary.recall.profile import SUMMARIES
from noctuary.recall.query import Mask, Rows
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.arrays import OF_TURNS


class Archived(NamedTuple):
    """The archived memories of one snapshot, distinct, and what stands for each."""

    positions: Positions
    successors: Positions


def find_archived(reader: SnapshotReader, state: ArchiveState) -> Archived:
    """Return what the archive hides in a snapshot from recalls that see the successors."""
    hidden = state.hidden_in(reader.content_hashes)
    places = reader.positions_of([*hidden, *hidden.values()])
    return Archived(
        np.array([places[memory] for memory in hidden], dtype=np.int64),
        np.array([places[successor] for successor in hidden.values()], dtype=np.int64),
    )


def find_rows(
    reader: SnapshotReader,
    allowed: Mask | None,
    turn_view: str,
    archived: Archived | None,
    plans: frozenset[str],
) -> Rows:
    """Apply the rules of this file to what the scope allows.

    `archived` is None where archived memories are asked for; summaries of `plans` may be searched.
    """
    none = np.empty(0, dtype=np.int64)
    hidden, stands = none, none
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
        shown = _of_plans(reader, is_hidden, plans)
    if turn_view == SUMMARIES and reader.summaries.size:
        arrays = reader.summaries.arrays
        of_turns = arrays.plans == OF_TURNS
        if memories is not None:
            of_turns = of_turns & arrays.where_all(memories)
        if of_turns.any():
            covered = arrays.covered(of_turns, reader.count)
            memories = ~covered if memories is None else memories & ~covered
            shown = of_turns if shown is None else shown | of_turns
            turns = np.flatnonzero(covered)
            hidden = np.concatenate([hidden, turns])
            summaries = reader.summaries.summary_of[turns].astype(np.int64)
            stands = np.concatenate([stands, reader.count + summaries])
    return Rows(allowed, memories, shown, hidden if hidden.size else None, stands)


def _of_plans(reader: SnapshotReader, hidden: Mask, plans: frozenset[str]) -> Mask | None:
    """Return the summaries of these plans that stand for hidden memories only, or None."""
    summaries = reader.summaries
    numbers = [number for number, plan in enumerate(summaries.plans) if plan in plans]
    if not numbers:
        return None
    shown = np.isin(summaries.arrays.plans, numbers) & summaries.arrays.where_all(hidden)
    return shown if shown.any() else None


def through_hidden(
    links: Mapping[int, Successor], rows: Rows, reader: SnapshotReader
) -> dict[int, Successor]:
    """Return the links (a memory to its direct successor) without successors that are not searched.

    Each gives way to its own successor, as far as needed and with the least confidence on the way;
    at the end of the chain to the summary that covers it. Where nothing stands in, nothing is
    superseded: a memory never gives way to one that the recall would not show.
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
        if not rows.memories[newer]:
            summary = rows.stands_for(newer)
            if summary is None or summary < reader.count:
                continue
            newer = summary
        found[older] = link._replace(newer=newer, confidence=confidence)
    return found
