"""Which candidates the night found to be superseded, and the memory that stands for each.

What belongs here: following the stored successors, and which of them count for a profile. What does
not: finding successors (`noctuary.graph.supersession`), what becomes of the superseded
(`supersede`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noctuary.graph.supersession.grades import CONFIDENCES
from noctuary.recall.phases.base import PositionRef, Positions, Successor
from noctuary.recall.profile import RetrievalProfile

LEAST_CONFIDENCE = 1
"""Least confidence (0 low, 1 medium, 2 high) with which a stored successor takes the place of the
older memory and a chain goes on; below, the older is only marked. 2 leaves more stale memories in
answers, 0 hides memories of which half the text may still hold."""


class Stale(NamedTuple):
    """A candidate and the memory that stands for it.

    Attributes:
        older: Position of the candidate.
        heir: Position of the other; it need not be a candidate.
        is_sure: Whether the heir may take its place; otherwise both are only marked.
        why: What a drop says after "superseded by".
        note: What is shown with the older where it stays.
        facts: What a trace shows beside the two.
    """

    older: int
    heir: int
    is_sure: bool
    why: str
    note: str
    facts: Mapping[str, Any]


def find_stale(
    positions: Positions, successors: Mapping[int, Successor], profile: RetrievalProfile
) -> list[Stale]:
    """Return the candidates that have a stored successor, the surest first, then in their order.

    The heir is the last memory of the chain that sure links lead to. A damaged table may hold a
    cycle: none of its memories replaces another.

    Args:
        positions: Of the candidates, best first.
        successors: Of the candidates and of these successors in turn, by position of the older.
        profile: Its thresholds apply to near duplicates; what was stated has no similarity.
    """
    links = {older: link for older, link in successors.items() if _counts(link, profile)}
    sure = {older: link for older, link in links.items() if link.confidence >= LEAST_CONFIDENCE}
    found: list[Stale] = []
    for older in sorted(links.keys() & set(positions.tolist())):
        heir = _last_of_chain(links[older].newer, sure)
        if heir not in sure and heir != older:
            found.append(_stale(older, heir, links[older]))
    rank = {position: row for row, position in enumerate(positions.tolist())}
    found.sort(key=lambda stale: (-links[stale.older].confidence, rank[stale.older]))
    return found


def _counts(link: Successor, profile: RetrievalProfile) -> bool:
    if link.reason != "near_duplicate" or link.similarity is None:
        return True
    return (
        link.similarity >= profile.supersede_similarity_threshold
        and link.age_gap_days >= profile.supersede_min_age_gap_days
    )


def _last_of_chain(start: int, links: Mapping[int, Successor]) -> int:
    here = start
    for _ in links:
        if here not in links:
            break
        here = links[here].newer
    return here


def _stale(older: int, heir: int, link: Successor) -> Stale:
    confidence = CONFIDENCES[link.confidence]
    compared = "" if link.similarity is None else f", similarity {link.similarity:.2f}"
    # An explicit link may go against the dates, or have none.
    later = f", {link.age_gap_days} days later" if link.age_gap_days else ""
    facts = {
        "superseded_by": PositionRef(heir),
        "supersede_reason": link.reason,
        "confidence": confidence,
        "evidence": PositionRef(link.evidence),
        "similarity": link.similarity,
        "age_gap_days": link.age_gap_days,
    }
    return Stale(
        older,
        heir,
        link.confidence >= LEAST_CONFIDENCE,
        f"{link.reason}, evidence {{{link.evidence}}}",
        f"{link.reason}, confidence {confidence}, evidence {{{link.evidence}}}{compared}{later}",
        {name: value for name, value in facts.items() if value is not None},
    )
