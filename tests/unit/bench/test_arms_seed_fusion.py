from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bench.arms.corpus_views import CorpusViews
from bench.arms.fts_seed import FtsSeed
from bench.arms.hybrid_seed import HybridGraphRetriever, HybridSeedRetriever, SharedLegs
from bench.arms.seed_fusion import (
    FLAWED_GRAPH_WEIGHT,
    LEG_DEPTH,
    RRF_K,
    fuse_flawed,
    fuse_repaired,
    fuse_seed,
)
from tests.support.arms import ask, build_context, records

ROWS = 120
HALF = [0.5] * ROWS
legs = st.lists(st.integers(0, ROWS - 1), unique=True, max_size=LEG_DEPTH)
graph_legs = st.lists(st.integers(0, ROWS - 1), unique=True)
importances = st.lists(st.floats(0.0, 1.0), min_size=ROWS, max_size=ROWS)
TEXTS = ("the cat and the ladder", "payment for the trip", "walnut saddle", "meadow")


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> CorpusViews:
    # Of 200 memories a concept may be held by 4: phrases of two or three words join them.
    return CorpusViews(build_context(tmp_path_factory.mktemp("fusion"), records(200)))


def test_the_fusion_is_the_sum_of_reciprocal_ranks_times_the_prior() -> None:
    importance = [1.0, 0.0, 0.5, 0.5]
    ranked = dict(fuse_seed([0, 1], [1, 2], importance))
    assert ranked == pytest.approx(
        {
            0: (1 / 61) * 1.0,
            1: (1 / 62 + 1 / 61) * 0.7,
            2: (1 / 62) * 0.85,
        }
    )
    assert [row for row, _ in fuse_seed([0, 1], [1, 2], importance)] == [1, 0, 2]


def test_ties_keep_keyword_hits_before_dense_hits() -> None:
    assert [row for row, _ in fuse_seed([9, 8], [3, 4], HALF)] == [9, 3, 8, 4]


def test_with_one_leg_empty_the_order_is_that_of_the_other() -> None:
    assert [row for row, _ in fuse_seed([5, 3, 4], [], HALF)] == [5, 3, 4]
    assert [row for row, _ in fuse_seed([], [5, 3, 4], HALF)] == [5, 3, 4]


def test_the_bound_that_bars_the_graph_from_the_top() -> None:
    best_of_graph = FLAWED_GRAPH_WEIGHT / (RRF_K + 1)
    worst_of_base = 1.0 / (RRF_K + LEG_DEPTH)
    assert (round(best_of_graph, 4), round(worst_of_base, 4)) == (0.0057, 0.0091)
    # Even with full importance for the graph's row and none for the base legs'.
    assert best_of_graph * 1.0 < worst_of_base * 0.7


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
    keyword: list[int],
    dense: list[int],
    graph: list[int],
    importance: list[float],
    weight: float,
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


def test_a_heavy_repaired_graph_puts_its_first_row_on_top() -> None:
    keyword, dense = list(range(50)), list(range(50))
    # Weight 2 equals both legs' first ranks together; the base row was named first.
    assert fuse_repaired(keyword, dense, [99], HALF, 2.0)[:2] == [
        (0, pytest.approx(2 / 61 * 0.85)),
        (99, pytest.approx(2 / 61 * 0.85)),
    ]
    assert fuse_repaired(keyword, dense, [99], HALF, 3.0)[0][0] == 99


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


def test_on_a_generated_corpus_the_flawed_graph_finds_memories_and_changes_nothing(
    views: CorpusViews,
) -> None:
    shared = SharedLegs(views)
    base = HybridSeedRetriever("hybrid_seed", views)
    flawed = HybridGraphRetriever("flawed", views, shared, "flawed", FLAWED_GRAPH_WEIGHT)
    repaired = HybridGraphRetriever("repaired", views, shared, "repaired", 5.0)
    barred = changed = 0
    for text in TEXTS:
        legs, reached = shared.of(ask(text))
        barred += len(set(reached) - {*legs.keyword, *legs.dense})
        for k in (1, 5, 10, 50):
            assert flawed.retrieve_hits(ask(text), k) == base.retrieve_hits(ask(text), k)
            changed += repaired.retrieve_hits(ask(text), k) != base.retrieve_hits(ask(text), k)
    # Not because there was nothing to find: the graph brought rows that both base legs lack, and
    # the same rows change the answer as soon as the pool is open.
    assert barred > 0
    assert changed > 0


def test_within_a_wing_no_graph_row_of_another_wing_arrives(views: CorpusViews) -> None:
    confined = CorpusViews(replace(views.context, scope="wing"))
    legs, reached = SharedLegs(confined).of(ask(TEXTS[0], "work"))
    assert reached
    for row in (*legs.keyword, *legs.dense, *reached):
        assert confined.row_wings[row] == "work"
