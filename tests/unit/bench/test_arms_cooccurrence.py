from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arms.cooccurrence import CooccurrenceGraph
from bench.arms.graph_statistics import GraphStatistics, graph_statistics
from bench.arms.seed_concepts import list_concepts, noun_phrases, singular

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


def test_a_corpus_without_rows_or_concepts_has_no_edges() -> None:
    assert graph_statistics(CooccurrenceGraph.build([])).edges == 0
    empty = CooccurrenceGraph.build([{"content": ""}, {"content": "of the"}])
    assert graph_statistics(empty).isolated == 2
    assert empty.expand([(0, 1.0)]) == []


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
