"""Personalised PageRank over memories and concepts, in the place of the walk: one arm.

It lost to the walk on the sets with questions over several memories (decision 0013), so recall
has none.

Weights are those of HippoRAG 2 and SPRIG (research/peers.md section 3): a concept counts 1 over the
memories that hold it, and what leaves a node sums to 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from noctuary.evaluate.labels import Query
from noctuary.graph.state import hub_limits
from noctuary.graph.walk import ROLES, SEED_COUNT, MentionArrays, Walk, choose_seeds, link_query
from noctuary.recall.candidates import Mask, Rows
from noctuary.recall.engine import fuse, importance_of
from noctuary.recall.legs import (
    GraphLeg,
    apply_importance,
    pool_candidates,
    rank_dense,
    rank_lexical,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotGraph

DAMPING = 0.5
"""Share that goes on at each step; HippoRAG 2 and LinearRAG both use 0.5."""

NAMED_SHARE = 0.3
"""Where the query names concepts, the share of the starts that is theirs."""

MAX_ROUNDS, TOLERANCE = 60, 1e-10
"""Each round leaves DAMPING of the error of the one before: 34 reach the tolerance."""

LEAST_HELD = 2
"""Memories that a concept has to join; a name of one memory leads back to it alone."""

ARRIVAL_COUNT = 100
"""Memories with the highest scores that arrive."""


class Joined(NamedTuple):
    """Which visible memory holds which concept: P pairs, each once.

    Attributes:
        memories: int64 (P,), positions.
        concepts: int64 (P,), ordinals; hubs and what one memory alone holds left out.
        degrees: int64 (K,), visible memories by ordinal.
        total: Memories of the snapshot.
    """

    memories: NDArray[np.int64]
    concepts: NDArray[np.int64]
    degrees: NDArray[np.int64]
    total: int


def join(mentions: MentionArrays, total: int, mask: Mask | None) -> Joined:
    """Return what joins the memories that may be seen; the hidden ones weigh nothing."""
    size = mentions.indptr.size - 1
    concepts = np.repeat(np.arange(size, dtype=np.int64), np.diff(mentions.indptr))
    where = mentions.positions.astype(np.int64)
    about = mentions.roles == ROLES.index("about")
    if mask is not None:
        seen = mask[where]
        concepts, where, about = concepts[seen], where[seen], about[seen]
    # Held in two roles, or twice in one, counts once.
    pairs = np.unique(concepts * total + where)
    subjects = np.unique((concepts * total + where)[about])
    held = np.bincount(pairs // total, minlength=size)
    limits = hub_limits(total if mask is None else int(mask.sum()))
    usable = (held >= LEAST_HELD) & (held <= limits["hub_mentions"])
    usable &= np.bincount(subjects // total, minlength=size) <= limits["hub_subjects"]
    pairs = pairs[usable[pairs // total]]
    return Joined(pairs % total, pairs // total, np.where(usable, held, 0), total)


def personalised_pagerank(
    joined: Joined, at_memories: NDArray[np.float64], at_concepts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how often the surfer is at every memory, by power iteration.

    What arrives at a memory that leads nowhere starts anew.

    Args:
        joined: The graph.
        at_memories: Starts, float64 (n,), >= 0.
        at_concepts: Starts, float64 (K,), >= 0; all starts sum to 1.
    """
    held, holds = joined.concepts, joined.memories
    out = 1.0 / joined.degrees[held]
    left = np.bincount(holds, out, minlength=joined.total)
    back = out / left[holds]
    memories, concepts = at_memories, at_concepts
    for _ in range(MAX_ROUNDS):
        anew = 1.0 - DAMPING + DAMPING * float(memories[left == 0.0].sum())
        to_memories = np.bincount(holds, out * concepts[held], minlength=joined.total)
        to_concepts = np.bincount(held, back * memories[holds], minlength=at_concepts.size)
        new_memories = anew * at_memories + DAMPING * to_memories
        new_concepts = anew * at_concepts + DAMPING * to_concepts
        change = np.abs(new_memories - memories).sum() + np.abs(new_concepts - concepts).sum()
        memories, concepts = new_memories, new_concepts
        if change <= TOLERANCE:
            break
    return memories


def spread(
    pool: NDArray[np.int64],
    fused: NDArray[np.float64],
    named: NDArray[np.int64],
    joined: Joined,
    mask: Mask | None,
) -> Walk:
    """Return the memories where the surfer is most often, with the largest share as 1.

    The paths are left open: an arm does not explain.

    Args:
        pool: Positions that may be started from; the best are, in proportion to their scores.
        fused: Their base scores.
        named: Ordinals that the query names.
        joined: The graph.
        mask: What may be seen; None for everything.
    """
    seeds, scores = choose_seeds(pool, fused, mask, SEED_COUNT)
    named = np.unique(named)
    named = named[joined.degrees[named] > 0]
    positions = values = np.empty(0)
    if named.size or np.isin(seeds, joined.memories).any():
        share = (NAMED_SHARE if seeds.size else 1.0) if named.size else 0.0
        at_memories, at_concepts = np.zeros(joined.total), np.zeros(joined.degrees.size)
        if seeds.size:
            at_memories[seeds] = (1.0 - share) * scores / scores.sum()
        if named.size:
            specificity = 1.0 / joined.degrees[named]
            at_concepts[named] = share * specificity / specificity.sum()
        ranks = personalised_pagerank(joined, at_memories, at_concepts)
        best = np.lexsort((np.arange(ranks.size), -ranks))[:ARRIVAL_COUNT]
        positions = np.sort(best[ranks[best] > 0.0])
        values = ranks[positions] / ranks.max()
    untold = np.full(positions.size, -1)
    return Walk(
        positions.astype(np.int64),
        values,
        untold.astype(np.int64),
        untold.astype(np.int8),
        untold.astype(np.int32),
    )


class _PageRankLeg(GraphLeg):
    """The graph leg with a surfer; all else is recall's.

    Attributes:
        named: Ordinals that the query names.
    """

    named: NDArray[np.int64]

    def _walk(self, pool: NDArray[np.int64], fused: NDArray[np.float64]) -> Walk:
        joined = join(self.graph.mentions, self.graph.edges.indptr.size - 1, self.mask)
        return spread(pool, fused, self.named, joined, self.mask)


class PageRankRetriever(ArmRetriever):
    """The default profile with PageRank in the place of the walk: legs, graph, importance."""

    def __init__(self, name: str, views: CorpusViews, profile: RetrievalProfile) -> None:
        super().__init__(name)
        self._views = views
        self._profile = profile
        self._graph = SnapshotGraph(views.recaller.reader)

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the first k memories."""
        reader, profile = self._views.recaller.reader, self._profile
        mask, depth = self._views.recall_mask(query), max(k, profile.depth)
        searched = Rows.of(reader, mask, mask).searched
        legs = (
            rank_lexical(reader, query.text, searched, depth),
            rank_dense(reader, self._views.encode(query), searched, depth),
        )
        pool = pool_candidates([leg.ranking for leg in legs])
        scores = fuse(pool, legs, profile)
        leg = _PageRankLeg(self._graph, mask, profile.graph_weight, profile.session_weight)
        links = link_query(query.text, self._graph.names_seen(mask))
        leg.named = np.array([link.ordinal for link in links], dtype=np.int64)
        found = leg.rank(query.text, pool, scores, lambda p: fuse(p, legs, profile))
        if found is not None:
            pool, scores = found.positions, found.scores
        final = apply_importance(scores, importance_of(reader, pool), profile.importance_prior)
        order = np.lexsort((pool, -scores, -final))[: max(k, 0)]
        ids = self._views.snapshot_ids
        return [(ids[pool[i]], float(final[i])) for i in order]
