"""The accepted summaries of a snapshot as candidates: positions from the memory count on.

What belongs here: which turns a summary was made of and what stands in its place. Read once per
snapshot, on first use: a recall without the consolidation view never does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon.recall.phases.base import Positions, SummaryView

SUMMARY_SQL = (
    "SELECT s.summary_id, s.text, s.session_id, s.confidence, o.position FROM summaries AS s "
    "JOIN summary_sources AS o ON o.summary_id = s.summary_id ORDER BY s.summary_id, o.place"
)


@dataclass(frozen=True, slots=True)
class Summaries:
    """All accepted summaries, in order of their ids.

    Attributes:
        count: Memories of the snapshot; summary i stands at position count + i.
        views: What phases see.
        texts: Their texts.
        ids: Their ids.
        by_source: Position of a turn -> index of its summary.
    """

    count: int
    views: tuple[SummaryView, ...]
    texts: tuple[str, ...]
    ids: tuple[str, ...]
    by_source: Mapping[int, int]

    @staticmethod
    def of_rows(count: int, rows: list[tuple[Any, ...]]) -> Summaries:
        """Read what `SUMMARY_SQL` returned; a summary without a confidence counts as certain."""
        views: list[SummaryView] = []
        texts: list[str] = []
        sources: dict[str, list[int]] = {}
        confidences: dict[str, float] = {}
        for summary_id, text, _, confidence, position in rows:
            if summary_id not in sources:
                texts.append(text)
                confidences[summary_id] = 1.0 if confidence is None else float(confidence)
            sources.setdefault(summary_id, []).append(int(position))
        for i, (summary_id, positions) in enumerate(sources.items()):
            confidence = min(max(confidences[summary_id], 0.0), 1.0)
            views.append(SummaryView(count + i, tuple(positions), confidence))
        by_source = {p: i for i, view in enumerate(views) for p in view.sources}
        return Summaries(count, tuple(views), tuple(texts), tuple(sources), by_source)

    def at(self, position: int) -> SummaryView:
        """Return the summary at a position."""
        return self.views[position - self.count]

    def of_sources(self, positions: Positions) -> dict[int, SummaryView]:
        """Return the summary of every position that is a source of one."""
        wanted = [int(p) for p in positions]
        return {p: self.views[self.by_source[p]] for p in wanted if p in self.by_source}

    def first_source(self, positions: Positions) -> NDArray[np.int64]:
        """Return the positions with every summary replaced by its first turn."""
        replaced = positions.copy()
        for place in np.flatnonzero(positions >= self.count):
            replaced[place] = self.at(int(positions[place])).sources[0]
        return replaced
