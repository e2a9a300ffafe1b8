from __future__ import annotations

import numpy as np

from noctuary.embed.rotation import (
    assign,
    build_prefix_tier,
    fit,
    fit_centroids,
    identity,
    rotated_prefix,
)
from tests.support.vectors import topical_vectors

FULL = topical_vectors(1_000, 48)
ROTATION = fit(FULL, "e")


def test_every_memory_is_in_the_tier_once_as_its_own_prefix() -> None:
    tier = build_prefix_tier(FULL, ROTATION, 16, rows_per_cell=50)
    assert sorted(tier.positions.tolist()) == list(range(1_000))
    expected = rotated_prefix(FULL, ROTATION, 16)
    np.testing.assert_allclose(tier.vectors, expected[tier.positions], atol=1e-6)
    query = topical_vectors(1, 48, seed=5)[0]
    np.testing.assert_allclose(tier.shorten(query), rotated_prefix(query, ROTATION, 16), atol=1e-6)


def test_every_row_lies_in_the_cell_of_the_nearest_direction() -> None:
    tier = build_prefix_tier(FULL, ROTATION, 16, rows_per_cell=50)
    assert tier.centroids.shape == (20, 16)
    np.testing.assert_allclose(np.linalg.norm(tier.centroids, axis=1), 1.0, atol=1e-5)
    nearest = (tier.vectors @ tier.centroids.T).argmax(axis=1)
    for cell in range(20):
        part = slice(int(tier.starts[cell]), int(tier.starts[cell + 1]))
        assert (nearest[part] == cell).all()
        assert (np.diff(tier.positions[part]) > 0).all()
    assert int(tier.starts[-1]) == 1_000


def test_cells_gather_what_is_alike() -> None:
    """Rows are nearer to their own direction than to where k-means started from."""
    prefixes = rotated_prefix(FULL, ROTATION, 16)
    centroids = fit_centroids(prefixes, 20)
    start = prefixes[np.linspace(0, 999, 20).astype(np.int64)]
    fitted = float((prefixes * centroids[assign(prefixes, centroids)]).sum(axis=1).mean())
    unfitted = float((prefixes * start[assign(prefixes, start)]).sum(axis=1).mean())
    assert fitted > unfitted + 0.02


def test_equal_inputs_give_equal_arrays() -> None:
    first, second = (build_prefix_tier(FULL, ROTATION, 16, rows_per_cell=50) for _ in range(2))
    for name in ("vectors", "positions", "starts", "centroids", "rotation"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_one_row_and_equal_rows_make_a_tier() -> None:
    one = build_prefix_tier(FULL[:1], identity(48, "e", "small"), 16)
    assert one.is_aligned(1, 48)
    same = build_prefix_tier(np.tile(FULL[:1], (200, 1)), ROTATION, 16, rows_per_cell=10)
    assert same.is_aligned(200, 48)
    assert np.isfinite(same.centroids).all()
    zeros = build_prefix_tier(np.zeros((60, 48), dtype=np.float32), ROTATION, 16, rows_per_cell=10)
    assert np.isfinite(zeros.centroids).all()
