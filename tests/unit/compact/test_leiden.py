from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sknetwork.clustering import Leiden, get_modularity

from noctuary.compact.leiden import leiden_labels, refine


def planted(blocks: int, size: int, seed: int, across: float = 0.05) -> NDArray[np.float64]:
    """A graph with dense blocks and few links between them."""
    drawn = np.random.default_rng(seed)
    blocked = np.kron(np.eye(blocks), np.ones((size, size)))
    chance = np.where(blocked > 0, 0.9, across)
    upper = np.triu(drawn.random(chance.shape) < chance, 1) * drawn.random(chance.shape)
    return upper + upper.T


def test_planted_communities_are_found() -> None:
    labels = leiden_labels(planted(4, 12, seed=1)).reshape(4, 12)
    assert (labels == labels[:, :1]).all()
    assert len(set(labels[:, 0].tolist())) == 4


def test_equal_graphs_give_equal_communities_whatever_was_drawn_before() -> None:
    weights = planted(3, 40, seed=2, across=0.6)
    first = leiden_labels(weights)
    # The library's own refinement moves C's random numbers on.
    Leiden().fit(csr_matrix(planted(3, 30, seed=3, across=0.6)))
    assert np.array_equal(leiden_labels(weights), first)


@pytest.mark.parametrize("seed", range(4))
def test_modularity_is_that_of_the_library_s_refinement_or_close(seed: int) -> None:
    weights = planted(5, 20, seed=seed, across=0.3)
    theirs: Any = Leiden().fit_predict(csr_matrix(weights))
    modularity: Any = get_modularity
    graph = csr_matrix(weights)
    assert modularity(graph, leiden_labels(weights)) >= modularity(graph, theirs) - 0.02


def test_a_community_of_two_unlinked_halves_is_split() -> None:
    halves = np.zeros((6, 6))
    halves[0, 1] = halves[1, 2] = halves[3, 4] = halves[4, 5] = 1.0
    adjacency = csr_matrix((halves + halves.T) / 8)
    weights = np.asarray(adjacency.sum(axis=1)).ravel()
    parts = refine(np.zeros(6), np.arange(6), adjacency, weights, weights)
    assert len(set(parts[:3]) & set(parts[3:])) == 0
    assert len(set(parts.tolist())) < 6


@given(st.integers(2, 30), st.integers(0, 10_000), st.floats(0.02, 1.0))
@hypothesis_settings(max_examples=40)
def test_every_community_is_connected(nodes: int, seed: int, density: float) -> None:
    drawn = np.random.default_rng(seed)
    upper = np.triu(drawn.random((nodes, nodes)) < density, 1) * np.round(
        drawn.random((nodes, nodes)), 1
    )
    weights = upper + upper.T
    weights[0, 1] = weights[1, 0] = 0.5
    labels = leiden_labels(weights)
    assert len(labels) == nodes
    for label in set(labels.tolist()):
        members = np.flatnonzero(labels == label)
        inside = csr_matrix(weights[np.ix_(members, members)])
        assert connected_components(inside, directed=False)[0] == 1
    assert np.array_equal(leiden_labels(weights), labels)
