"""Successors that a recall does not search, passed through to what stands in for them.

What belongs here: following stored successors past archived memories and past turns that a summary
covers. What does not: which memories those are (`searched`), what becomes of the superseded
(`phases.supersede`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from noctuary.recall.phases.base import Successor
from noctuary.recall.searched import Searched
from noctuary.recall.summaries import Summaries


def through_hidden(
    links: Mapping[int, Successor], searched: Searched, summaries: Summaries
) -> dict[int, Successor]:
    """Return the links with every successor that is not searched replaced.

    By that one's own successor, as far as needed and with the least confidence on the way; at the
    end of the chain by the summary that covers it. Where nothing stands in, nothing is superseded:
    a memory never gives way to one that the recall would not show.

    Args:
        links: Direct successors of memories that the scope allows, and of these in turn.
        searched: What the recall searches.
        summaries: Of the snapshot.
    """
    if searched.memories is None:
        return dict(links)
    found: dict[int, Successor] = {}
    for older, link in links.items():
        newer, confidence = link.newer, link.confidence
        for _ in links:
            if searched.memories[newer] or newer not in links:
                break
            confidence = min(confidence, links[newer].confidence)
            newer = links[newer].newer
        if not searched.memories[newer]:
            summary = _summary_of(newer, searched, summaries)
            if summary is None:
                continue
            newer = summary
        found[older] = link._replace(newer=newer, confidence=confidence)
    return found


def _summary_of(position: int, searched: Searched, summaries: Summaries) -> int | None:
    if searched.covered is None or not searched.covered[position]:
        return None
    return summaries.of_sources(np.array([position], dtype=np.int64))[position].position
