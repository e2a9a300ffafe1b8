"""What phases may look up, answered from one snapshot and the world.

What belongs here: positions to rows, vectors, usage, summaries. No formula, no ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.base_ranking import importance_of
from noctuary.recall.phases.base import (
    PastQuery,
    Positions,
    Scores,
    Successor,
    SummaryView,
    Usage,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning
from noctuary.recall.run import Run
from noctuary.recall.scope import Mask
from noctuary.recall.world import World
from noctuary.types import UNDATED_US
from noctuary.values import dataclass

if TYPE_CHECKING:
    from noctuary.graph.supersession.reading import SupersessionRow
    from noctuary.recall.searched import Searched

Search = Callable[[str, int], tuple[Positions, Scores]]


@dataclass(frozen=True, slots=True)
class SnapshotLookups:
    """Implements `Lookups`.

    Attributes:
        reader: The snapshot.
        world: Everything that changes.
        mask: What the recall searches; None for everything.
        query: What was asked.
        profile: How to rank.
        user: Whose recall it is, or None.
        run: Its clock and its warnings.
        ask: Ranks another text in the same scope.
        searched: What is searched and what is not, and why; None where `mask` says it all.
    """

    reader: SnapshotReader
    world: World
    mask: Mask | None
    query: str
    profile: RetrievalProfile
    user: str | None
    run: Run
    ask: Search
    searched: Searched | None = None
    _ids: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def count(self) -> int:
        """Memories in the snapshot."""
        return self.reader.count

    def created_at_us(self, positions: Positions) -> NDArray[np.int64]:
        """Return creation times; a summary has its latest turn's."""
        return self.reader.created_at(positions)

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        wings = self.reader.facets["wing"]
        codes = self.reader.codes_at("wing", positions)
        return [None if code < 0 else wings.values[code] for code in codes]

    def wing_counts(self) -> Mapping[str, int]:
        """Return the memories per wing that the scope allows; those without one are left out."""
        wings = self.reader.facets["wing"]
        codes = wings.codes if self.mask is None else wings.codes[self.mask]
        counts = np.bincount(codes[codes >= 0], minlength=len(wings.values))
        return {w: int(n) for w, n in zip(wings.values, counts, strict=True) if n}

    def vectors_of(self, positions: Positions) -> NDArray[np.float32] | None:
        """Return unit rows (m, d), each of what is shown: a summary has its own."""
        vectors = self.reader.vectors
        if vectors is None:
            return None
        rows = vectors[np.minimum(positions, self.count - 1)].astype(np.float32)
        inside = positions >= self.count
        if inside.any():
            of_summaries = self.reader.summary_vectors
            assert of_summaries is not None
            rows[inside] = of_summaries[positions[inside] - self.count]
        return rows

    def rows_of(self, positions: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        """Return the rows by position."""
        return self.reader.describe(positions)

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the window; a summary has none of its own."""
        if not self.world.knows_usage():
            zeros = np.zeros(positions.size, dtype=np.int64)
            return Usage(zeros, zeros, np.full(positions.size, UNDATED_US, dtype=np.int64))
        return self.world.usage_of(self.ids_of(positions))

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories that this recall may see, most first."""
        asked = limit
        while True:
            ids = self.world.most_used(asked)
            visible = self._visible(list(self.reader.positions_of(ids).values()))
            # Others' memories may fill the head of the list: they must not use up the limit.
            if visible.size >= limit or len(ids) < asked:
                return visible[:limit]
            asked *= 8

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with the others."""
        if not self.world.knows_usage():
            return np.zeros(positions.size, dtype=np.int64)
        return self.world.co_retrieved(self.ids_of(positions))

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each source among the positions.

        A summary of which the recall may not see every turn does not exist for it.
        """
        found = self.reader.summaries.of_sources(positions)
        return {p: s for p, s in found.items() if self._sees_all(s.sources)}

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return what the night found to replace the positions, and these successors in turn.

        `as_of` is in the mask: a memory ends when its successor was created, or later, so whoever
        sees both asks for a moment after that. A successor that is not searched is passed through.
        """
        from noctuary.graph.supersession.reading import NO_SUCCESSOR

        index = self.reader.superseded
        allowed = self.mask if self.searched is None else self.searched.allowed
        rows: dict[int, SupersessionRow] = {}
        while positions.size:
            newer = index.successors(positions, visible=allowed)
            replaced = positions[newer != NO_SUCCESSOR]
            found = [index.row_of(p) for p in replaced.tolist()]
            fresh = {row.older: row for row in found if row is not None and row.older not in rows}
            rows.update(fresh)
            positions = np.array([row.newer for row in fresh.values()], dtype=np.int64)
        wanted = ("supersessions", "older", "older, evidence_position")
        evidence = dict(self.reader.look_up(*wanted, [str(older) for older in rows]))
        links = {
            older: Successor(
                row.newer, row.reason, row.confidence, row.similarity, row.age_gap_days,
                evidence[older],
            )
            for older, row in rows.items()
        }  # fmt: skip
        if self.searched is None:
            return links
        from noctuary.recall.standing_in import through_hidden

        return through_hidden(links, self.searched, self.reader.summaries)

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries with what of their results this recall may see."""
        logged, fault = self.world.past_queries(
            self.query, since_us=since_us, limit=limit, user=self.user
        )
        if fault is not None:
            self.run.warn("query_log", fault)
        ids = {i for _, _, _, found in logged for i in found}
        places = self.reader.positions_of(sorted(ids))
        return [
            PastQuery(text, asked_us, similarity, tuple(
                self._visible([places[i] for i in found if i in places]).tolist()
            ))
            for text, asked_us, similarity, found in logged
        ]  # fmt: skip

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Rank another text in the same scope."""
        return self.ask(text, depth)

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        rows = self.reader.describe(positions.tolist())
        texts = [str(rows[p]["content"]) for p in positions.tolist()]
        name = self.profile.reranker
        timeout_ms = min(self.profile.rerank_timeout_ms, self.run.left_ms())
        return self.world.rerank(name, self.query, texts, timeout_ms)

    def ids_of(self, positions: Positions) -> list[str]:
        """Return memory ids as text; a summary's own id."""
        wanted = [int(p) for p in positions]
        missing = [p for p in wanted if p not in self._ids]
        if missing:
            self._ids.update(self.reader.memory_ids(missing))
        return [self._ids[p] for p in wanted]

    def importance_of(self, positions: Positions) -> Scores:
        """Return importance in [0, 1]; a summary has its most important turn's."""
        return importance_of(self.reader, positions)

    def _visible(self, positions: Sequence[int]) -> Positions:
        kept = np.array(positions, dtype=np.int64)
        return kept if self.mask is None else kept[self.mask[kept]]

    def _sees_all(self, positions: Sequence[int]) -> bool:
        return self.mask is None or bool(self.mask[list(positions)].all())
