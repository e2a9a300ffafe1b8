"""From how many memories on a concept tells nothing apart: the limits of the edges.

What belongs here: the limits. What does not: what they are applied to (`state.steps`,
`state.links`).
"""

from __future__ import annotations

from typing import NamedTuple

HUB_MENTION_FRACTION = 0.02
"""A concept that more than this share of the memories mention separates nothing: no edges. More
lets chance arrivals in and costs time, less loses the names of a store with few topics."""

HUB_MENTION_MIN = 50
"""... but up to this many mentions are always fine; keeps small stores from losing their names."""

HUB_SUBJECT_LIMIT = 50
"""A concept that more memories than this are about (or tagged with) gets no edges: each edge would
weigh less than 1/50, and their number is the product of both counts."""


class Hubs(NamedTuple):
    """Limits beyond which a concept tells nothing apart.

    Attributes:
        mentions: Memories that may mention it.
        subjects: Memories that may be about it.
    """

    mentions: int
    subjects: int

    @staticmethod
    def of(memories: int) -> Hubs:
        """Return the limits in a corpus of so many memories."""
        fraction = int(HUB_MENTION_FRACTION * memories)
        return Hubs(max(HUB_MENTION_MIN, fraction), HUB_SUBJECT_LIMIT)
