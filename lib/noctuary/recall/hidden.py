"""What a recall found but does not search: archived memories, and turns behind their summary.

What belongs here: telling them in a candidate trace, and what hides one of them. What does not:
the rules (`searched`), sentences for a person (`why_hidden`).
"""

from __future__ import annotations

import numpy as np

from noctuary.recall.answer import Answer
from noctuary.recall.phases.base import Dropped, PositionRef
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.searched import Searched

ARCHIVE = "archive"
"""Where an archived memory is dropped: before anything is ranked."""

TURN_VIEW = "turn_view"
"""Where a turn is dropped whose summary is searched in its place."""


def hidden_behind(reader: SnapshotReader, searched: Searched, position: int) -> PositionRef | None:
    """Return what stands for a memory that is not searched; None where it is searched itself."""
    successor = None if searched.archived is None else searched.archived.successor_of(position)
    if successor is not None:
        return PositionRef(successor)
    if position < reader.count and searched.covered is not None and searched.covered[position]:
        asked = np.array([position], dtype=np.int64)
        return PositionRef(reader.summaries.of_sources(asked)[position].position)
    return None


def find_hidden(reader: SnapshotReader, answer: Answer) -> list[Dropped]:
    """Return the hidden memories that would have been candidates, best first.

    Their score is the one before the phases that they would have had if all that the scope shows
    were searched.
    """
    searched = answer.searched
    if searched is None or answer.unhidden is None or searched.memories is None:
        return []
    ranking = answer.unhidden()
    found: list[Dropped] = []
    for place in ranking.order.tolist():
        position = int(ranking.positions[place])
        stands = hidden_behind(reader, searched, position)
        if stands is not None:
            found.append(_dropped(position, stands, float(ranking.final[place]), reader.count))
    return found


def _dropped(position: int, stands: PositionRef, score: float, count: int) -> Dropped:
    if stands.position >= count:
        reason = f"its summary {{{stands.position}}} is searched in its place"
        return Dropped(TURN_VIEW, position, reason, score, {"summarized_by": stands})
    reason = f"archived: {{{stands.position}}} stands for it"
    return Dropped(ARCHIVE, position, reason, score, {"archived_behind": stands})
