from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from noctuary.embed.funnel import PREFIX_EPSILON
from noctuary.embed.rotation import fit, prefix, rotate
from noctuary.embed.tiers import FULL_TIER, tier_tables

DIM = 6
FLOAT32 = st.floats(-(2.0**120), 2.0**120, width=32)
ROWS = st.tuples(st.integers(1, 12), st.just(DIM))


@given(arrays(np.float32, ROWS, elements=FLOAT32), st.integers(1, DIM))
def test_a_prefix_is_finite_short_and_points_the_same_way(vectors: np.ndarray, dim: int) -> None:
    short = prefix(vectors, dim)
    norms = np.linalg.norm(short.astype(np.float64), axis=1)
    assert np.isfinite(short).all()
    assert (norms < 1 + 1e-6).all()
    head = vectors[:, :dim].astype(np.float64)
    size = np.linalg.norm(head, axis=1)
    assert (short[size == 0] == 0).all()
    assert (norms[size > 1e3 * PREFIX_EPSILON] > 1 - 1e-5).all()
    naive = [row / np.sqrt(float(row @ row) + 1e-16) for row in head]
    np.testing.assert_allclose(short, naive, atol=1e-7)


@given(arrays(np.float64, ROWS, elements=st.floats(-1, 1)))
def test_every_fit_is_orthogonal_and_keeps_all_inner_products(vectors: np.ndarray) -> None:
    rotation = fit(vectors, "e")
    np.testing.assert_allclose(rotation.matrix.T @ rotation.matrix, np.eye(DIM), atol=1e-5)
    rotated = rotate(vectors, rotation).astype(np.float64)
    np.testing.assert_allclose(rotated @ rotated.T, vectors @ vectors.T, atol=1e-4)


@given(st.integers(1, 2000), st.lists(st.integers(-5, 3000), max_size=5))
def test_tiers_never_exceed_or_repeat_the_models_dimension(full: int, dims: list[int]) -> None:
    tables = tier_tables(full, dims)
    assert list(tables.values()) == sorted(set(tables.values()))
    assert tables[FULL_TIER] == full
    assert all(1 <= dim <= full for dim in tables.values())
    assert all(dim in dims for name, dim in tables.items() if name != FULL_TIER)
