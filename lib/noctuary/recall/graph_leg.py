"""The graph leg: what the concept graph adds to a fused ranking, and by which path.

What belongs here: the order of its steps (link the query, walk from the best hits, listen to their
sessions) and how their scores join the ranking. What does not: each step's arithmetic
(noctuary.graph), the legs that it starts from, the text of an explanation.

Added to the base score, never ranked as a list of its own: an equal vote loses what the base score
knows (research/probes.md section 1). Where the query names nothing, no hit leads anywhere and no
candidate belongs to a session, the leg abstains and the ranking is returned as it came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from noctuary.graph.conversation import Talk, calibrate, lent_scores, listen
from noctuary.graph.linking import Link, link_query
from noctuary.graph.named import Named, name_subjects
from noctuary.graph.walk import Walk, walk
from noctuary.recall.fusion import add_graph, graph_scale, pool_candidates
from noctuary.recall.phases.base import Positions, Scores
from noctuary.recall.scope import Mask
from noctuary.recall.snapshot_graph import SnapshotGraph
from noctuary.text.tokens import tokenize

FuseAt = Callable[[Positions], Scores]
"""Base scores of any positions."""


class GraphRanking(NamedTuple):
    """A ranking with the graph's additions; arrays have length m.

    Attributes:
        positions: int64, ascending, distinct.
        fused: Base scores, in [0, 1].
        scores: With the graph, in [0, 1].
        walked: What arrived from the best hits.
        named: What the query names.
        talk: What sessions said, or None.
        lent: What sessions lend `talk.members`, times the session weight, before calibration;
            empty without talk.
        before: Scores of `talk.members` that sessions added to; empty without talk.
        session_weight: Factor that is in `lent`.
        scale: What every score was divided by to stay in [0, 1], >= 1; whatever else is compared
            with these scores is divided by it too.
    """

    positions: Positions
    fused: Scores
    scores: Scores
    walked: Walk
    named: Named
    talk: Talk | None
    lent: Scores
    before: Scores
    session_weight: float
    scale: float = 1.0

    @property
    def added(self) -> Scores:
        """What the graph added to each score, before weight, scaling and calibration; >= 0."""
        added = _arriving(self.positions, self.walked, self.named)
        if self.talk is not None:
            added[np.searchsorted(self.positions, self.talk.members)] += self.lent
        return added


class GraphLeg(NamedTuple):
    """Adds the graph of one snapshot to rankings within one scope.

    Attributes:
        graph: The snapshot's graph.
        mask: What may be seen; None for everything.
        weight: Factor on everything that is added, > 0.
        session_weight: Further factor on what sessions lend; 0 asks none.
        as_of_us: Walk the edges that held at this moment; None walks those that still hold.
    """

    graph: SnapshotGraph
    mask: Mask | None
    weight: float
    session_weight: float = 1.0
    as_of_us: int | None = None

    def rank(
        self, query: str, pool: Positions, fused: Scores, fuse_at: FuseAt
    ) -> GraphRanking | None:
        """Return the ranking with what the graph adds, or None where it has nothing to add.

        Args:
            query: As asked.
            pool: Candidates, ascending.
            fused: Their base scores.
            fuse_at: Base scores of memories that the graph brings in.
        """
        links = link_query(query, self.graph.names_seen(self.mask))
        walked = self._walk(pool, fused)
        named = name_subjects(links, self.graph.mentions, self.mask)
        positions, base, scores, scale = pool, fused, fused, 1.0
        if not walked.is_empty or named.positions.size:
            positions = pool_candidates([pool, walked.positions, named.positions])
            base = fuse_at(positions)
            arriving = _arriving(positions, walked, named)
            scale = graph_scale(arriving, self.weight)
            scores = add_graph(base, arriving, self.weight)
        lends = self.session_weight > 0.0
        talk = self._listen(query, links, positions, scores) if lends else None
        if talk is None:
            if positions is pool:
                return None
            none = np.empty(0)
            return GraphRanking(
                positions, base, scores, walked, named, None, none, none, self.session_weight, scale
            )
        everyone = pool_candidates([positions, talk.members])
        if everyone.size > positions.size:
            base = fuse_at(everyone)
            kept = np.searchsorted(everyone, positions)
            with_members = base / scale
            with_members[kept] = scores
            scores = with_members
        places = np.searchsorted(everyone, talk.members)
        before = scores[places]
        lent = self.session_weight * lent_scores(talk, before)
        scores = self._lend(scores, places, talk, before + self.weight * lent)
        return GraphRanking(
            everyone, base, scores, walked, named, talk, lent, before, self.session_weight, scale
        )

    def _walk(self, pool: Positions, fused: Scores) -> Walk:
        return walk(pool, fused, self.graph.edges, mask=self.mask, as_of_us=self.as_of_us)

    def _listen(
        self, query: str, links: tuple[Link, ...], positions: Positions, scores: Scores
    ) -> Talk | None:
        speakers = [link for link in links if self.graph.speaks(link.ordinal, self.mask)]
        asked = set(tokenize(query))
        # Who speaks is a relation of its own; as a word the name stands in every turn they say.
        spoken = {t for link in speakers for t in tokenize(query[link.start : link.end])}
        terms = self.graph.postings(sorted(asked - spoken or asked))
        return listen(
            positions,
            scores,
            self.graph.sessions,
            terms,
            mask=self.mask,
            speakers=[link.ordinal for link in speakers],
            wings=self.graph.wings,
        )

    def _lend(self, scores: Scores, places: Positions, talk: Talk, raised: Scores) -> Scores:
        """Return the scores with what sessions lend, turns and other memories each among selves."""
        result = scores.copy()
        before = scores[places]
        for group in (talk.is_turn, ~talk.is_turn):
            if group.any():
                result[places[group]] = calibrate(before[group], raised[group])
        return result


def _arriving(positions: Positions, walked: Walk, named: Named) -> Scores:
    arriving = np.zeros(positions.size)
    arriving[np.searchsorted(positions, walked.positions)] += walked.scores
    arriving[np.searchsorted(positions, named.positions)] += named.scores
    return arriving
