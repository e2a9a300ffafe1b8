"""The reference's hybrid search as arms: keyword and dense fused, without and with its graph.

Fusion is seed_fusion, the graph is cooccurrence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from bench.arms.exact_cosine import best_positions
from bench.arms.freshness import Freshness
from bench.arms.keyword import KeywordRetriever
from bench.arms.seed_fusion import (
    DENSE_WEIGHT,
    KEYWORD_WEIGHT,
    LEG_DEPTH,
    fuse_flawed,
    fuse_ranks,
    fuse_repaired,
    fuse_seed,
)
from noctuary.evaluate.labels import Query

GRAPH_SEEDS = 10
"""Best fused rows that the graph is entered from; the reference's number."""

Graph = Literal["flawed", "repaired"]


@dataclass(frozen=True, slots=True)
class SeedLegs:
    """Rows per leg, best first, at most LEG_DEPTH in the two base legs."""

    keyword: list[int]
    dense: list[int]


class HybridSeedRetriever(ArmRetriever):
    """RRF of the seed's keyword order and exact cosine, timed: nothing is taken from a cache."""

    def __init__(self, name: str, views: CorpusViews) -> None:
        super().__init__(name)
        self._views = views
        self._keyword = KeywordRetriever("fts_seed", views, "and_then_or")
        self._freshness = Freshness()

    @property
    def index_size_bytes(self) -> int:
        """Bytes of the full-text index and the vectors."""
        return self._keyword.index_size_bytes + int(self._views.vectors.nbytes)

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the first k of the fused list, which ends with the legs' rows."""
        self._freshness.turn_to(query)
        legs = rank_legs(self._views, self._keyword, query)
        return name_rows(self._views, fuse_seed(legs.keyword, legs.dense, self._importance), k)

    @property
    def _importance(self) -> list[float]:
        return self._views.row_importance


class SharedLegs:
    """The legs of the graph arms, ranked once per query: the arms differ in their fusion only.

    The graph is entered from the best fused rows, before the importance prior. Within a wing the
    walk is that of the whole corpus and what it reaches is filtered, as in the keyword leg.
    """

    def __init__(self, views: CorpusViews) -> None:
        self._views = views
        self._keyword = KeywordRetriever("fts_seed", views, "and_then_or")
        self._legs: dict[tuple[str, str | None], tuple[SeedLegs, list[int]]] = {}

    def of(self, query: Query) -> tuple[SeedLegs, list[int]]:
        """Return the base legs of a query and its graph leg, best first."""
        key = (query.text, self._views.wing_of(query))
        if key not in self._legs:
            legs = rank_legs(self._views, self._keyword, query)
            self._legs[key] = (legs, self._walk(legs, query))
        return self._legs[key]

    def _walk(self, legs: SeedLegs, query: Query) -> list[int]:
        fused = fuse_ranks([(legs.keyword, KEYWORD_WEIGHT), (legs.dense, DENSE_WEIGHT)])
        seeds = sorted(fused.items(), key=lambda item: -item[1])[:GRAPH_SEEDS]
        wing, wings = self._views.wing_of(query), self._views.row_wings
        reached = self._views.graph.expand(seeds)
        return [row for row in reached if wing is None or wings[row] == wing]


class HybridGraphRetriever(ArmRetriever):
    """`hybrid_seed` with the reference's graph as a third leg, flawed as it was or repaired."""

    def __init__(
        self, name: str, views: CorpusViews, legs: SharedLegs, graph: Graph, graph_weight: float
    ) -> None:
        super().__init__(name)
        self._views = views
        self._legs = legs
        self._graph = graph
        self._graph_weight = graph_weight

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the first k of the fused list."""
        legs, reached = self._legs.of(query)
        importance = self._views.row_importance
        if self._graph == "flawed":
            ranked = fuse_flawed(legs.keyword, legs.dense, reached, importance)
        else:
            ranked = fuse_repaired(
                legs.keyword, legs.dense, reached, importance, self._graph_weight
            )
        return name_rows(self._views, ranked, k)


def rank_legs(views: CorpusViews, keyword: KeywordRetriever, query: Query) -> SeedLegs:
    """Rank both base legs to the reference's depth."""
    scores = views.vectors @ views.encode(query)
    rows = views.row_of_position[best_positions(scores, LEG_DEPTH, views.wing_mask(query))]
    return SeedLegs(
        keyword=[row for row, _ in keyword.rank_rows(query, LEG_DEPTH)],
        dense=rows[rows >= 0].tolist(),
    )


def name_rows(views: CorpusViews, ranked: list[tuple[int, float]], k: int) -> Hits:
    """Return the first k (row, score) with the rows' ids."""
    return [(views.row_ids[row], score) for row, score in ranked[: max(k, 0)]]
