from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.arms.corpus_views import CorpusViews
from bench.arms.fts_seed import FtsSeed
from bench.arms.hybrid_seed import HybridSeedRetriever
from bench.arms.seed_fusion import LEG_DEPTH, RRF_K, fuse_flawed, fuse_repaired, fuse_seed
from tests.support.arms import ask, build_context, records

ROWS = 120
legs = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=LEG_DEPTH)
graph_legs = st.lists(st.integers(0, ROWS - 1), unique=True)
importances = st.lists(st.floats(0.0, 1.0), min_size=ROWS, max_size=ROWS)
TEXTS = ("the cat and the ladder", "payment for the trip", "walnut saddle", "meadow")


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> CorpusViews:
    # Of 200 memories a concept may be held by 4: phrases of two or three words join them.
    return CorpusViews(build_context(tmp_path_factory.mktemp("fusion"), records(200)))


@given(legs, legs, graph_legs, importances)
def test_the_flawed_graph_never_changes_the_top_k_whatever_it_finds(
    keyword: list[int], dense: list[int], graph: list[int], importance: list[float]
) -> None:
    base = fuse_seed(keyword, dense, importance)
    flawed = fuse_flawed(keyword, dense, graph, importance)
    # For every k up to the size of the base set; its 50 dense rows alone exceed any k asked here.
    assert flawed[: len(base)] == base
    outside = [row for row in graph if row not in {*keyword, *dense}]
    assert {row for row, _ in flawed[len(base) :]} == set(outside[:LEG_DEPTH])


@given(legs, legs, graph_legs, importances, st.floats(0.01, 5.0))
def test_the_repaired_graph_is_a_leg_like_the_others(
    keyword: list[int], dense: list[int], graph: list[int], importance: list[float], weight: float
) -> None:
    assert fuse_repaired(keyword, dense, graph, importance, 0.0) == fuse_seed(
        keyword, dense, importance
    )
    assume(graph)
    ranked = dict(fuse_repaired(keyword, dense, graph, importance, weight))
    assert set(ranked) == {*keyword, *dense, *graph[:LEG_DEPTH]}
    for row in graph[:LEG_DEPTH]:
        expected = weight / (RRF_K + 1 + graph.index(row))
        expected += sum(1 / (RRF_K + 1 + leg.index(row)) for leg in (keyword, dense) if row in leg)
        assert ranked[row] == pytest.approx(expected * (0.7 + 0.3 * importance[row]))


def test_hybrid_seed_fuses_the_seeds_keyword_order_with_exact_cosines(views: CorpusViews) -> None:
    rows = views.context.rows
    index = FtsSeed.build(
        (n, r["content"], r["category"], r["tags"], r["expanded_keywords"], r["importance"])
        for n, r in enumerate(rows)
    )
    cosines = views.vectors @ views.encode(ask(TEXTS[0]))
    row_of = {str(row["id"]): n for n, row in enumerate(rows)}
    dense = np.argsort(-cosines, kind="stable")[:50].tolist()
    expected = fuse_seed(
        [row for row, _ in index.search(TEXTS[0], 50, "and_then_or")],
        [row_of[views.snapshot_ids[position]] for position in dense],
        [row["importance"] for row in rows],
    )
    hits = HybridSeedRetriever("hybrid_seed", views).retrieve_hits(ask(TEXTS[0]), 30)
    assert hits == [(str(rows[row]["id"]), pytest.approx(score)) for row, score in expected[:30]]
