"""Vectors with the shape of a sentence encoder's, and the naive search that others must equal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_TOPICS = 40


def topical_vectors(rows: int, dim: int, seed: int = 0) -> Floats:
    """Return unit rows around topics, with a decaying spectrum in a basis that no axis shows.

    Topics and basis depend on `dim` alone: rows of another seed are of the same kind.
    """
    world = np.random.default_rng(dim)
    basis, _ = np.linalg.qr(world.normal(size=(dim, dim)))
    topics = world.normal(size=(_TOPICS, dim))
    rng = np.random.default_rng(seed)
    scales = np.arange(1, dim + 1) ** -0.6
    vectors = ((topics[rng.integers(0, _TOPICS, rows)] + rng.normal(size=(rows, dim))) * scales) @ (
        basis.T
    )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def exact_positions(
    full: Floats, query: Floats, depth: int, mask: NDArray[np.bool_] | None = None
) -> list[int]:
    """Return the allowed positions of the best cosines above 0, ties by position."""
    cosines = np.einsum("ij,j->i", full, query).tolist()
    allowed = [p for p, c in enumerate(cosines) if c > 0 and (mask is None or mask[p])]
    return sorted(allowed, key=lambda p: (-cosines[p], p))[:depth]
