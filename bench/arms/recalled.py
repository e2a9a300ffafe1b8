"""noctuary's recall as an arm: one profile over one pinned snapshot, and the graph asked alone.

Which profiles: ablations.
"""

from __future__ import annotations

import numpy as np

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from bench.arms.freshness import Freshness
from noctuary.evaluate.labels import Query
from noctuary.recall.legs import (
    GraphLeg,
    SnapshotGraph,
    fuse,
    pool_candidates,
    rank_dense,
    rank_lexical,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.rows import Rows


class RecallRetriever(ArmRetriever):
    """Asks recall with a profile."""

    def __init__(
        self, name: str, views: CorpusViews, profile: RetrievalProfile, *, timed: bool
    ) -> None:
        super().__init__(name)
        self._views = views
        self._profile = profile
        self._freshness = Freshness() if timed else None

    @property
    def index_size_bytes(self) -> int:
        """Bytes of the snapshot's files, the memories' texts included."""
        directory = self._views.recaller.reader.directory
        return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return what recall finds, within the query's wing if so scoped."""
        if self._freshness is not None:
            self._freshness.turn_to(query)
        result = self._views.recaller.recall(
            query.text, k, profile=self._profile, scope=self._views.scope_of(query)
        )
        self.warnings.update(warning.code for warning in result.warnings)
        return [(str(memory.id), memory.final_score) for memory in result.memories]


class GraphOnlyRetriever(ArmRetriever):
    """Ranks by what arrives over the concept graph and by nothing else.

    The leg starts from the same fused list as in recall; a memory to which it adds nothing is not
    found, however well it matches.
    """

    def __init__(self, name: str, views: CorpusViews, profile: RetrievalProfile) -> None:
        super().__init__(name)
        self._views = views
        self._profile = profile
        self._graph = SnapshotGraph(views.recaller.reader)

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the k memories with the strongest arrivals, ties by position."""
        reader, profile = self._views.recaller.reader, self._profile
        mask, depth = self._views.recall_mask(query), max(k, profile.depth)
        searched = Rows.of(reader, mask, mask).searched
        lexical = rank_lexical(reader, query.text, searched, depth)
        dense = rank_dense(reader, self._views.encode(query), searched, depth)
        legs = (lexical, dense)
        pool = pool_candidates([leg.ranking for leg in legs])
        base = fuse(pool, legs, profile)
        leg = GraphLeg(self._graph, mask, 1.0, profile.session_weight)
        links = leg.link(query.text)
        found = leg.rank(query.text, links, pool, base, lambda p: np.zeros(p.size), dense)
        if found is None:
            return []
        added = np.zeros(found.positions.size)
        for part in (found.walked, found.named):
            added[np.searchsorted(found.positions, part.positions)] += part.scores
        if found.talk is not None:
            added[np.searchsorted(found.positions, found.talk.members)] += found.lent
        order = np.lexsort((found.positions, -added))[: max(k, 0)]
        ids = self._views.snapshot_ids
        return [(ids[found.positions[i]], float(added[i])) for i in order if added[i] > 0.0]
