"""Every arm of a set, in the order in which tables show them.

No ranking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.arms.ablations import list_ablations
from bench.arms.base import Arm, ArmRetriever, SetContext
from bench.arms.cooccurrence import MAX_CONCEPT_SHARE, MIN_CONCEPT_MEMORIES, NEIGHBOURS_PER_SEED
from bench.arms.corpus_views import CorpusViews
from bench.arms.exact_cosine import CosineRetriever
from bench.arms.fts_seed import IMPORTANCE_BLEND, RELEVANCE_BLEND, Blend
from bench.arms.hybrid_seed import (
    GRAPH_SEEDS,
    Graph,
    HybridGraphRetriever,
    HybridSeedRetriever,
    SharedLegs,
)
from bench.arms.keyword import KeywordRetriever
from bench.arms.recalled import GraphOnlyRetriever, RecallRetriever
from bench.arms.reranker import RERANKED, RerankRetriever
from bench.arms.seed_fusion import FLAWED_GRAPH_WEIGHT, IMPORTANCE_PRIOR, LEG_DEPTH, RRF_K
from bench.arms.tiers import (
    EXIT_MEDIUM,
    EXIT_SMALL,
    MEDIUM_DIMS,
    SHORTLIST,
    SMALL_DIMS,
    CascadeRetriever,
    RescoredCascadeRetriever,
    TierRetriever,
    TierViews,
)
from noctuary.recall.profile import RetrievalProfile

GRAPH_SEED_SETS = frozenset({"locomo", "2wikimultihopqa", "hotpotqa", "musique_train"})
"""Sets with questions that need several memories: what a concept graph is for."""

GRAPH_SEED_WEIGHTS = (0.0, 0.25, 0.35, 0.5, 1.0, 2.0, 3.0, 5.0)
"""Sweep of the repaired graph leg; both base legs weigh 1."""

FUSED_SEED = ("hybrid_seed",)
SHIPPED = ("noctuary",)


def list_arms(context: SetContext, *, graph_seed: bool | None = None) -> list[Arm]:
    """Return the arms of a set; nothing is indexed or loaded before an arm is made.

    Args:
        context: The set, its snapshot and how it is searched.
        graph_seed: Whether to add the reference's graph; by default for `GRAPH_SEED_SETS`.
    """
    views = CorpusViews(context)
    with_graph = context.dataset.name in GRAPH_SEED_SETS if graph_seed is None else graph_seed
    arms = [*_baselines(views), _noctuary(views), *_ablations(views), *_tiers(views)]
    if context.reranker is not None:
        arms.append(_reranker(views, context.reranker))
    return [*arms, *(_graph_seed(views) if with_graph else [])]


def _baselines(views: CorpusViews) -> list[Arm]:
    plain = Arm(
        name="fts_plain",
        group="baseline",
        description="SQLite FTS5, OR of the query's words, bm25, content only (the set's README)",
        against=(),
        settings={"search": "fts5", "mode": "or"},
        make=lambda: KeywordRetriever("fts_plain", views, "or"),
        timed=True,
    )
    dense = Arm(
        name="dense",
        group="baseline",
        description="exact cosine over the snapshot's vectors, alone",
        against=(),
        settings={"search": "cosine"},
        make=lambda: CosineRetriever("dense", views),
        timed=True,
    )
    hybrid = Arm(
        name="hybrid_seed",
        group="baseline",
        description="RRF k=60 of fts_seed and dense, depth 50, weights 1/1, then the reference's "
        "importance prior 0.7 + 0.3 * importance (design A.3, ADR 0005; without effect where "
        "importance is constant)",
        against=(),
        settings={"search": "rrf", "of": ["fts_seed", "dense"], **_fusion_settings()},
        make=lambda: HybridSeedRetriever("hybrid_seed", views),
        timed=True,
    )
    by_relevance = "-bm25 * 0.7 + importance * 0.3"
    by_importance = "-bm25 * 0.4 + importance * 0.6 (sort_by=importance)"
    seed = _seed_arm(views, "fts_seed", RELEVANCE_BLEND, by_relevance)
    return [
        plain,
        seed,
        _seed_arm(views, "fts_importance", IMPORTANCE_BLEND, by_importance),
        dense,
        hybrid,
    ]


def _seed_arm(views: CorpusViews, name: str, blend: Blend, order: str) -> Arm:
    return Arm(
        name=name,
        group="baseline",
        description=f"SQLite FTS5 of the seed store: four fields, AND then OR, {order}, LIKE where "
        "FTS5 refuses the query",
        against=(),
        settings={
            "search": "fts5",
            "mode": "and_then_or",
            "bm25": blend.bm25,
            "importance": blend.importance,
        },
        make=lambda: KeywordRetriever(name, views, "and_then_or", blend),
        timed=True,
    )


def _noctuary(views: CorpusViews) -> Arm:
    shipped = RetrievalProfile()
    return Arm(
        name="noctuary",
        group="noctuary",
        description="the profile that ships",
        against=("fts_seed", "hybrid_seed"),
        settings=shipped.to_json(),
        make=lambda: RecallRetriever("noctuary", views, shipped, timed=True),
        timed=True,
    )


def _ablations(views: CorpusViews) -> list[Arm]:
    def recalled(name: str, profile: RetrievalProfile) -> Callable[[], ArmRetriever]:
        return lambda: RecallRetriever(name, views, profile, timed=False)

    arms = [
        _ablation(a.name, a.description, a.profile.to_json(), recalled(a.name, a.profile))
        for a in list_ablations()
    ]
    graph_only = _ablation(
        "graph_only",
        "only what arrives over the concept graph, walked from the fused list",
        {**RetrievalProfile().to_json(), "ranked_by": "arrivals"},
        lambda: GraphOnlyRetriever("graph_only", views, RetrievalProfile()),
    )
    return [*arms[:2], graph_only, *arms[2:]]


def _tiers(views: CorpusViews) -> list[Arm]:
    tiers = TierViews(views)

    def one(name: str, dim: int | None, said: str, *, rotated: bool) -> Arm:
        return _ablation(
            name,
            f"dense only, {said}",
            {"search": "tier", "dim": dim or "full", "rotated": rotated},
            lambda: TierRetriever(name, tiers, dim, rotated=rotated),
        )

    cascade = {"search": "cascade", "dims": [SMALL_DIMS, MEDIUM_DIMS, "full"]}
    shortlist = {"search": "rescored", "dims": [SMALL_DIMS, "full"], "shortlist": SHORTLIST}
    return [
        one("tier_64", SMALL_DIMS, "first 64 rotated dimensions", rotated=True),
        one("tier_256", MEDIUM_DIMS, "first 256 rotated dimensions", rotated=True),
        one("tier_full", None, "all dimensions, rotated", rotated=True),
        one("unrotated_64", SMALL_DIMS, "first 64 dimensions as the model has them", rotated=False),
        one("unrotated_256", MEDIUM_DIMS, "first 256 dimensions as they are", rotated=False),
        _ablation(
            "cascade",
            f"dense only, 64 dimensions if the best cosine exceeds {EXIT_SMALL}, else 256 if it "
            f"exceeds {EXIT_MEDIUM}, else all (the reference's fallback thresholds)",
            {**cascade, "exits": [EXIT_SMALL, EXIT_MEDIUM]},
            lambda: CascadeRetriever("cascade", tiers),
        ),
        _ablation(
            "cascade_rescored",
            f"dense only, best {SHORTLIST} by 64 dimensions ordered by all of them",
            shortlist,
            lambda: RescoredCascadeRetriever("cascade_rescored", tiers),
        ),
    ]


def _reranker(views: CorpusViews, model_path: str) -> Arm:
    return _ablation(
        "reranker",
        f"first {RERANKED} of noctuary ordered by a cross-encoder",
        {**RetrievalProfile().to_json(), "reranked": RERANKED},
        lambda: RerankRetriever("reranker", views, RetrievalProfile(), model_path),
    )


def _ablation(
    name: str, description: str, settings: dict[str, Any], make: Callable[[], ArmRetriever]
) -> Arm:
    return Arm(name, "ablation", description, SHIPPED, settings, make)


def _graph_seed(views: CorpusViews) -> list[Arm]:
    legs = SharedLegs(views)

    def arm(name: str, graph: Graph, weight: float, said: str) -> Arm:
        return Arm(
            name=name,
            group="graph_seed",
            description=f"hybrid_seed with the reference's co-occurrence graph, {said}",
            against=FUSED_SEED,
            settings={
                "search": "rrf_graph",
                "graph": graph,
                "graph_weight": weight,
                **_fusion_settings(),
                **_graph_settings(),
            },
            make=lambda: HybridGraphRetriever(name, views, legs, graph, weight),
        )

    flawed = "as it was: candidates outside the base set only, which cannot reach the top k"
    return [
        arm("hybrid_seed_graph_flawed", "flawed", FLAWED_GRAPH_WEIGHT, flawed),
        *(
            arm(f"hybrid_seed_graph_w{w:g}", "repaired", w, f"repaired: in the pool, weight {w:g}")
            for w in GRAPH_SEED_WEIGHTS
        ),
    ]


def _fusion_settings() -> dict[str, Any]:
    return {"rrf_k": RRF_K, "depth": LEG_DEPTH, "importance_prior": IMPORTANCE_PRIOR}


def _graph_settings() -> dict[str, Any]:
    return {
        "min_concept_memories": MIN_CONCEPT_MEMORIES,
        "max_concept_share": MAX_CONCEPT_SHARE,
        "seeds": GRAPH_SEEDS,
        "neighbours_per_seed": NEIGHBOURS_PER_SEED,
    }
