"""Which index a tier gets, and that it finds what an exact scan finds."""

from __future__ import annotations

import lancedb
import numpy as np
from lancedb.index import HnswSq

from noctuary.embed.rotation import rotate
from noctuary.embed.tiers import FULL_TIER, index_spec
from noctuary.work.shards import IndexSpec
from tests.support.tier_store import DIM, ROWS, TierStore, clustered, search_tier


def test_long_vectors_get_codes_and_short_ones_a_byte_a_dimension() -> None:
    assert index_spec(384, 1_000_000) == IndexSpec("IVF_RQ", 15, bits=2)
    assert index_spec(256, 65_535) == IndexSpec("IVF_RQ", 1, bits=2)
    assert index_spec(255, 10) == IndexSpec("IVF_SQ", 1)
    assert index_spec(64, 131_072) == IndexSpec("IVF_SQ", 2)
    assert index_spec(300, 1).kind == "IVF_SQ", "codes fill whole bytes"


def test_a_tier_of_codes_finds_the_true_neighbours(store: TierStore) -> None:
    large = TierStore(store.lance, clustered(1_500, dim=256, seed=3))
    report = large.sync(dims=(), index_min_rows=100)
    assert [(t.name, t.index, t.unindexed_rows) for t in report.tiers] == [(FULL_TIER, "IVF_RQ", 0)]
    found = 0
    for query in clustered(20, dim=256, seed=3):
        truth = set(np.argsort(-(large.vectors @ query), kind="stable")[:10].tolist())
        hits = search_tier(large.home, 256, rotate(query, large.rotation), 10)
        found += len(truth & {int(hit.memory_id[1:]) for hit in hits})
    assert found >= 0.95 * 200


def test_an_index_of_an_earlier_version_is_replaced(store: TierStore) -> None:
    store.sync()
    table = lancedb.connect(str(store.lance)).open_table(FULL_TIER)
    table.create_index("vector", config=HnswSq("cosine", num_partitions=1))
    state = store.sync(index_min_rows=ROWS).tiers[-1]
    assert (state.index, state.unindexed_rows, state.rows) == ("IVF_SQ", 0, ROWS)
    version = state.version
    again = store.sync(index_min_rows=ROWS).tiers[-1]
    assert (again.index, again.version, again.action) == ("IVF_SQ", version, "unchanged")
    hits = search_tier(store.home, DIM, rotate(store.vectors[3], store.rotation), 1)
    assert hits[0].memory_id == "m3"
