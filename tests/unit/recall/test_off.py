"""Off means off: with every flag off a recall is plain fusion, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from noctuary.core.settings import FUSIONS
from noctuary.recall.candidates import PHASES
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import encode_query
from noctuary.recall.legs import fuse_convex, fuse_rrf, pool_candidates, rank_dense, rank_lexical
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Rows, Scope, build_mask
from tests.support.store import Store

QUERIES = (
    "spare key",
    "flight",
    "the morning flight",
    "door code",
    "Atlas migration",
    "cat boiler",
)


def fused_by_hand(
    recaller: Recaller, query: str, fusion: str, user: str
) -> list[tuple[str, float]]:
    """Legs, fusion, order: nothing else."""
    reader, profile = recaller.reader, RetrievalProfile.off()
    mask, _ = build_mask(Scope(user=user), reader.facets, reader.created_at_us)
    depth, searched = min(profile.depth, reader.count), Rows.of(reader, mask, mask).searched
    vector = encode_query(recaller.paths, reader.manifest, query)
    lexical = rank_lexical(reader, query, searched, depth)
    legs = (lexical, rank_dense(reader, vector, searched, depth))
    pool = pool_candidates([leg.ranking for leg in legs])
    weights = (profile.lexical_weight, profile.dense_weight)
    if fusion == "rrf":
        scores = fuse_rrf(pool, [leg.ranking for leg in legs], weights, profile.rrf_k)
    else:
        scores = fuse_convex([leg.scores_at(pool) for leg in legs], weights)
    order = np.lexsort((pool, -scores))
    ids = reader.memory_ids(pool.tolist())
    return [(ids[int(pool[i])], float(scores[i])) for i in order]


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("query", QUERIES)
def test_off_is_plain_fusion(dense_store: Store, query: str, fusion: str) -> None:
    recaller = Recaller.open(dense_store.root)
    off = RetrievalProfile.off().replaced(fusion=fusion)
    result = recaller.recall(query, 14, profile=off, scope=Scope(user="ana"))
    assert result.memories
    found = [(str(m.id), m.final_score) for m in result.memories]
    assert found == fused_by_hand(recaller, query, fusion, "ana")
    assert result.pipeline["phases_applied"] == []
    assert result.pipeline["phases_skipped"] == [step.name for step in PHASES]
    assert result.pipeline["model_guard"] == "OFF"
