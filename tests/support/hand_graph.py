"""The real graph of a snapshot whose reader holds arrays written by hand, and a leg asking it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.fold import ROLES, Name, NameTable
from noctuary.graph.sessions import SessionArrays
from noctuary.graph.walk import OPEN_END_US, RELATIONS, GraphArrays, MentionArrays, RareConcepts
from noctuary.lexical.search import top_positions
from noctuary.recall.legs import GraphLeg, GraphRanking, Leg, SnapshotGraph
from noctuary.recall.query import Facet
from noctuary.recall.reader import SnapshotReader
from noctuary.text.tokens import tokenize

SUBJECT = RELATIONS.index("mentions_subject")
NINA, ORBIT, GARDEN = 0, 1, 2
N = 14
# 0..3 and 4..5 are conversations, 6..7 facts of one session, 8..13 facts of none.
SESSIONS = ([0, 1, 2, 3], [4, 5], [6, 7])
TURNS = (0, 1, 2, 3, 4, 5)
SPOKEN = (1, 4)
STARTS = {"nina": 1, "orbit": 2, "garden": 1}
LINKS = {"nina": (NINA, 0.0, 0), "orbit project": (ORBIT, 0.5, 0), "garden": (GARDEN, 1, 1)}


@dataclass
class HandReader:
    """Holds what `SnapshotGraph` reads, as arrays and dicts."""

    graph_edges: GraphArrays
    mentions: MentionArrays
    sessions: SessionArrays
    rare: RareConcepts
    facets: Mapping[str, Facet]
    texts: Mapping[int, str]
    near: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    held: list[tuple[str, int]] = field(init=False)
    posting_positions: NDArray[np.int32] = field(init=False)
    posting_scores: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.held = sorted({(term, p) for p, text in self.texts.items() for term in tokenize(text)})
        self.posting_positions = np.array([p for _, p in self.held], dtype=np.int32)
        self.posting_scores = np.array([len(term) / 4 for term, _ in self.held], dtype=np.float32)

    def look_up_terms(self, terms: Sequence[str]) -> list[tuple[int, int]]:
        held = [term for term, _ in self.held]
        return [(bisect_left(held, t), bisect_right(held, t)) for t in terms if t in held]

    def look_up(self, *asked: object) -> list[tuple[str, int, int]]:
        terms = cast(Sequence[str], asked[-1])
        return [(t, *slices) for t in terms for slices in self.look_up_terms([t])]

    def document_frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        return {t: sum(stop - start for start, stop in self.look_up_terms([t])) for t in terms}

    def near_words(self, asked: Sequence[str]) -> list[tuple[str, str, float]]:
        return [(t, *n) for t in asked for n in self.near.get(t, ()) if n[0] not in asked]

    def rows_of(self, positions: Sequence[int]) -> dict[int, dict[str, str]]:
        return {position: {"content": self.texts[position]} for position in positions}

    @property
    def count(self) -> int:
        return N

    def name_table(self) -> NameTable:
        def longest(words: Sequence[str]) -> dict[str, int]:
            return {word: STARTS[word] for word in words if word in STARTS}

        def names(asked: Sequence[str]) -> dict[str, Name]:
            found = {name: LINKS[name] for name in asked if name in LINKS}
            return {name: Name(o, w, bool(cased)) for name, (o, w, cased) in found.items()}

        return NameTable(longest, names)


def _edges(*edges: tuple[int, int]) -> GraphArrays:
    ordered, size = sorted(edges), len(edges)
    past = np.full(size, 100, dtype=np.int64)
    never = np.full(size, OPEN_END_US, dtype=np.int64)
    nowhere = np.full(size, -1, dtype=np.int32)
    return GraphArrays(
        indptr=np.searchsorted([source for source, _ in ordered], np.arange(N + 1)),
        targets=np.array([target for _, target in ordered], dtype=np.int32),
        weights=np.ones(size, dtype=np.float32),
        relations=np.full(size, SUBJECT, dtype=np.int8),
        concepts=np.full(size, GARDEN, dtype=np.int32),
        in_degrees=np.ones(size, dtype=np.int32),
        valid_from_us=past, valid_to_us=never, recorded_at_us=past, retracted_at_us=never,
        evidence_starts=nowhere, evidence_ends=nowhere,
    )  # fmt: skip


def _sessions() -> SessionArrays:
    order = np.array([p for session in SESSIONS for p in session], dtype=np.int32)
    codes, places, speakers = (np.full(N, -1, dtype=np.int32) for _ in range(3))
    for code, session in enumerate(SESSIONS):
        codes[list(session)] = code
    places[order] = np.arange(len(order))
    speakers[list(SPOKEN)] = NINA
    indptr = np.cumsum([0, *map(len, SESSIONS)], dtype=np.int64)
    turns = np.isin(np.arange(N), TURNS).astype(np.int8)
    return SessionArrays(codes, places, order, indptr, turns, speakers)


def _mentions(abouts: Sequence[tuple[int, int]]) -> MentionArrays:
    held = sorted(abouts)
    indptr = np.searchsorted([ordinal for ordinal, _ in held], np.arange(4))
    positions = np.array([position for _, position in held], dtype=np.int32)
    roles = np.full(len(held), ROLES.index("about"), dtype=np.int8)
    nowhere = np.full(len(held), -1, dtype=np.int32)
    return MentionArrays(indptr, positions, roles, nowhere, nowhere)


def no_rare_concepts(count: int) -> RareConcepts:
    indptr = np.zeros(count + 1, dtype=np.int64)
    return RareConcepts(indptr, np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8))


def hand_reader(
    *edges: tuple[int, int],
    texts: Mapping[int, str] | None = None,
    abouts: Sequence[tuple[int, int]] = ((ORBIT, 9),),
    wings: Sequence[str] = (),
) -> HandReader:
    codes = np.zeros(N, dtype=np.int32) if wings else np.full(N, -1, dtype=np.int32)
    return HandReader(
        graph_edges=_edges(*edges),
        mentions=_mentions(abouts),
        sessions=_sessions(),
        rare=no_rare_concepts(N),
        facets={"wing": Facet(tuple(wings), codes)},
        texts=dict(texts or {}),
    )


def hand_graph(reader: HandReader) -> SnapshotGraph:
    return SnapshotGraph(cast(SnapshotReader, reader))


class AskedLeg:
    """One leg with base scores by position; what is not given has none."""

    def __init__(
        self,
        reader: HandReader,
        base: Mapping[int, float],
        *,
        weight: float = 1.0,
        session_weight: float = 1.0,
        hidden: Sequence[int] = (),
        as_of_us: int | None = None,
        cosines: Mapping[int, float] | None = None,
    ) -> None:
        self.base = np.zeros(N)
        self.base[list(base)] = list(base.values())
        mask = np.isin(np.arange(N), hidden, invert=True) if hidden else None
        self.leg = GraphLeg(
            hand_graph(reader), mask, weight, session_weight=session_weight, as_of_us=as_of_us
        )
        self.pool = np.array(sorted(base), dtype=np.int64)

        scores = np.zeros(N, dtype=np.float32)
        scores[list(cosines or {})] = list((cosines or {}).values())
        self.dense = Leg.of_scores(scores, top_positions(scores, N))

    def rank(self, query: str) -> GraphRanking | None:
        links, base = self.leg.link(query), self.base
        return self.leg.rank(
            query, links, self.pool, base[self.pool], lambda p: base[p], self.dense
        )

    def found(self, query: str) -> GraphRanking:
        ranking = self.rank(query)
        assert ranking is not None
        return ranking

    def scores(self, query: str) -> dict[int, float]:
        ranking = self.found(query)
        return dict(zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True))
