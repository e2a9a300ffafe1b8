from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.arms.cooccurrence import CooccurrenceGraph
from bench.arms.corpus_views import CorpusViews
from bench.arms.fts_seed import FtsSeed
from bench.arms.graph_statistics import GraphStatistics, graph_statistics
from bench.arms.hybrid_seed import HybridGraphRetriever, HybridSeedRetriever, SharedLegs
from bench.arms.pagerank import (
    DAMPING,
    NAMED_SHARE,
    PageRankRetriever,
    join,
    personalised_pagerank,
    spread,
)
from bench.arms.recalled import RecallRetriever
from bench.arms.seed_concepts import list_concepts, noun_phrases, singular
from bench.arms.seed_fusion import (
    FLAWED_GRAPH_WEIGHT,
    LEG_DEPTH,
    RRF_K,
    fuse_flawed,
    fuse_repaired,
    fuse_seed,
)
from noctuary.graph.walk import Walk
from noctuary.recall.profile import RetrievalProfile
from tests.support.arms import ask, build_context, ids, records
from tests.support.mentions import Held, mention_arrays, random_mentions
from tests.support.store import memory, renumber

EVERYTHING = 1.0
"""A share that keeps every concept: small corpora would lose all of theirs to the hub rule."""

corpora = st.lists(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5), min_size=1, max_size=12
)


def memory_memory_edges(per_memory: list[list[str]], kept: set[str]) -> dict[tuple[int, int], int]:
    """The reference's graph as it is written down: one weight per pair of memories."""
    edges: dict[tuple[int, int], int] = {}
    for one, other in combinations(range(len(per_memory)), 2):
        shared = kept & set(per_memory[one]) & set(per_memory[other])
        if shared:
            edges[one, other] = len(shared)
    return edges


@given(corpora, st.floats(0.1, 1.0))
def test_neighbours_through_concepts_are_those_of_the_memory_memory_graph(
    per_memory: list[list[str]], share: float
) -> None:
    n = len(per_memory)
    frequency = {c: sum(c in held for held in per_memory) for c in "abcdefgh"}
    kept = {c for c, df in frequency.items() if 2 <= df <= int(share * n)}
    edges = memory_memory_edges(per_memory, kept)
    graph = CooccurrenceGraph.of_concepts(per_memory, share)
    for row in range(n):
        rows, weights = graph.neighbours(row)
        expected = {
            other: edges[min(row, other), max(row, other)]
            for other in range(n)
            if (min(row, other), max(row, other)) in edges
        }
        assert dict(zip(rows.tolist(), weights.tolist(), strict=True)) == expected
    statistics = graph_statistics(graph)
    assert statistics.edges == len(edges)
    assert statistics.concepts == len(kept)
    assert statistics.concepts_extracted == sum(df > 0 for df in frequency.values())
    assert statistics.memories == n


def test_concepts_of_one_memory_and_hubs_join_nothing() -> None:
    hub = [["hub", f"own{n}", *(["pair"] if n < 2 else [])] for n in range(100)]
    graph = CooccurrenceGraph.of_concepts(hub)  # at most 2 of 100 memories
    assert graph.n_concepts == 1
    assert graph.neighbours(0)[0].tolist() == [1]
    assert graph.neighbours(5)[0].tolist() == []
    assert graph_statistics(graph) == GraphStatistics(
        memories=100, isolated=98, concepts_extracted=102, concepts=1, edges=1, mean_degree=0.0,
        size_bytes=graph.size_bytes,
    )  # fmt: skip


def test_a_seed_reaches_its_heaviest_neighbours_first_and_only_so_many() -> None:
    per_memory = [["a", "b", "c"], ["a"], ["a", "b"], ["b"], ["a", "b", "c"]]
    graph = CooccurrenceGraph.of_concepts(per_memory, EVERYTHING)
    rows, weights = graph.strongest(0)
    assert (rows.tolist(), weights.tolist()) == ([4, 2, 1, 3], [3, 2, 1, 1])
    assert graph.strongest(0, 3)[0].tolist() == [4, 2, 1]
    wide = CooccurrenceGraph.of_concepts([["x"]] * 40, EVERYTHING)
    assert wide.strongest(0)[0].tolist() == list(range(1, 26))


def test_an_expansion_adds_up_what_the_seeds_pass_on() -> None:
    per_memory = [["a", "b"], ["b", "c"], ["a", "c"], ["c"]]
    graph = CooccurrenceGraph.of_concepts(per_memory, EVERYTHING)
    # From 0: 1 and 2 with weight 1; from 1: 0, 2 and 3 with weight 1.
    assert graph.expand([(0, 0.5), (1, 0.25)]) == [2, 1, 0, 3]
    assert graph.expand([]) == []


def test_concepts_come_from_tags_keywords_and_phrases() -> None:
    row = {
        "content": "The annual budgets of Acme Corp are in the box.",
        "tags": "Finance Reports, acme",
        "expanded_keywords": "money Invoices",
    }
    assert set(list_concepts(row)) == {
        "finance report", "acme", "money", "invoice",
        "annual", "budget", "annual budget", "corp", "acme corp", "box",
    }  # fmt: skip


def test_a_phrase_ends_at_a_stop_word_or_punctuation_and_has_at_most_three_words() -> None:
    assert noun_phrases("red lamp, blue door") == [
        "red", "lamp", "red lamp", "blue", "door", "blue door",
    ]  # fmt: skip
    assert noun_phrases("one-way ticket office clerk") == ["one-way", "ticket", "office", "clerk"]
    assert noun_phrases("go up") == []
    assert noun_phrases("") == []


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("cats", "cat"), ("cities", "city"), ("boxes", "box"), ("glass", "glass"), ("bus", "bus"),
        ("gas", "gas"), ("analysis", "analysis"), ("churches", "church"), ("house", "house"),
    ],
)  # fmt: skip
def test_plurals_lose_their_ending(word: str, expected: str) -> None:
    assert singular(word) == expected


RARE, COMMON, OTHER, ALONE = range(4)
# 0 and 1 share two concepts, 2 and 3 the more common one, 4 is two steps away, 5 is isolated.
SMALL: list[Held] = [
    (RARE, 0, "mentions"), (RARE, 1, "about"),
    (COMMON, 0, "mentions"), (COMMON, 1, "mentions"), (COMMON, 2, "about"), (COMMON, 3, "author"),
    (OTHER, 3, "mentions"), (OTHER, 4, "about"),
    (ALONE, 5, "about"),
]  # fmt: skip


def naive(held: list[Held], memories: int, starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """PageRank over memories and concepts together, one node at a time, from the definition."""
    holders: dict[int, set[int]] = defaultdict(set)
    for concept, where, _ in held:
        holders[concept].add(where)
    chance = np.zeros((starts.size, starts.size))
    for concept, of in holders.items():
        for where in of if len(of) > 1 else ():
            chance[memories + concept, where] = 1 / len(of)
            chance[where, memories + concept] = 1 / len(of)
    for i, total in enumerate(chance.sum(axis=1).tolist()):
        chance[i] = chance[i] / total if total else starts
    found = np.linalg.solve(np.eye(starts.size) - DAMPING * chance.T, (1 - DAMPING) * starts)
    return found[:memories].astype(np.float64)


def spread_from(seeds: dict[int, float], *named: int, mask: list[bool] | None = None) -> Walk:
    seen = None if mask is None else np.array(mask)
    positions, scores = np.array([*seeds], dtype=np.int64), np.array([*seeds.values()], dtype=float)
    joined = join(mention_arrays(SMALL, 4), 6, seen)
    return spread(positions, scores, np.array(named, dtype=np.int64), joined, seen)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_stationary_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = random_mentions(rng, 40, 25)
    joined = join(mention_arrays(held, 25), 40, None)
    starts = rng.random(65) * (rng.random(65) < 0.2)
    starts[40:] *= joined.degrees > 0
    starts /= starts.sum()
    found = personalised_pagerank(joined, starts[:40], starts[40:])
    assert np.abs(found - naive(held, 40, starts)).max() < 1e-9


def test_the_scores_are_those_of_the_definition() -> None:
    starts = np.zeros(6 + 4)
    starts[[0, 3, 6 + OTHER]] = [0.6 * (1 - NAMED_SHARE), 0.4 * (1 - NAMED_SHARE), NAMED_SHARE]
    expected = naive(SMALL, 6, starts)
    found = spread_from({3: 0.4, 0: 0.6}, OTHER)
    assert found.positions.tolist() == [0, 1, 2, 3, 4]
    assert found.scores.tolist() == pytest.approx(expected[:5] / expected.max(), abs=1e-9)


def test_what_may_not_be_seen_passes_nothing_on() -> None:
    found = spread_from({0: 0.8}, mask=[True, True, True, False, True, True])
    assert found.positions.tolist() == [0, 1, 2]


def test_the_arm_reaches_what_no_directed_step_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    texts = (
        "Nina wants an anchor for the boat before May, says `MARLIN-7`.",
        "The sailmaker has `MARLIN-7` on his list and asks about `HALYARD-3`.",
        "Invoices with `HALYARD-3` are paid on Fridays.",
    )
    root = tmp_path_factory.mktemp("pagerank")
    views = CorpusViews(build_context(root, renumber([memory(text) for text in texts])))
    words = RetrievalProfile(dense_weight=0.0)
    question = ask("what did Nina order for the boat")
    assert ids(RecallRetriever("walk", views, words, timed=False), question, 5) == ["101"]
    found = PageRankRetriever("graph_ppr", views, words).retrieve_hits(question, 5)
    assert [i for i, _ in found] == ["101", "102", "103"]


ROWS = 120
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
        {0: (1 / 61) * 1.0, 1: (1 / 62 + 1 / 61) * 0.7, 2: (1 / 62) * 0.85}
    )
    assert [row for row, _ in fuse_seed([0, 1], [1, 2], importance)] == [1, 0, 2]


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
