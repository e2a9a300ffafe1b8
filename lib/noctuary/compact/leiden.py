"""Leiden communities of a weighted graph: scikit-network's, with a refinement that always ends.

What belongs here: the call and the step that is replaced. What does not: which graph. The
refinement of scikit-network 0.33 draws from C's rand(), which no seed of its own reaches, so that
equal graphs give other communities the second time; and it may move a node to and fro for ever (its
issue 592).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESOLUTION = 1.0
"""Of the modularity that is maximised: larger gives more and smaller communities."""

_DECIMALS = 12
# Gains are rounded here: what is equal but for the last bit is a tie, and the earlier one wins.

SparseMatrix = Any
# scipy ships no types.


def leiden_labels(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the community of every node, shape (n,); equal weights give equal labels.

    Every community is connected. Labels go down with size.

    Args:
        weights: Symmetric, not negative, shape (n, n), diagonal 0, some positive.

    Source: Traag, Waltman, van Eck 2019; scikit-network's Leiden.
    """
    from scipy.sparse import csr_matrix
    from sknetwork.clustering import Leiden

    leiden: Any = Leiden(resolution=RESOLUTION, shuffle_nodes=False)
    leiden._optimize_refine = refine
    return np.asarray(leiden.fit_predict(csr_matrix(weights)), dtype=np.int64)


def refine(
    labels: NDArray[Any],
    labels_refined: NDArray[Any],
    adjacency: SparseMatrix,
    out_weights: NDArray[Any],
    in_weights: NDArray[Any],
) -> NDArray[np.int32]:
    """Split communities into connected parts that gain by being together.

    One pass in node order: a node that is still alone joins the part of its community where
    modularity gains most, if anywhere. At most one move per node, so it ends; every part grows
    along an edge, so it is connected. Where Traag et al. draw among the gains, the largest is
    taken: their temperature 0.

    Args:
        labels: Communities found by moving nodes, shape (n,).
        labels_refined: One part per node, 0 to n - 1.
        adjacency: Normalised weights, CSR, shape (n, n).
        out_weights: Row sums of the original nodes' weights, shape (n,).
        in_weights: Column sums, likewise.

    Returns:
        A part per node, shape (n,).
    """
    refinement = _Refinement(labels, labels_refined, adjacency, out_weights, in_weights)
    for node in range(len(labels)):
        refinement.visit(node)
    return np.asarray(refinement.parts, dtype=np.int32)


class _Refinement:
    """The parts while nodes join them, as plain lists: a loop over numbers."""

    def __init__(
        self,
        labels: NDArray[Any],
        labels_refined: NDArray[Any],
        adjacency: SparseMatrix,
        out_weights: NDArray[Any],
        in_weights: NDArray[Any],
    ) -> None:
        self.parts = [int(part) for part in labels_refined]
        self._communities = [int(label) for label in labels]
        self._starts: list[int] = adjacency.indptr.tolist()
        self._neighbours: list[int] = adjacency.indices.tolist()
        self._weights: list[float] = adjacency.data.tolist()
        self._out = [float(weight) for weight in out_weights]
        self._in = [float(weight) for weight in in_weights]
        # Of whole parts.
        self._sizes = [1] * len(self.parts)
        self._total_out, self._total_in = self._out.copy(), self._in.copy()

    def visit(self, node: int) -> None:
        """Let a node that is alone join the part that it gains most by."""
        alone = self.parts[node]
        if self._sizes[alone] > 1:
            return
        best, most = alone, 0.0
        for part, weight in sorted(self._links(node).items()):
            expected = self._out[node] * self._total_in[part]
            expected += self._in[node] * self._total_out[part]
            gain = round(2 * weight - RESOLUTION * expected, _DECIMALS)
            if gain > most:
                best, most = part, gain
        if best != alone:
            self._sizes[best] += 1
            self._total_out[best] += self._out[node]
            self._total_in[best] += self._in[node]
            self._sizes[alone] = 0
            self.parts[node] = best

    def _links(self, node: int) -> dict[int, float]:
        """Return the weight of the links to each part of the node's community."""
        own = self._communities[node]
        links: dict[int, float] = defaultdict(float)
        for place in range(self._starts[node], self._starts[node + 1]):
            other = self._neighbours[place]
            if other != node and self._communities[other] == own:
                links[self.parts[other]] += self._weights[place]
        return links
