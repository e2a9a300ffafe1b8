"""By which path the graph moved a memory: seed -> relation -> concept -> memory.

What belongs here: reading paths out of a graph ranking, for the memories that are shown. What does
not: the scores (`graph_leg`), public ids (`answer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from noctuary.graph.arrays import RELATIONS
from noctuary.graph.conversation import (
    COMPANY_WEIGHT,
    CONTEXT_WEIGHT,
    FACT_COVERAGE_WEIGHT,
    SESSION_WEIGHT,
    SPEAKER_WEIGHT,
    Talk,
    best_neighbour,
)
from noctuary.recall.graph_leg import GraphRanking

NAMED_BY_QUERY = "named_by_query"
IN_SESSION = "in_session"
SAID_BY = "said_by"
IN_COMPANY_OF = "in_company_of"
OWN_WORDS = "own_words"
NO_CONCEPT = -1


class GraphPath(NamedTuple):
    """How the graph reached one memory.

    Attributes:
        score: Everything that was added, before weight and scaling, > 0.
        seed: The memory that the strongest part came from; None where it came from the query.
        relation: The relation of the strongest part.
        concept: Ordinal of the concept on the way, NO_CONCEPT where it is the session.
        evidence: Positions of the memories that hold the evidence.
        shares: By relation, what it added.
    """

    score: float
    seed: int | None
    relation: str
    concept: int
    evidence: tuple[int, ...]
    shares: Mapping[str, float]

    @property
    def reason(self) -> str:
        """Say it in a sentence; memories as {position}."""
        origin = "the query" if self.seed is None else f"{{{self.seed}}}"
        rest = [name for name in self.shares if name != self.relation]
        also = f", also {', '.join(rest)}" if rest else ""
        return f"reached over the graph from {origin} by {self.relation}{also}"


class _Part(NamedTuple):
    score: float
    relation: str
    seed: int | None
    concept: int
    evidence: tuple[int, ...]


def path_of(ranking: GraphRanking, position: int) -> GraphPath | None:
    """Return the path to a memory, or None where the graph added nothing to it."""
    parts = [p for p in _parts(ranking, position) if p.score > 0.0]
    if not parts:
        return None
    best = max(parts, key=lambda p: p.score)
    shares: dict[str, float] = {}
    for part in parts:
        shares[part.relation] = shares.get(part.relation, 0.0) + part.score
    total = sum(shares.values())
    return GraphPath(total, best.seed, best.relation, best.concept, best.evidence, shares)


def _parts(ranking: GraphRanking, position: int) -> list[_Part]:
    parts: list[_Part] = []
    walked, named, talk = ranking.walked, ranking.named, ranking.talk
    for i in np.flatnonzero(walked.positions == position).tolist():
        relation, seed = RELATIONS[int(walked.relations[i])], int(walked.seeds[i])
        parts.append(
            _Part(float(walked.scores[i]), relation, seed, int(walked.concepts[i]), (seed,))
        )
    for i in np.flatnonzero(named.positions == position).tolist():
        score, concept = float(named.scores[i]), int(named.concepts[i])
        parts.append(_Part(score, NAMED_BY_QUERY, None, concept, (position,)))
    if talk is not None:
        for place in np.flatnonzero(talk.members == position).tolist():
            heard = _heard(ranking, talk, place)
            parts += [part._replace(score=ranking.session_weight * part.score) for part in heard]
    return parts


def _heard(ranking: GraphRanking, talk: Talk, place: int) -> list[_Part]:
    """Return what the session of one member lends it, split by relation."""
    position = int(talk.members[place])
    same = np.flatnonzero(talk.owners == talk.owners[place])
    members = talk.members[same]
    base = ranking.before[same]
    best = int(members[int(np.argmax(base))])
    # The best member of a session owes it to the query and to nobody else.
    origin = None if best == position else best
    if not talk.is_turn[place]:
        share = FACT_COVERAGE_WEIGHT * float(talk.coverage[place])
        return [_Part(share, IN_SESSION, origin, NO_CONCEPT, (best,))]
    session = SESSION_WEIGHT * float(base.max())
    speaker = int(talk.speakers[place])
    company = COMPANY_WEIGHT * float(talk.company[place])
    own = float(talk.own[place])
    parts = [
        _Part(session, IN_SESSION, origin, NO_CONCEPT, (best,)),
        _Part(SPEAKER_WEIGHT * float(talk.said[place]), SAID_BY, None, speaker, (position,)),
        _Part(company, IN_COMPANY_OF, None, NO_CONCEPT, (position,)),
        _Part(CONTEXT_WEIGHT * own, OWN_WORDS, None, NO_CONCEPT, (position,)),
    ]
    neighbour = best_neighbour(talk, place)
    if neighbour is not None:
        near = int(talk.members[neighbour])
        relation = "previous_turn" if neighbour > place else "next_turn"
        lent = CONTEXT_WEIGHT * (float(talk.context[place]) - own)
        parts.append(_Part(lent, relation, near, NO_CONCEPT, (near,)))
    return parts
